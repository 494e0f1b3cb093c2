#include "supervise/supervisor.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_path.h"
#include "checkpoint/lease.h"
#include "core/clock.h"
#include "core/json_reader.h"
#include "core/random_token.h"
#include "train/launch/failure_file.h"
#include "supervise/supervised_process.h"
#include "train/run/resume.h"
#include "train/run/stored_model.h"
#include "train/run/stop_request.h"

namespace trident {
namespace {

constexpr double kLook = 1;           // seconds; ends of the command are noticed at once all the same
constexpr double kLeftSeconds = 15;   // for what a command left, or was asked twice: ranks end within 12 s of the first
constexpr double kFailedSeconds = 15;  // for a command whose run has failed, likewise
constexpr double kAliveSeconds = 10;  // a run that lives renews its lease every 3 s
constexpr double kStuckSeconds = 10;  // without a living child and without computing; launchers notice such ends in milliseconds
constexpr double kOften = 0.01;       // seconds, while waiting for those
constexpr double kHeldSeconds = 10;   // for a process to end that was killed; a disk that hangs holds it
constexpr double kHeldAgainSeconds = 60;  // until that is said again

struct NamedConfig {
  std::string file;
  std::vector<std::string> settings;
};

// --config FILE, --config=FILE, -c FILE and --set path=value behind the word "train": launchers have a -c of their own.
std::optional<NamedConfig> config_in(const std::vector<std::string>& command) {
  if (std::ranges::find(command, "--import") != command.end()) return std::nullopt;  // its files are not read here
  auto word = std::ranges::find(command, "train");
  NamedConfig found;
  while (word != command.end() && ++word != command.end()) {
    const std::string_view text = *word;
    for (const std::string_view flag : {"--config", "-c", "--set"}) {
      std::optional<std::string> value;
      if (text == flag && word + 1 != command.end())
        value = *++word;
      else if (text.starts_with(std::string(flag) + '='))
        value = std::string(text.substr(flag.size() + 1));
      if (!value) continue;
      if (flag == "--set")
        found.settings.push_back(*value);
      else
        found.file = *value;
      break;
    }
  }
  return found.file.empty() ? std::nullopt : std::optional(found);
}

// Where a command's run leaves what a supervisor looks at.
struct SupervisedRun {
  std::string checkpoints;
  std::string run_dir;                      // "": unknown, so that failure.json is looked for beside the checkpoints
  std::vector<ElasticLayout> layouts = {};  // with --nodes-from: the configuration's own first, then those of elastic
  bool saves_on_the_way = true;             // not where checkpoint.every is "end"
};

SupervisedRun supervised_run(const SuperviseOptions& options) {
  const std::optional<NamedConfig> named = config_in(options.command);
  if (!named && !options.nodes.hostfile.empty())
    throw ConfigError(
        "trident supervise: --nodes-from: the command names no \"train --config FILE\", whose layouts must be known; name it");
  if (!named) {
    if (!options.checkpoints.empty()) return {options.checkpoints, ""};
    throw ConfigError(
        "trident supervise: the command names no \"train --config FILE\", or an --import beside it; say with --checkpoints DIR "
        "where its checkpoints are committed");
  }
  OptionValues values;
  const std::vector<std::string> settings = with_stored_model(named->file, named->settings);
  const TrainConfig config = load_train_config(named->file, settings, values);
  if (!saves_checkpoints(config))
    throw ConfigError(
        "checkpoint.every = 0: nothing is saved, so every restart would begin again; set checkpoint.every to a number of steps");
  if (config.checkpoint.content == CheckpointContent::kWeights)
    throw ConfigError(
        "checkpoint.content = \"weights\": no run goes on from weights alone, so every restart would begin again; set it to "
        "\"all\"");
  if (config.checkpoint.resume.kind != ResumeFrom::Kind::kNewest)
    throw ConfigError(fmt::format(
        "checkpoint.resume = {}: every restart would go back there and lose what came after; under trident supervise it must be "
        "\"auto\"",
        in_quotes(to_string(config.checkpoint.resume))));
  std::vector<ElasticLayout> layouts = elastic_layouts(named->file, settings, config);
  if (options.nodes.hostfile.empty())
    layouts.clear();
  else
    layouts.insert(layouts.begin(), own_layout(config));
  const std::string folder = options.checkpoints.empty() ? checkpoint_folder_of(config) : options.checkpoints;
  return {folder, config.run.dir, std::move(layouts), config.checkpoint.every.on_the_way().ever()};
}

// Which checkpoints were ever seen. A run that went back behind some commits steps anew, and that is progress too.
class CommittedSteps {
 public:
  explicit CommittedSteps(const std::string& folder) : folder_(folder) { look(); }

