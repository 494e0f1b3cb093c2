#include "supervise/supervision.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>

#include "core/check.h"
#include "core/counted.h"
#include "train/run/stop_request.h"

namespace trident {
namespace {

constexpr double kLongestWait = 60;
constexpr int kMpirunFailed = 1;      // Open MPI: told to end, or ranks that ended without MPI_Finalize
constexpr int kMpichKilled = SIGKILL;  // MPICH: the signal of a rank, without 128
constexpr int kMpirunLostNode = 205;  // Open MPI: a node's daemon is gone

bool is_death_by_signal(int code) { return code > 128 && code <= 128 + SIGRTMAX; }

std::string meaning_of(int code) {
  switch (code) {
    case exit_status(ExitCode::kOk): return "done";
    case exit_status(ExitCode::kConfig): return "the configuration or the command line";
    case exit_status(ExitCode::kData): return "data or checkpoint files";
    case exit_status(ExitCode::kInternal): return "a bug in trident";
    case exit_status(ExitCode::kStorage): return "the file system refused";
    case exit_status(ExitCode::kRequeue): return "all is saved, to be started again";
    case exit_status(ExitCode::kCommunication): return "a rank is gone, late or out of step";
    case exit_status(ExitCode::kNoProgress): return "no progress";
    case kMpirunFailed: return "the launcher failed";
    case kMpichKilled: return "the launcher saw a rank killed by SIGKILL";
    case kMpirunLostNode: return "the launcher lost a node";
    default: break;
  }
  return is_death_by_signal(code) ? "killed by " + signal_name(code - 128) : "not a code that trident or a launcher ends with";
}

// Whether another start may end otherwise: 74, 75, 76, a death by signal (of the command, or as a launcher reports that of a rank),
// and what launchers end with when they were disturbed themselves (1, 9, 205).
bool may_be_restarted(int code) {
  switch (code) {
    case exit_status(ExitCode::kStorage):
    case exit_status(ExitCode::kRequeue):
    case exit_status(ExitCode::kCommunication):
    case kMpirunFailed:
    case kMpichKilled:
    case kMpirunLostNode: return true;
    default: return is_death_by_signal(code);
  }
}

}  // namespace

std::string describe_exit(int code) { return fmt::format("{}: {}", code, meaning_of(code)); }

double back_off_seconds(int idle_starts) {
  double seconds = idle_starts > 0 ? 1 : 0;
  for (int i = 1; i < idle_starts && seconds < kLongestWait; ++i) seconds *= 2;
  return std::min(seconds, kLongestWait);
}

NextMove what_follows(const SupervisionRules& rules, const SupervisionHistory& history, const CommandEnd& end) {
  NextMove next;
  next.history = history;
  next.history.idle_starts = end.made_progress ? 0 : history.idle_starts + 1;
  next.exit_code = end.code;
  if (end.code == 0) {
    next.why = "the command is done";
  } else if (end.asked_to_stop) {
    next.why = "it was asked to stop";
  } else if (!may_be_restarted(end.code)) {
    next.why = "another start would end the same way";
  } else if (!rules.saves_on_the_way && end.code != exit_status(ExitCode::kRequeue)) {
    next.why =
        "checkpoint.every is \"end\", so nothing of this start is saved and another would begin again; set it to a number of "
        "steps";
  } else if (next.history.idle_starts >= rules.max_idle_starts) {
    next.exit_code = exit_status(ExitCode::kNoProgress);
    next.why = fmt::format(
        "{} in a row committed no new step; remove the cause that the lines above name, or set checkpoint.every to fewer "
        "steps",
        counted(next.history.idle_starts, "start"));
  } else if (rules.max_restarts && history.restarts >= *rules.max_restarts) {
    next.why = fmt::format("--max-restarts {} is used up", *rules.max_restarts);
  } else {
    next.restart = true;
    ++next.history.restarts;
    // A start that saved in order has no fault that time would heal.
    if (end.code != exit_status(ExitCode::kRequeue)) next.wait_seconds = back_off_seconds(next.history.idle_starts);
  }
  return next;
}

}  // namespace trident
