#include "train/run/earlier_run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/lease.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "train/config/stored_config.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigFile = "config.resolved.json", kMetrics = "metrics.jsonl", kTrace = "trace";
constexpr std::string_view kFiles[] = {kConfigFile,       "plan.json",   "memory.json",   kMetrics,
                                       "timing.jsonl",    "eval.jsonl",  "samples.jsonl", "run.log",
                                       "failure.json",    "comparison.json", "report.html", "run.json",
                                       "last_step.json",  "reference.f32", "reference_valid.f32", kTrace};
constexpr std::string_view kLogs[] = {kMetrics, "timing.jsonl", "eval.jsonl", "samples.jsonl", "run.log"};
constexpr std::string_view kEvents = "events.out.tfevents.";
constexpr std::string_view kNewFailure = "failure.json.new", kHostfile = "hostfile";  // of train/launch

bool is_run_file(std::string_view name) { return name.starts_with(kEvents) || std::ranges::find(kFiles, name) != std::end(kFiles); }

std::string kind_of(const fs::file_status& status) {
  switch (status.type()) {
    case fs::file_type::regular: return "a file";
    case fs::file_type::directory: return "a folder";
    case fs::file_type::symlink: return "a symbolic link";
    case fs::file_type::fifo: return "a named pipe";
    case fs::file_type::socket: return "a socket";
    default: return "a device";
  }
}

[[noreturn]] void refuse_unreadable(const std::string& folder, const std::error_code& error) {
  throw StorageError(fmt::format("run.dir = {}: cannot be read: {}; choose a folder that may be read, on a disk that answers", folder,
                                 error.message()),
                     error.value());
}

// Opening a pipe may wait for ever, and a link leads to what is not this run's.
void check_kinds(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(fs::path(folder) / name, error);
    const bool fits = status.type() == (name == kTrace ? fs::file_type::directory : fs::file_type::regular);
    if (fits || status.type() == fs::file_type::not_found) continue;
    if (status.type() == fs::file_type::none) refuse_unreadable(folder, error);
    throw StorageError(fmt::format("run.dir = {}: {} is {}, where a run has {}; remove it or choose another run.dir", folder, name,
                                   kind_of(status), name == kTrace ? "a folder" : "a file"));
  }
}

// Without what a run may change while it goes on, and defaults between versions: how long it is, its layout, how it fits into
// memory, what it saves, shows, logs, checks and predicts.
JsonValue comparable(TrainConfig config) {
  RunConfig run;
  run.seed = config.run.seed;
  config.run = run;
  config.log = {};
  config.eval = {};
  config.checkpoint = {};
  config.parallel = {};
  config.elastic = {};
  config.recompute = {};
  config.batch.micro = {};
  config.cuda = {};
  config.debug = {};
  config.data.mean_document.reset();
  return to_json(config);
}

// The key that tells the run of `folder` from this one; nothing if its configuration is the same.
std::optional<std::string> other_run(const std::string& folder, const TrainConfig& config) {
  const std::string path = fmt::format("{}/{}", folder, kConfigFile);
  if (!file_exists(path)) return fmt::format("without {}", kConfigFile);
  TrainConfig earlier;
  try {
    earlier = read_stored(read_json_file(path), path).config;
  } catch (const NotPermitted&) {
    return fmt::format("with a {} that this user may not read", kConfigFile);
  } catch (const Error&) {
    return fmt::format("with a {} that this version cannot read", kConfigFile);
  }
  const auto difference = first_difference(comparable(earlier), comparable(config));
  if (!difference) return std::nullopt;
  return fmt::format("whose {} is {}, not {}", difference->path, difference->a, difference->b);
}

std::string next_folder(const std::string& folder) {
  std::error_code error;
  for (int n = 1;; ++n) {
    std::string candidate = fmt::format("{}/earlier-{}", folder, n);
    if (!fs::exists(fs::symlink_status(candidate, error))) return candidate;
  }
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 2;
  std::string text = names[0];
  for (std::size_t i = 1; i < std::min(kShown, names.size()); ++i) text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

void refuse_another_run(const TrainConfig& config, const std::vector<std::string>& names) {
  const std::string& folder = config.run.dir;
  if (config.run.overwrite) return;
  const std::optional<std::string> other = other_run(folder, config);
  if (!other) return;
  throw ConfigError(fmt::format(
      "run.dir = {}: it has {} of another run, {}; choose another run.dir, or --set run.overwrite=true, which moves them to {}",
      folder, some_of(names), *other, next_folder(folder)));
}

}  // namespace