  // Whether there are some that were never seen.
  bool look() {
    bool progress = false;
    std::int64_t newest = -1;
    for (const CheckpointEntry& entry : list_checkpoints(checkpoint_path(folder_))) {
      if (!entry.parts.mark.empty() || entry.health != CheckpointHealth::kValid) continue;
      newest = std::max(newest, entry.parts.step);
      progress |= seen_.emplace(entry.parts.step, entry.generation, entry.written_unix).second;
    }
    newest_ = newest;
    return progress;
  }
  std::int64_t newest() const { return newest_; }  // step, of the last look; -1: there is none

 private:
  const std::string folder_;
  std::set<std::tuple<std::int64_t, std::string, std::int64_t>> seen_;
  std::int64_t newest_ = -1;
};

// Where failure.json may be. A script's run.dir is not known, but the folder that was named for its checkpoints is run.dir or,
// by default, in it; a failure of another run there has another start's name.
std::vector<std::string> failure_folders(const SupervisedRun& run) {
  if (!run.run_dir.empty()) return {run.run_dir};
  std::filesystem::path folder(run.checkpoints);
  if (folder.filename().empty()) folder = folder.parent_path();
  return {run.checkpoints, (folder.has_parent_path() ? folder.parent_path() : ".").string()};
}

std::string in_words(const RunFailure& cause) {
  return fmt::format("rank {} on {} {} in step {}", cause.rank, cause.host, cause.cause, cause.step);
}

// Whether a start should have ended long ago: its run failed with 76, which ends all ranks that can be reached. A launcher may live
// on: Open MPI's mpirun waits for ever for the daemon of a node that is cut off, and for a stranger who holds its port by a byte.
class EndOfStart {
 public:
  // Names the start that comes next.
  explicit EndOfStart(const SupervisedRun& run) : run_(run), folders_(failure_folders(run)), start_(random_token()) {
    for (const char* const name : kStartVariables) ::setenv(name, start_.c_str(), 1);
  }

  // The failure that this start left, if any.
  std::optional<RunFailure> cause() const { return failure_from(seen_); }

  // Looks again, and says whether the command has had its time since.
  bool is_overdue() {
    const double now = monotonic_seconds();
    if (look()) failed_at_ = now;
    const std::optional<RunFailure> failure = cause();
    if (!failure || failure->exit_code != exit_status(ExitCode::kCommunication)) return false;
    // A script may go on by itself after a run of its own failed.
    if (const auto sign = sign_of_life(); sign != sign_) {
      sign_ = sign;
      alive_at_ = now;
    }
    return now - failed_at_ >= kFailedSeconds && now - alive_at_ >= kAliveSeconds;
  }
  // Whether there is something new of this start.
  bool look() {
    const std::string before = seen_;
    for (const std::string& folder : folders_) {
      const std::string text = failure_text(folder);
      if (const auto failure = failure_from(text); failure && failure->start == start_) seen_ = text;
    }
    return seen_ != before;
  }

