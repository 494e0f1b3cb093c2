#include "checkpoint/lease.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/file_descriptor.h"
#include "core/file_io.h"
#include "core/file_lock.h"
#include "core/host_name.h"
#include "core/json_reader.h"
#include "core/process_status.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "trident-lease", kLease = "lease-", kSuffix = ".json", kHeld = "held", kDone = "done";
constexpr JsonRules kRules{.comments = false, .max_bytes = 64 << 10, .max_depth = 4, .blame = ExitCode::kData};
constexpr double kLook = 0.25;  // seconds, between two looks at a holder elsewhere
constexpr double kSilent = 2;   // seconds, after which it is said that a holder's end is waited for

// The end of the file, of one width, which alone changes.
constexpr std::size_t kStateBytes = std::string_view(R"("held","counter":"0123456789abcdef"}.)").size();
using StateText = std::array<char, kStateBytes>;
StateText state_text(bool done, std::int64_t counter) {
  StateText text{};
  fmt::format_to_n(text.data(), text.size(), R"("{}","counter":"{:016}"}}{})", done ? kDone : kHeld, counter, '\n');
  return text;
}

std::optional<std::int64_t> generation_from(std::string_view name) {
  if (!name.starts_with(kLease) || !name.ends_with(kSuffix) || name.size() <= kLease.size() + kSuffix.size()) return std::nullopt;
  const std::string_view digits = name.substr(kLease.size(), name.size() - kLease.size() - kSuffix.size());
  std::int64_t generation = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), generation);
  constexpr std::int64_t kMost = 1'000'000'000'000;  // no folder has had as many turns, and there is always a next one
  const bool is_one = error == std::errc{} && generation > 0 && generation < kMost && lease_name(generation) == name;
  return is_one ? std::optional(generation) : std::nullopt;
}

std::vector<std::int64_t> generations_in(const std::string& directory) {
  std::vector<std::int64_t> generations;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto generation = generation_from(entry->path().filename().string())) generations.push_back(*generation);
  }
  if (error)
    throw StorageError(fmt::format("{}: cannot be listed: {}; check its permissions and the disk", directory, error.message()),
                       error.value());
  return generations;
}

std::int64_t newest_generation(const std::string& directory) {
  const std::vector<std::int64_t> generations = generations_in(directory);
  return generations.empty() ? 0 : std::ranges::max(generations);
}

// Nothing if it is not there: who has the next turn removes it.
std::optional<std::string> text_of(const std::string& path) {
  try {
    if (is_there(path)) return read_file(path);
  } catch (const DataError&) {
    if (is_there(path)) throw;
  }
  return std::nullopt;
}

