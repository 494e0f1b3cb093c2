// A study on what its specification names, or on this machine, where its points can be executed.
#pragma once

#include "core/on_progress.h"
#include "parallel/cuda/cuda_backend.h"
#include "planner/study/study_result.h"

namespace trident {

// The longest that a point may be expected to take to be executed.
inline constexpr double kLongestPointSeconds = 60;

// On spec.cluster, of GPUs or of processors as plan cluster takes them; without one, or where points are executed and it names
// GPUs, on this machine's processors. `executes`: each point that fits trains a few steps on random tokens, its ranks as threads
// of this process, in a folder for temporary files that is removed; rates that are of another machine are said among what is held.
// Throws ConfigError: a cluster that is not there, shipped rates where none are named and this is another machine, numbers of GPUs
// where there is neither a cluster nor execution, device = cuda on processors. `progress`: of points.
StudyResult run_study_here(const StudySpec& spec, bool executes, CudaBackend& cuda, const OnProgress& progress = {});

}  // namespace trident
