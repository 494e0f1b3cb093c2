// `trident plan --cluster cpu`: a configuration whose ranks are threads of a machine that was calibrated, this one or another.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parallel/cuda/cuda_backend.h"
#include "plan/cpu_rates.h"
#include "train/forecast/cpu_forecast.h"
#include "train/launch/cluster_question.h"
#include "train/launch/plan_report.h"

namespace trident {

// "cpu", the profile that comes with the program, or the path of a file that trident bench --calibrate wrote; nothing where the
// name means something else. Throws ConfigError: a bad file.
std::optional<CpuRates> find_processors(std::string_view name_or_path);

struct ProcessorsAnswer {
  PlannedRun planned;
  CpuRates rates;
  CpuForecast forecast;
};

// Writes the trace that is asked for. ConfigError: what only clusters of cards have (a page, a table), a table that the profile
// lacks.
ProcessorsAnswer plan_on_processors(const TrainConfig& config, const CpuRates& rates, const ClusterQuestion& question,
                                    CudaBackend& cuda);

// Goes on where that of a plan without a cluster ends.
std::string to_text(const ProcessorsAnswer& answer, PlanDetail detail);
// As that of a plan without a cluster, with "cluster": {"name", "processor", "cores", "ranks", "threads_per_rank", "step":
// {"seconds", "cpu_seconds" of all ranks, "shares_cores", "parts": {...} of the busiest rank with cores of its own,
// "bubble_over_ideal"}, "tokens_per_second", "arena_bytes", "resident_bytes"}; bytes are those of the process.
JsonValue to_json(const ProcessorsAnswer& answer, PlanDetail detail);

}  // namespace trident