// Gives `file` the name `path`, which nobody else may have; whether that succeeded.
bool name_exclusively(const std::string& file, const std::string& path) {
  if (::link(file.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  struct stat status {};
  // Network file systems may do it and lose the answer.
  if (::stat(file.c_str(), &status) == 0 && status.st_nlink > 1) return true;
  if (error == EEXIST || error == ENOENT) return false;  // ENOENT: somebody tidied up
  throw StorageError(fmt::format("{}: cannot be linked from {}: {}; name a folder on a file system with hard links", path, file,
                                 std::strerror(error)),
                     error);
}

}  // namespace

std::optional<std::string> lease_token_given() {
  for (const char* const name : kLeaseTokenVariables)
    if (const char* const token = std::getenv(name); token != nullptr && *token != '\0') return token;
  return std::nullopt;
}

std::string lease_name(std::int64_t generation) { return fmt::format("{}{:08}{}", kLease, generation, kSuffix); }

std::string to_text(const LeaseRecord& record) {
  JsonValue fixed;
  fixed.set("format", kFormat);
  fixed.set("generation", record.generation);
  fixed.set("token", record.holder.token);
  fixed.set("host", record.holder.host);
  fixed.set("boot", record.holder.boot);
  fixed.set("pid_namespace", record.holder.pid_namespace);
  fixed.set("pid", record.holder.pid);
  fixed.set("started", record.holder.started);
  std::string text = to_json_text(fixed);
  text.back() = ',';  // for its closing brace
  const StateText state = state_text(record.done, record.counter);
  return text.append("\"state\":").append(state.data(), state.size());
}

std::optional<LeaseRecord> lease_from(const std::string& text) {
  LeaseRecord record;
  try {
    const JsonValue value = parse_json(text, "a lease", kRules);
    const auto text_at = [&](std::string_view key) { return value.find(key) == nullptr ? "" : value.find(key)->as_string(); };
    const auto number_at = [&](std::string_view key) { return value.find(key) == nullptr ? 0 : value.find(key)->as_integer(); };
    const std::string counter = text_at("counter"), state = text_at("state");
    if (text_at("format") != kFormat || (state != kHeld && state != kDone) || counter.empty()) return std::nullopt;
    record.holder = {text_at("token"),         text_at("host"),  text_at("boot"),
                     text_at("pid_namespace"), number_at("pid"), number_at("started")};
    record.generation = number_at("generation");
    record.done = state == kDone;
    const auto [end, error] = std::from_chars(counter.data(), counter.data() + counter.size(), record.counter);
    if (error != std::errc{} || end != counter.data() + counter.size()) return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  return record;
}

std::optional<LeaseRecord> newest_lease(const std::string& directory) {
  if (!folder_exists(directory)) return std::nullopt;
  const std::int64_t newest = newest_generation(directory);
  const std::optional<std::string> text = text_of(fmt::format("{}/{}", directory, lease_name(newest)));
  return text ? lease_from(*text) : std::nullopt;
}

// ---- a turn --------------------------------------------------------------------------------------------------------------------

struct Lease::Turn {
  // By the thread, until the turn ends.
  void renew();
  bool write_state(bool done);
  void note_lost();

  const LeaseOptions options;
  std::string path, next_path;  // of this turn's file and the next one's
  std::int64_t generation = 0, counter = 0;
  FileDescriptor file;
  off_t state_at = 0;  // where the part of the file begins that changes

  std::mutex mutex;
  std::condition_variable changed;
  bool renews = false;
  bool ends = false, releases = false;  // asked to end, and to say then that it is done
  bool is_over = false;                 // the thread is done
  bool lost = false;
  std::optional<LeaseHolder> new_holder;  // nobody: the file is gone, and there is no later turn
};

// In place, so that a full disk takes it, and flushed, so that other nodes see it. Allocates nothing.
bool Lease::Turn::write_state(bool done) {
  const StateText text = state_text(done, ++counter);
  const ssize_t written = uninterrupted([&] { return ::pwrite(file.get(), text.data(), text.size(), state_at); });
  return written == static_cast<ssize_t>(text.size()) &&
         (uninterrupted([&] { return ::fdatasync(file.get()); }) == 0 || errno == EINVAL);
}

void Lease::Turn::renew() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return renews || ends; });
  double renewed = monotonic_seconds();
  bool warned = false;
  while (!lost && !changed.wait_for(lock, std::chrono::duration<double>(options.renew_seconds), [this] { return ends; })) {
    lock.unlock();
    const bool written = write_state(false);
    const std::string why = written ? "" : std::strerror(errno);
    const double now = monotonic_seconds(), pause = now - renewed;
    const bool is_late = pause > options.renew_seconds + options.patience_seconds / 3;
    if (written) renewed = now;
    struct stat status {};
    if (::lstat(next_path.c_str(), &status) == 0 || (::lstat(path.c_str(), &status) != 0 && errno == ENOENT)) note_lost();
    lock.lock();
    if (is_late && !warned && !ends && options.warn) {  // under the lock: whoever ends the turn may take away what warns
      options.warn(fmt::format(
          "{}: was not renewed for {:.1f} s{}{}: the disk is slow, or this process was stopped; after {:.0f} s a run on "
          "another node may take the folder over",
          path, pause, written ? "" : ", ", why, options.patience_seconds));
    }
    warned = is_late;
  }
  const bool says_done = releases && !lost;
  lock.unlock();
  if (says_done) write_state(true);
  lock.lock();
  is_over = true;
  changed.notify_all();
}

void Lease::Turn::note_lost() {
  std::optional<LeaseRecord> newest;
  try {
    newest = newest_lease(fs::path(path).parent_path().string());
  } catch (const Error&) {
    newest.reset();  // it is lost all the same
  }
  const bool is_anothers = newest && newest->generation >= generation;
  const std::lock_guard lock(mutex);
  lost = true;
  if (is_anothers) new_holder = newest->holder;
}

