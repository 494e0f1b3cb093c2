// `trident eval`: a checkpoint's loss on texts, and its answers to multiple-choice questions.
#pragma once

#include <functional>
#include <optional>

#include "core/logging.h"
#include "core/on_progress.h"
#include "infer/eval/eval_report.h"
#include "parallel/cuda/cuda_backend.h"

namespace trident {

// On the ranks that the options and this process's launcher say; only rank 0 has a report. `read`: what is asked for; called once
// in each process, and what it throws is said once. The numbers are sums over single tokens in the texts' order: the same bits in
// every layout with the same tensor ranks, micro-batch and sequence. ConfigError for options that cannot be, DataError for files:
// token files, questions, a checkpoint. `progress`: of windows, on rank 0.
std::optional<EvalReport> run_eval(const std::function<EvalOptions()>& read, LogSink& log, CudaBackend& cuda,
                                   const OnProgress& progress = {});

}  // namespace trident
