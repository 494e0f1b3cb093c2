#include "train/launch/rank_lifeline.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "core/host_name.h"
#include "parallel/communicator/peer_failure.h"
#include "parallel/health/lifeline_dial.h"
#include "parallel/mpi/network_facts.h"
#include "train/run/run_together.h"

namespace trident {
namespace {

constexpr int kManyRanks = 64;  // of more, rank 0 hears less often

const char* variable(const char* name) { return std::getenv(name); }

}  // namespace

std::unique_ptr<ProcessWorld> join_job(const Launcher& launcher) {
  std::unique_ptr<ProcessWorld> world = join_process_world();
  if (world->size() == launcher.processes) return world;
  throw ConfigError(
      fmt::format("{} started {}, but the MPI library that trident was built with sees {}; start it with that library's mpirun",
                  launcher.description, counted(launcher.processes, "process", "processes"), world->size()));
}

StartWatchOptions start_watch_options(const Logger& logger) {
  StartWatchOptions options;
  options.speaks = placement_of(variable).is_rank_0;
  options.warn = [&logger](const std::string& line) { logger.warning("{}", line); };
  options.end = [&logger](const std::string& line) {
    logger.error("{}", line);
    ::_exit(exit_status(ExitCode::kCommunication));  // a thread that stands in MPI throws nothing
  };
  return options;
}

LifelineOptions lifeline_options(ProcessWorld& world, const Logger& logger) {
  const std::vector<int>& nodes = world.nodes();
  LifelineOptions options;
  options.rank = world.rank();
  options.size = world.size();
  options.deputy = lifeline_deputy(nodes);
  options.heartbeat_seconds = world.size() <= kManyRanks ? 0.25 : 1;
  options.host = host_name();
  options.connect_seconds = lifeline_connect_seconds(world.size());
  options.reach = *std::ranges::max_element(nodes) == 0 ? LifelineReach::kNode : LifelineReach::kNetwork;
  options.interfaces = interfaces_for_mpi(variable, user_file_of_open_mpi(variable));
  options.calls = &world.calls();
  options.print = [&logger](const LifelineVerdict& verdict) {
    if (verdict.is_failure && verdict.exit_code != 0) logger.error("{}", verdict.line);
    else logger.warning("{}", verdict.line);
  };
  options.on_failure = [&world](const LifelineVerdict& verdict) { world.fail(verdict.line); };
  return options;
}

void connect_lifeline(Lifeline& lifeline, ProcessWorld& world) {
  const std::string contact = lifeline.contact(), hub = world.broadcast(contact, 0);
  const int deputy = lifeline_deputy(world.nodes());
  lifeline.connect({hub, deputy < world.size() ? world.broadcast(contact, deputy) : ""});
}

void agree_in_job(ProcessWorld& world, FunctionRef<void()> prepare, FunctionRef<void(const std::string& line)> say) {
  try {
    prepare();
  } catch (const AgreedError& error) {
    say(error.what());
    world.finish();
    throw ReportedElsewhere(error.code(), error.what());
  } catch (const ReportedElsewhere&) {
    world.finish();
    throw;
  }
}

void work_under_lifeline(Lifeline& lifeline, FunctionRef<void()> work,
                         FunctionRef<void(std::string_view error, ExitCode code)> report, EndWith end_with) {
  try {
    work();
  } catch (const ReportedElsewhere&) {
    throw;
  } catch (const PeerFailure&) {
    const auto verdict = lifeline.wait_for_verdict(kVerdictSeconds);
    if (verdict) end_with(*verdict);
    throw;
  } catch (const Error& error) {
    report(error.what(), error.code());
    throw;
  } catch (const std::exception& error) {
    report(error.what(), ExitCode::kInternal);
    throw;
  }
}

void part_from_job(Lifeline& lifeline, ProcessWorld& world, const Logger& logger, int code, EndWith end_with) {
  lifeline.goodbye(code);
  try {
    world.finish();
  } catch (const Error& error) {
    const auto verdict = lifeline.wait_for_verdict(kVerdictSeconds);
    if (verdict && verdict->is_failure) end_with(*verdict);
    if (!verdict)
      logger.warning("rank {} finished but did not leave the job in order: {}; nothing is lost", world.rank(), error.what());
  }
}

}  // namespace trident