std::vector<std::string> run_files_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (std::string name = entry->path().filename().string(); is_run_file(name)) names.push_back(std::move(name));
  }
  // Where nothing is yet there are no files; a name below a file is refused where folders are made.
  const bool nothing_there = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !nothing_there) refuse_unreadable(folder, error);
  std::ranges::sort(names);
  return names;
}

void remove_run_leftovers(const std::string& folder) {
  remove_unlocked(folder, [](std::string_view name) {
    const std::optional<std::string_view> of = name_of_temporary(name);
    return name == kNewFailure || (of && (is_run_file(*of) || *of == kHostfile));
  });
  remove_unlocked(fmt::format("{}/{}", folder, kTrace), [](std::string_view name) { return name_of_temporary(name).has_value(); });
}

namespace {

// failure.json alone is of a start that failed before it had files of its own.
bool are_of_no_run(const std::vector<std::string>& names) { return names.empty() || (names.size() == 1 && names.front() == "failure.json"); }

constexpr double kDyingSeconds = 2;

}  // namespace

void check_earlier_run(const TrainConfig& config) {
  const std::vector<std::string> names = run_files_in(config.run.dir);
  if (are_of_no_run(names)) return;
  check_kinds(config.run.dir, names);
  refuse_another_run(config, names);
}

void refuse_if_written(const std::string& folder, const std::string& checkpoints, double lost_seconds) {
  const std::string metrics = fmt::format("{}/{}", folder, kMetrics);
  if (!file_exists(metrics)) return;
  // A process that was killed has its files until it is gone, and whoever killed it may start the next one before. Under a
  // supervisor it may be on another node, where its lifeline ends it.
  const std::optional<std::string> token = lease_token_given();
  const double patience = token ? lost_seconds : kDyingSeconds;
  for (const double start = monotonic_seconds(); AppendFile::is_held(metrics);) {
    if (monotonic_seconds() - start < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    const std::optional<LeaseRecord> lease = checkpoints.empty() ? std::nullopt : newest_lease(checkpoints);
    if (!token || !lease || lease->holder.token != *token)
      throw ConfigError(
          fmt::format("run.dir = {}: another run is writing {}; give each run a folder of its own", folder, kMetrics));
    for (const std::string_view name : kLogs) AppendFile::take_over(fmt::format("{}/{}", folder, name));
  }
  AppendFile(metrics, AppendFile::Start::kAppend);  // whatever else keeps a run from writing there
}

std::string set_earlier_run_aside(const TrainConfig& config) {
  const std::string& folder = config.run.dir;
  std::vector<std::string> names = run_files_in(folder);
  if (are_of_no_run(names)) return "";
  check_kinds(folder, names);
  std::optional<AppendFile> lock;  // refuses the files of a run that goes on
  if (const std::string metrics = fmt::format("{}/{}", folder, kMetrics); file_exists(metrics))
    lock.emplace(metrics, AppendFile::Start::kAppend);
  names = run_files_in(folder);
  check_kinds(folder, names);
  refuse_another_run(config, names);  // it may have begun, and ended, since the first look
  const std::string aside = next_folder(folder);
  std::error_code error, ignored;
  if (!fs::create_directory(aside, error) && !error) error = std::make_error_code(std::errc::file_exists);
  std::vector<std::string> moved;
  // Last of all the file that says whose the others are: who is killed in between is asked nothing when the run starts again.
  std::ranges::stable_partition(names, [](const std::string& name) { return name != kConfigFile; });
  for (const std::string& name : names) {
    if (error) break;
    fs::rename(folder + "/" + name, aside + "/" + name, error);
    if (!error) moved.push_back(name);
  }
  if (!error) return aside;
  for (const std::string& name : moved) fs::rename(aside + "/" + name, folder + "/" + name, ignored);
  fs::remove(aside, ignored);
  throw StorageError(fmt::format("run.dir = {}: the files of an earlier run cannot be moved to {}: {}; choose another run.dir",
                                 folder, aside, error.message()),
                     error.value());
}

}  // namespace trident
