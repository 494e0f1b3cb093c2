// What every job of several processes does alike, whatever its ranks compute: to join, to say what it waits for while it starts,
// and to notice deaths from then on (parallel/health/lifeline.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/function_ref.h"
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

// What a rank does before its lifeline watches. What all ranks throw alike (AgreedError) is said by rank 0 before anybody ends,
// because launchers kill the rest as soon as one has: throws ReportedElsewhere.
void agree_in_job(ProcessWorld& world, FunctionRef<void()> prepare, FunctionRef<void(const std::string& line)> say);

// What a rank is ended with by a verdict, whose line is printed. Throws.
using EndWith = FunctionRef<void(const LifelineVerdict& verdict)>;

// What a rank does from connect_lifeline() to part_from_job(), both within `work`: where a peer failed it ends with the verdict on
// it, which may take kVerdictSeconds to come; what else it throws goes through report(), which tells the others and may throw in
// its place.
void work_under_lifeline(Lifeline& lifeline, FunctionRef<void()> work,
                         FunctionRef<void(std::string_view error, ExitCode code)> report, EndWith end_with);

// The rank's work is done: says goodbye, so that a rank which is held from here on is ended with `code`, and leaves the job. A
// failure of others ends it; what else goes wrong is a warning.
void part_from_job(Lifeline& lifeline, ProcessWorld& world, const Logger& logger, int code, EndWith end_with);

}  // namespace trident
