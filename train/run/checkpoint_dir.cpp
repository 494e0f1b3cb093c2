#include "train/run/checkpoint_dir.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "checkpoint/format/box_file.h"
#include "core/block_file.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/host_name.h"
#include "core/number_text.h"
#include "core/random_token.h"
#include "train/run/resume.h"
#include "train/run/run_together.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

// Numbers that are compared keep two digits.
std::string room_text(std::int64_t bytes) { return bytes < 100'000'000 ? megabytes_text(bytes, 2) : gigabytes_text(bytes, 2); }

bool has_checkpoints(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    if (checkpoint_name_from(at->path().filename().string())) return true;
  return false;
}

bool is_full(const Error& error) { return error.system_error() == ENOSPC || error.system_error() == EDQUOT; }

// The next start may succeed where a disk failed or was full, or a server did not answer.
bool may_pass(const Error& error) {
  return is_full(error) || error.system_error() == EIO || error.system_error() == ESTALE || error.system_error() == ETIMEDOUT;
}

// The file system's answer about the folder, as the reason for which a configuration is refused.
template <class Body>
void refusing(const std::string& directory, Body&& body) {
  try {
    body();
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    std::string_view what = error.what();
    if (what.starts_with(directory + ": ")) what.remove_prefix(directory.size() + 2);
    const std::string text = fmt::format("checkpoint.dir = {}: {}; or name another folder", directory, what);
    // Where it was fit once what fails now may pass as well, and the next start try again.
    const bool passes = may_pass(error) || has_checkpoints(directory);
    if (passes && error.code() == ExitCode::kStorage) throw StorageError(text, error.system_error());
    if (passes) throw;
    throw UnfitFolderError(text);
  }
}

constexpr std::string_view kProbe = "probe-";

// A file that nobody can have but who was told its name, as long as it lives.
class Probe {
 public:
  explicit Probe(const std::string& directory)
      : content_(random_token()), file_(fmt::format("{}/{}{}", directory, kProbe, random_token())) {
    file_.append(content_);
    file_.commit();  // under another name first, flushed, renamed, and the folder flushed
  }
  ~Probe() {
    std::error_code ignored;
    fs::remove(path(), ignored);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  const std::string& path() const { return file_.path(); }
  const std::string& content() const { return content_; }

 private:
  std::string content_;
  AtomicFile file_;  // keeps the file's lock
};

// Removes probes that killed starts left.
void remove_probes(const std::string& directory) {
  remove_unlocked(directory, [](std::string_view name) {
    name = name_of_temporary(name).value_or(name);
    return name.starts_with(kProbe) && name.size() == kProbe.size() + kRandomDigits;
  });
}

// Network file systems may show it a while later.
void look_for(const std::string& directory, const std::string& path, const std::string& content, const std::string& host_of_rank_0,
              double patience) {
  std::string why;
  for (const double start = monotonic_seconds();;) {
    const double now = monotonic_seconds();
    try {
      if (read_file(path) == content) return;
      why = "it has another content";
    } catch (const Error& error) {
      why = error.what();
    }
    if (now - start >= patience) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw UnfitFolderError(
      fmt::format("checkpoint.dir = {}: {} does not see the file that rank 0 ({}) wrote there: {}; name a folder on a file system "
                  "that all nodes share, mounted under the same path",
                  directory, host_name(), host_of_rank_0, why));
}

}  // namespace

MadeFolder::MadeFolder(const std::string& folder) {
  try {
    made_ = create_lasting_folder(fs::absolute(folder).string());
  } catch (const StorageError&) {  // whoever needs the folder will say why it is not there
  }
}

MadeFolder::~MadeFolder() {
  std::error_code ignored;
  for (const std::string& path : made_) fs::remove(path, ignored);  // not if something lies there
}

void check_checkpoint_dir(Rendezvous& job, bool is_first_of_node, const std::string& directory, double patience_seconds) {
  const std::string shared = job.broadcast(directory, 0);
  if (shared.empty()) return;
  std::optional<Probe> probe;
  run_together(job, [&] {
    if (job.rank() != 0) return;
    refusing(directory, [&] {
      create_lasting_folder(directory);
      probe.emplace(directory);
    });
  });
  const std::string path = job.broadcast(probe ? probe->path() : "", 0), content = job.broadcast(probe ? probe->content() : "", 0);
  const std::string host = job.broadcast(host_name(), 0);
  run_together(job, [&] {
    if (is_first_of_node) look_for(shared, path, content, host, patience_seconds);
  });
}

std::string fault_unless(bool was_given, const std::function<void()>& check) {
  try {
    check();
    return "";
  } catch (const Error& error) {
    // The next start tries again what may pass.
    if (was_given || (error.code() != ExitCode::kConfig && !is_full(error))) throw;
    return error.what();
  }
}

std::int64_t bytes_on_disk(const SavePlan& plan) {
  std::int64_t bytes = 0;
  for (const SaveFile& file : plan.files) bytes += direct_size(std::ssize(to_text(file.table)) + file.table.data_bytes());
  return bytes;
}

namespace {

// The bytes that keep_last + 1 saves still need (keep_last 0, which keeps all: one save). `kept`: bytes of the valid checkpoints,
// the newest first.
std::int64_t bytes_to_come(std::int64_t bytes_of_a_save, std::int64_t keep_last, std::span<const std::int64_t> kept) {
  if (keep_last == 0) return bytes_of_a_save;
  std::int64_t bytes = (keep_last + 1) * bytes_of_a_save;
  // The newest stay until newer ones are there. A larger one counts as one of this run's.
  for (std::int64_t i = 0; i < std::min<std::int64_t>(keep_last, std::ssize(kept)); ++i)
    bytes -= std::min(kept[static_cast<std::size_t>(i)], bytes_of_a_save);
  return bytes;
}

struct Room {
  std::int64_t free = 0, needed = 0;  // bytes; 0 needed where the file system does not say how large it is
  std::int64_t kept = 0;              // checkpoints that are there and stay
  std::int64_t aside = 0, aside_bytes = 0;  // those that no run removes
  bool is_enough() const { return free >= needed; }
};

Room room_in(const std::string& directory, std::int64_t bytes_of_a_save, std::int64_t keep_last, RunBegins begins) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0 || status.f_blocks == 0) return {};
  std::vector<std::int64_t> kept;
  Room room;
  const std::vector<CheckpointEntry> there = list_checkpoints(directory);
  for (const CheckpointEntry& entry : there) {
    if (entry.parts.mark != kAsideMark && (begins == RunBegins::kGoesOn || !entry.parts.mark.empty())) continue;
    ++room.aside;
    room.aside_bytes += bytes_below(directory + "/" + entry.name);
  }
  const std::int64_t counted_ones = begins == RunBegins::kAnew ? 0 : keep_last;
  for (auto entry = there.rbegin(); entry != there.rend() && std::ssize(kept) < counted_ones; ++entry) {
    if (!entry->parts.mark.empty() || entry->health != CheckpointHealth::kValid) continue;
    std::int64_t& bytes = kept.emplace_back();
    for (const ManifestFile& file : open_manifest(directory + "/" + entry->name).files) bytes += file.bytes;
  }
  room.free = static_cast<std::int64_t>(static_cast<unsigned long long>(status.f_bavail) * status.f_frsize);
  room.needed = bytes_to_come(bytes_of_a_save, keep_last, kept);
  room.kept = std::ssize(kept);
  return room;
}

}  // namespace