// ---- taking it -----------------------------------------------------------------------------------------------------------------

Lease::Lease(std::string directory, std::string token, LeaseOptions options)
    : directory_(std::move(directory)), options_(std::move(options)), self_(this_process(std::move(token))) {
  TRIDENT_CHECK(!self_.token.empty(), "a lease needs a token");
  while (!try_to_take()) continue;
  take_writer_lock(turn_->file.get());  // in vain where there are none: then nobody asks for it, either
  turn_->renews = options_.renews;
  thread_ = std::thread([turn = turn_] { turn->renew(); });
}

bool Lease::renew() {
  try {
    check();
  } catch (const Error&) {
    return false;
  }
  const std::lock_guard lock(turn_->mutex);
  turn_->renews = true;
  turn_->changed.notify_all();
  return true;
}

// False: somebody else was faster.
bool Lease::try_to_take() {
  const std::int64_t newest = newest_generation(directory_);
  if (newest > 0) wait_for_end_of(newest);
  const std::int64_t generation = newest + 1;
  turn_ = std::make_shared<Turn>(options_);
  turn_->generation = generation;
  const std::string& path = turn_->path = fmt::format("{}/{}", directory_, lease_name(generation));
  turn_->next_path = fmt::format("{}/{}", directory_, lease_name(generation + 1));
  const std::string text = to_text({.holder = self_, .generation = generation});
  turn_->state_at = static_cast<off_t>(text.size() - kStateBytes);
  AtomicFile file(path);
  file.append(text);
  file.finish();
  if (!name_exclusively(file.temporary_path(), path)) return false;
  try {
    const std::vector<std::int64_t> there = generations_in(directory_);
    // Who was slow may have made a file whose turn was over and removed before.
    const bool is_newest = std::ranges::max(there) == generation;
    if (is_newest) {
      sync_folder_of(path);
      turn_->file = FileDescriptor(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
      if (!turn_->file)
        throw StorageError(fmt::format("{}: cannot be opened: {}; check the folder's permissions and the disk", path,
                                       std::strerror(errno)),
                           errno);
      for (const std::int64_t other : there) {
        const std::string name = fmt::format("{}/{}", directory_, lease_name(other));
        if (other != generation) ::unlink(name.c_str());  // in vain, maybe: it does no harm
        remove_temporaries(name);
      }
      return true;
    }
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  ::unlink(path.c_str());
  return false;
}

// Or until there is no such turn any more.
void Lease::wait_for_end_of(std::int64_t generation) const {
  const std::string path = fmt::format("{}/{}", directory_, lease_name(generation));
  std::optional<std::string> seen;
  bool is_said = false;
  const double start = monotonic_seconds();
  for (double since = 0;;) {
    const double now = monotonic_seconds();  // before it reads: a process that was stopped in between has seen what came meanwhile
    const std::optional<std::string> text = text_of(path);
    if (!text) return;
    const std::optional<LeaseRecord> record = lease_from(*text);
    const HolderState state = record ? state_of(record->holder, self_) : HolderState::kElsewhere;
    // Copies of one virtual machine share name and boot: what holds the lock lives, wherever it is.
    const bool is_dead = state == HolderState::kDead && !has_writer(path);
    if (is_dead || (record && (record->done || record->holder.token == self_.token))) return;
    const bool has_moved = seen && *seen != *text;
    const bool lives = record && (state == HolderState::kAlive || has_moved || (record->counter == 0 && has_writer(path)));
    if (lives && now - start >= options_.ending_seconds) {
      throw ConfigError(fmt::format(
          "checkpoint.dir = {}: another run saves there, {}; let it end, or stop it (kill -USR1 {} on {}), or name another folder",
          directory_, describe(record->holder), record->holder.pid, record->holder.host));
    }
    if (lives && now - start >= kSilent && options_.say && !std::exchange(is_said, true)) {
      options_.say(fmt::format("checkpoint.dir = {}: another run saves there, {}; waiting up to {:.0f} s for it to end", directory_,
                               describe(record->holder), options_.ending_seconds));
    }
    if (!lives && !seen && options_.say) {
      options_.say(fmt::format("checkpoint.dir = {}: {} had it; waiting up to {:.0f} s for a sign of life", directory_,
                               record ? describe(record->holder) : "somebody", options_.patience_seconds));
    }
    if (seen != text) {
      seen = text;
      since = now;
    }
    if (!lives && now - since >= options_.patience_seconds) return;
    const double pause = lives ? 0.02 : std::min(kLook, options_.patience_seconds / 10);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

// ---- having it -----------------------------------------------------------------------------------------------------------------

Lease::~Lease() {
  if (withdrawn_ || stop_renewing(true)) return;
  const std::lock_guard lock(turn_->mutex);
  if (!options_.warn) return;
  options_.warn(fmt::format(
      "{}: the disk did not take within {:.0f} s that this run is done: it hangs; what is saved is saved, and a start on another "
      "node waits {:.0f} s for this run",
      turn_->path, options_.release_seconds, options_.patience_seconds));
}

// Whether the thread is over; where the disk hangs it is left to itself.
bool Lease::stop_renewing(bool release) {
  std::unique_lock lock(turn_->mutex);
  turn_->ends = true;
  turn_->releases = release;
  turn_->changed.notify_all();
  const bool is_over =
      turn_->changed.wait_for(lock, std::chrono::duration<double>(options_.release_seconds), [this] { return turn_->is_over; });
  lock.unlock();
  if (is_over) thread_.join();
  else thread_.detach();
  return is_over;
}

void Lease::check() {
  const std::optional<std::string> text = text_of(turn_->path);
  const std::optional<LeaseRecord> mine = text ? lease_from(*text) : std::nullopt;
  if (!mine || mine->holder != self_ || is_there(turn_->next_path)) turn_->note_lost();
  refuse_if_lost();
}

void Lease::refuse_if_lost() const {
  const std::lock_guard lock(turn_->mutex);
  if (!turn_->lost) return;
  if (!turn_->new_holder)
    throw StorageError(fmt::format(
        "checkpoint.dir = {}: {}, which says that this run has the folder, was removed: this run ends, and what it has committed "
        "may be gone, too; start it again",
        directory_, lease_name(turn_->generation)));
  throw ConfigError(fmt::format(
      "checkpoint.dir = {}: {} has taken the folder over, because this run gave no sign of life or was taken for dead: this run "
      "ends, what it has committed stays; name another folder to run both",
      directory_, describe(*turn_->new_holder)));
}

void Lease::withdraw() {
  withdrawn_ = true;
  const bool is_first = turn_->generation == 1;  // nobody was here before, who could still believe to be
  stop_renewing(!is_first);
  if (is_first) ::unlink(turn_->path.c_str());
}

namespace {

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// "pid:[4026531836]": the inode tells namespaces of one kernel apart.
std::string own_pid_namespace() {
  char target[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/ns/pid", target, sizeof target);
  return size > 0 ? std::string(target, static_cast<std::size_t>(size)) : "";
}

}  // namespace

LeaseHolder this_process(std::string token) {
  LeaseHolder holder;
  holder.token = std::move(token);
  holder.host = host_name();
  holder.boot = first_line("/proc/sys/kernel/random/boot_id");
  holder.pid_namespace = own_pid_namespace();
  holder.pid = ::getpid();
  if (const auto status = process_status(holder.pid)) holder.started = status->started;
  return holder;
}

HolderState state_of(const LeaseHolder& holder, const LeaseHolder& watcher) {
  const bool known = !holder.boot.empty() && !holder.pid_namespace.empty() && holder.pid > 0 && holder.started > 0;
  // Two machines may have one name, and all kernels number their first process namespace alike: only the boot tells them apart.
  if (!known || holder.host != watcher.host || holder.boot != watcher.boot || holder.pid_namespace != watcher.pid_namespace)
    return HolderState::kElsewhere;
  if (const auto status = process_status(holder.pid)) {
    return status->has_ended() || status->started != holder.started ? HolderState::kDead : HolderState::kAlive;
  }
  // /proc may hide processes of others (hidepid); a signal that is none says whether there is one.
  const bool is_gone = ::kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH;
  return is_gone ? HolderState::kDead : HolderState::kElsewhere;
}

std::string describe(const LeaseHolder& holder) { return fmt::format("pid {} on {}", holder.pid, holder.host); }

}  // namespace trident
