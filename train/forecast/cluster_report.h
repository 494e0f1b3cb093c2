// What `trident plan --cluster` says, as text, JSON and a table.
#pragma once

#include <string>
#include <vector>

#include "core/json_reader.h"
#include "train/forecast/cluster_plan.h"
#include "train/forecast/plan_advice.h"

namespace trident {

struct ClusterReport {
  PlanHardware hardware;
  ClusterPlan plan;
  TrainingCost cost;
  std::vector<PricedChange> advice;
};

// Plans, prices, and prices what could be changed. `gpus` as for plan_on(). `tokens` to train on; 0: those of run.steps.
ClusterReport report_on(const PlanHardware& hardware, const TrainConfig& config, int gpus, double tokens);

// Where a number may lie: of times what published runs on the hardware say (plan/error_bands.h); of memory from none of the
// workspaces, of which the most is counted, to all of them.
struct NumberRange {
  double low = 0, high = 0;
};
NumberRange seconds_range(const ClusterReport& report, double seconds);  // of anything that takes as long as steps do
NumberRange bytes_range(const RankMemory& memory);

// The sections that follow what plan says of a configuration without a cluster (train/launch/plan_report.h).
std::string to_text(const ClusterReport& report);

// {"name", "device", "gpus", "fits", "device_bytes", "memory": [{"stage", "rank", "bytes", "low", "high", "parts": {...}}], "step":
//  {"seconds", "low", "high", "busiest_stage", "parts": {...}, "bubble_over_ideal"}, "tokens_per_second",
//  "tokens_per_second_per_gpu", "mfu", "hfu": each {"value", "low", "high"}, "model_flops", "recomputed_flops", "peak_flops",
//  "mfu_formula", "bytes_of_a_rank": by axis, "limit": {"name", "why"}, "training": {"tokens", "steps", "days", "gpu_hours", "low",
//  "high": of GPU-hours}, "advice": [{"settings", "seconds", "bytes", "fits"}], "band": {"low", "high", "runs", "of"}}. Seconds,
// bytes, FLOPs; the parts of a step add up to it, those of a rank's memory to it.
JsonValue to_json(const ClusterReport& report);

// "quantity,part,stage,unit,value,low,high", a line for each number; low and high are empty where there is no band.
std::string to_csv(const ClusterReport& report);

// "H100 nodes with NDR: 1024 x H100-SXM5-80GB".
std::string hardware_line(const ClusterReport& report);
std::string band_line(const ClusterReport& report);  // what the band is
inline constexpr std::string_view kMfuFormula =
    "model FLOPs of a step (6 x parameters of matrices + 12 x layers x sequence x query width per token, attention in full) / "
    "(step "
    "seconds x GPUs x dense 16-bit peak)";
// Of stages, at most `most`: the first, the last, and those between at even distances; with `wanted` among them.
std::vector<std::size_t> some_stages(const ClusterPlan& plan, std::size_t most, std::size_t wanted);
std::string grouped(double value);          // "252,300": four significant digits, whole from 1,000 on
std::string count_text(double value);       // "299 billion", of tokens
std::string duration_text(double seconds);  // "12.3 s", "340 ms", "2.1 days"
// "--set recompute.policy=full --set batch.micro=2".
std::string settings_text(const PricedChange& change);

}  // namespace trident