std::int64_t keep_last_for_room(const TrainConfig& config) {
  return config.checkpoint.every.on_the_way().ever() ? config.checkpoint.keep_last.value_or(0) : 0;
}

bool has_room(const std::string& directory, std::int64_t bytes_of_a_save, std::int64_t keep_last) {
  return room_in(directory, bytes_of_a_save, keep_last, RunBegins::kGoesOn).is_enough();
}

void check_room(const std::string& directory, std::int64_t bytes_of_a_save, std::int64_t keep_last, RunBegins begins) {
  const Room room = room_in(directory, bytes_of_a_save, keep_last, begins);
  if (room.is_enough()) return;
  const std::string saves = keep_last == 0 ? "one save needs"
                                           : fmt::format("checkpoint.keep_last = {} and the save being written, of which {} {} there, need", keep_last,
                                                         room.kept, room.kept == 1 ? "is" : "are");
  const std::string aside =
      room.aside == 0 ? ""
                      : fmt::format(" ({}, which {}set aside and which no run removes, {} {})", counted(room.aside, "checkpoint"),
                                    begins == RunBegins::kAnew ? "would be "
                                    : room.aside == 1          ? "is "
                                                               : "are ",
                                    room.aside == 1 ? "has" : "have", room_text(room.aside_bytes));
  throw UnfitFolderError(fmt::format(
      "checkpoint.dir = {}: {} are free, {} {}{} (a save has {}); free some space{}{}, or name a folder on another disk",
      directory, room_text(room.free), saves, room_text(room.needed), room.kept > 0 ? " more" : "", room_text(bytes_of_a_save),
      aside,
      keep_last > 1 ? ", lower checkpoint.keep_last" : ""));
}

std::unique_ptr<Lease> take_lease(const std::string& directory, const Logger& logger, LeaseOptions options,
                                  const std::string& token) {
  std::unique_ptr<Lease> lease;
  refusing(directory, [&] {
    create_lasting_folder(directory);
    options.say = [&logger](const std::string& line) { logger.info("{}", line); };
    options.warn = [logger](std::string_view line) { logger.warning("{}", line); };
    const std::string ours = token.empty() ? lease_token_given().value_or(random_token()) : token;
    lease = std::make_unique<Lease>(directory, ours, std::move(options));
  });
  return lease;
}

std::unique_ptr<Lease> take_checkpoint_dir(const RunInputs& inputs, std::int64_t bytes_of_a_save, const Logger& logger) {
  const TrainConfig& config = inputs.plan.config;
  const std::string directory = checkpoint_folder_of(config);
  std::unique_ptr<Lease> lease = take_lease(directory, logger, {.renews = config.checkpoint.every.on_the_way().ever()});
  try {
    refusing(directory, [&] {
      for (const std::string& fault : remove_leftovers(directory)) logger.warning("{}", fault);
      remove_probes(directory);
      if (!inputs.resume) check_room(directory, bytes_of_a_save, keep_last_for_room(config), RunBegins::kAnew);
    });
    // A run that begins anew sets aside whatever is there by now.
    const bool begins_anew = config.run.overwrite && !inputs.resume;
    const bool looks = config.checkpoint.resume.kind == ResumeFrom::Kind::kNewest && !begins_anew;
    const std::optional<Resume> newest = looks ? find_resume(config) : inputs.resume;
    const std::string now = newest ? newest->folder : "none", then = inputs.resume ? inputs.resume->folder : "none";
    if (now != then)
      throw StorageError(
          fmt::format("checkpoint.dir = {}: the checkpoint to go on from is {} now and was {} when this run started: another run "
                      "saved there; start this one again",
                      directory, now, then));
  } catch (...) {
    lease->withdraw();
    throw;
  }
  return lease;
}

}  // namespace trident