 private:
  std::optional<std::pair<std::int64_t, std::int64_t>> sign_of_life() const {
    try {
      const std::optional<LeaseRecord> lease = newest_lease(checkpoint_path(run_.checkpoints));
      return lease ? std::optional(std::pair(lease->generation, lease->counter)) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  const SupervisedRun& run_;
  const std::vector<std::string> folders_;
  const std::string start_;
  std::string seen_;  // the text of its failure.json
  double failed_at_ = 0, alive_at_ = 0;
  std::optional<std::pair<std::int64_t, std::int64_t>> sign_;
};

class Supervisor {
 public:
  Supervisor(const SuperviseOptions& options, LogSink& log)
      : options_(options), run_(supervised_run(options)), logger_(log), committed_(run_.checkpoints) {
    if (!options.nodes.hostfile.empty()) nodes_.emplace(options.nodes, options.command, run_.layouts, run_.run_dir);
  }

  int run() {
    SupervisionRules rules = options_.rules;
    rules.saves_on_the_way = run_.saves_on_the_way;
    if (!rules.saves_on_the_way)
      logger_.warning(
          "trident supervise: checkpoint.every is \"end\": after a crash or a lost node there is nothing to go on from, and the "
          "command is not started again; set it to a number of steps");
    for (;;) {
      std::vector<std::string> command = options_.command;
      if (nodes_) {
        const SupervisedNodes::Start found = nodes_->next(signals_, logger_);
        if (found.stop_signal) return stopped_between(*found.stop_signal);
        if (found.command.empty()) return exit_status(ExitCode::kCommunication);
        command = found.command;
      }
      EndOfStart watched(run_);
      const double start = monotonic_seconds();
      CommandEnd end;
      end.code = run_once(command, watched);
      end.asked_to_stop = stop_signals_ > 0;
      end.made_progress = look_for_progress();
      const NextMove next = what_follows(rules, history_, end);
      watched.look();
      const std::optional<RunFailure> cause = watched.cause();
      tell(end, next, monotonic_seconds() - start, cause);
      if (!next.restart) return next.exit_code;
      // A disk that failed (74) is no fault of the host that was first to say so.
      if (nodes_ && cause && cause->exit_code == exit_status(ExitCode::kCommunication)) nodes_->failed(cause->host);
      history_ = next.history;
      if (const std::optional<int> signal = wait_for_signal(signals_, next.wait_seconds)) return stopped_between(*signal);
    }
  }

 private:
  // Until the command has ended, and all that it started.
  int run_once(const std::vector<std::string>& command, EndOfStart& watched) {
    SupervisedProcess process(command, signals_);
    std::optional<int> code;
    bool overdue = false;
    double left_since = 0, asked_at = 0;
    std::optional<double> killed_at;  // the command and what it left, first
    double said_next = kHeldSeconds;  // after so many seconds it is said that they live on
    const auto kill_all = [&] {
      process.kill_all();
      if (!killed_at) killed_at = monotonic_seconds();
    };
    for (;;) {
      if (!code) {
        code = process.exit_code();
        left_since = monotonic_seconds();
      }
      if (code && !process.has_left_some()) return overdue ? exit_status(ExitCode::kCommunication) : *code;
      if (!code && is_stuck(process)) kill_all();
      if (!code && !overdue && watched.is_overdue()) {
        overdue = true;
        say_overdue(*watched.cause());
        kill_all();
      }
      if (code && (overdue || stop_signals_ > 1 || monotonic_seconds() - left_since > kLeftSeconds)) kill_all();
      if (stop_signals_ > 1 && monotonic_seconds() - asked_at > kLeftSeconds) kill_all();
      if (const double seconds = killed_at ? monotonic_seconds() - *killed_at : 0; seconds >= said_next) {
        said_next = seconds + kHeldAgainSeconds;
        say_held(process, seconds);
      }
      const std::optional<int> signal = signals_.wait(code ? kOften : kLook);
      if (!signal || *signal == SIGCHLD) continue;
      if (*signal == SIGHUP && stop_signals_ > 0) continue;
      asked_at = monotonic_seconds();
      if (++stop_signals_ == 1)
        logger_.info("trident supervise: {}: passed on as SIGUSR1, then this ends; a second signal ends it without saving",
                     signal_name(*signal));
      if (stop_signals_ > 2)
        kill_all();
      else
        process.send(SIGUSR1);
    }
  }

  // Nobody ends a process that the system holds, and a start beside it might write where it does.
  void say_held(const SupervisedProcess& process, double seconds) const {
    logger_.warning(
        "trident supervise: {:.0f} s after they were killed, processes that {} started have not ended: pid {}; what follows waits "
        "for that; see what holds them (ps -o pid,state,wchan: D is a disk that hangs), or kill -9 {}, which ends this without it",
        seconds, in_quotes(options_.command[0]), fmt::join(process.processes(), ", "), ::getpid());
  }

  void say_overdue(const RunFailure& cause) const {
    logger_.warning(
        "trident supervise: {} has not ended {} s after its run failed ({}): it is killed with all that it started; the next line "
        "says what follows",
        in_quotes(options_.command[0]), kFailedSeconds, cause.message.empty() ? in_words(cause) : cause.message);
  }

  // Open MPI's mpirun 4.1.4 now and then waits for ever when a rank is killed while it starts: for ranks that are all dead.
  bool is_stuck(const SupervisedProcess& process) {
    const std::optional<std::int64_t> ticks = process.ticks_beside_the_dead();
    if (!ticks || ticks != stuck_ticks_) {
      stuck_ticks_ = ticks;
      stuck_since_ = monotonic_seconds();
    }
    if (!ticks || monotonic_seconds() - stuck_since_ < kStuckSeconds) return false;
    logger_.warning(
        "trident supervise: all that {} started is dead, and it has stood still for {} s: it is killed; the next line says what "
        "follows",
        in_quotes(options_.command[0]), kStuckSeconds);
    stuck_ticks_.reset();
    return true;
  }

  bool look_for_progress() {
    try {
      return committed_.look();
    } catch (const Error& error) {
      logger_.warning("trident supervise: {}; this start counts as one without a new step", error.what());
      return false;
    }
  }

  void tell(const CommandEnd& end, const NextMove& next, double seconds, const std::optional<RunFailure>& cause) const {
    std::string line = fmt::format("trident supervise: {} ended after {:.1f} s with {}", in_quotes(options_.command[0]), seconds,
                                   describe_exit(end.code));
    if (cause) line += "; " + in_words(*cause);
    if (committed_.newest() < 0)
      line += "; no checkpoint yet";
    else
      line += fmt::format("; newest checkpoint: step {}{}", committed_.newest(), end.made_progress ? "" : ", as before");
    if (!next.restart)
      line += fmt::format("; {}; exit code {}", next.why, next.exit_code);
    else if (next.wait_seconds == 0)
      line += fmt::format("; restart {} now", next.history.restarts);
    else
      line += fmt::format("; restart {} in {:.0f} s", next.history.restarts, next.wait_seconds);
    if (next.restart || next.exit_code == 0)
      logger_.info("{}", line);
    else
      logger_.error("{}", line);
  }

  // Nothing runs, so what is in the checkpoints is all there is.
  int stopped_between(int signal) const {
    const std::int64_t newest = committed_.newest();
    const int code = newest >= 0 ? exit_status(ExitCode::kRequeue) : exit_code_of_signal(signal);
    logger_.info("trident supervise: {} before the next start: it is left out; {}; exit code {}", signal_name(signal),
                 newest >= 0 ? fmt::format("the same command goes on from step {}", newest) : "nothing was saved", code);
    return code;
  }

  const SuperviseOptions& options_;
  const SupervisedRun run_;
  const Logger logger_;
  const HeldSignals signals_;
  CommittedSteps committed_;
  std::optional<SupervisedNodes> nodes_;  // with --nodes-from
  SupervisionHistory history_;
  int stop_signals_ = 0;
  std::optional<std::int64_t> stuck_ticks_;  // of a command whose children are all dead
  double stuck_since_ = 0;
};

}  // namespace

int supervise(const SuperviseOptions& options, LogSink& log) {
  // Each start takes the folder of checkpoints over from the one before it, which has ended, without waiting for a sign of life.
  const std::string token = random_token();
  for (const char* const name : kLeaseTokenVariables) ::setenv(name, token.c_str(), 1);
  return Supervisor(options, log).run();
}

}  // namespace trident
