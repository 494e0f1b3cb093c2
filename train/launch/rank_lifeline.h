// What every job of several processes does alike, whatever its ranks compute: to join, to say what it waits for while it starts,
// and to notice deaths from then on (parallel/health/lifeline.h).
#pragma once

#include <memory>

#include "core/logging.h"
#include "parallel/communicator/launcher.h"
#include "parallel/health/lifeline.h"
#include "parallel/mpi/process_world.h"
#include "train/launch/start_watch.h"

namespace trident {

// A rank that noticed a failure waits as long for the line that says whose it was.
inline constexpr double kVerdictSeconds = 3;

// Joins the job. ConfigError where the MPI library sees another number of ranks than the launcher started.
std::unique_ptr<ProcessWorld> join_job(const Launcher& launcher);

// Rank 0 speaks, by `logger`, which outlives the watch; every rank ends its process with 76 when its time is up.
StartWatchOptions start_watch_options(const Logger& logger);

// Of the rank of `world`: the verdict is printed by `logger`, and wakes the rank by world.fail(). Both outlive the lifeline.
LifelineOptions lifeline_options(ProcessWorld& world, const Logger& logger);

// Collective, as Lifeline::connect(). The contacts go to the other ranks through `world`.
void connect_lifeline(Lifeline& lifeline, ProcessWorld& world);

}  // namespace trident
