// The answer of `trident plan cluster`, as text, JSON and a table, for GPUs and for processors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "core/number_range.h"
#include "planner/predict/cluster_forecast.h"
#include "report/table.h"

namespace trident {

// Advice that makes a configuration fit, or faster: changes of one or two keys, each planned and priced like the configuration.
struct PricedChange {
  std::vector<std::string> settings;  // "recompute.policy=full": what to --set
  double seconds = 0;                 // of a step
  std::int64_t bytes = 0;             // that have to fit: ClusterForecast::needed_bytes()
  bool fits = false;
};

// Other recomputation, the next larger and smaller micro-batch, both at once, other ZeRO presets, interleaved stages, sequence
// parallelism, and, where it does not fit, attention that adds in any order: those of them that this model, batch and layout allow,
// as make_run_plan() says, with the same ranks and the same global batch.
std::vector<PricedChange> priced_changes(const PlanHardware& hardware, const ClusterForecast& now);

// The changes worth saying, best first: where `now` fits, those that fit and save at least half a percent of the step; where
// it does not, those that fit, or the one that needs least if none does. At most `most` of them.
std::vector<PricedChange> advice_of(const ClusterForecast& now, std::vector<PricedChange> changes, std::size_t most = 5);

struct ClusterReport {
  PlanHardware hardware;
  ClusterForecast plan;
  TrainingCost cost;
  std::vector<PricedChange> advice;
};

// Plans, prices, and prices what could be changed. `gpus` as for plan_on(). `tokens` to train on; 0: those of run.steps.
ClusterReport report_on(const PlanHardware& hardware, const TrainConfig& config, int gpus, double tokens);

using Band = std::optional<NumberRange>;                         // where a number may lie; nothing where that is not known
Band seconds_band(const ClusterReport& report, double seconds);  // of anything that takes as long as steps do
Band rate_band(const ClusterReport& report, double rate);        // of anything inverse to seconds
Band part_band(const MemoryPart& part);                          // bytes
// needed_bytes(), without and with a GPU's workspaces, and no more sure than the bytes outside the arena.
Band needed_band(const ClusterReport& report);

// Five lines: whether it fits, how long a step takes and what that is of the peak, the first limit, on what.
std::string verdict_text(const ClusterReport& report);
std::string advice_text(const ClusterReport& report);
// Rows for the parts of memory that any stage has, columns for some of the stages.
Table memory_table(const ClusterForecast& plan);
Table time_table(const ClusterReport& report);
// Both tables, how MFU is counted, what training takes, what the bands are.
std::string details_text(const ClusterReport& report, std::size_t columns);

// {"name", "device", "gpus", "fits", "device_bytes", "memory": [{"stage", "rank", "bytes", "low", "high", "parts": {...},
//  "bands": {part: {"low", "high"} | null}}], "needed": {"value", "low", "high"} of bytes that have to fit, "step": {"seconds",
//  "low", "high", "busiest_stage", "parts": {...}, "bubble_over_ideal"}, "tokens_per_second", "tokens_per_second_per_gpu", "mfu",
//  "hfu": each {"value", "low", "high"}, "model_flops", "recomputed_flops", "peak_flops" of a GPU, "mfu_formula",
//  "bytes_of_a_rank": by axis, "limit": {"name", "share", "why"}, "training": {"tokens", "steps", "days", "gpu_hours", "low",
//  "high"},
//  "advice": [{"settings", "seconds", "bytes", "fits"}], "band": {"low", "high", "runs", "of"}}. Seconds, bytes, FLOPs; the parts
// of a step add up to it, those of a rank's memory to it. Where no band is known "low" and "high" are not there.
// Processors have in place of "device", "gpus", "tokens_per_second_per_gpu": "processor", "cores", "ranks", "threads_per_rank",
// "arena_bytes", "staging_bytes" and "resident_bytes" of the process; "device_bytes" is 0 where the machine's memory is not known;
// "step" has "cpu_seconds" of all ranks and "shares_cores", too; "peak_flops" is of all cores that threads have, 0 where no
// peak is known; "core_hours" are in place of "gpu_hours".
JsonValue to_json(const ClusterReport& report);

// "quantity,part,stage,unit,value,low,high", a line for each number; low and high are empty where there is no band. "fits" is 1 or
// 0; the part of "first limit" is its name, its value FirstLimit::share.
std::string to_csv(const ClusterReport& report);

// "H100 nodes with NDR: 1024 x H100-SXM5-80GB", "2 cores of AMD EPYC: 4 ranks of 1 thread".
std::string hardware_line(const ClusterReport& report);
std::string band_line(const ClusterReport& report);    // what the band of times is
std::string device_line(const ClusterReport& report);  // what a GPU's memory is, and what of it tensors can have; "" of processors
std::string mfu_formula(const ClusterReport& report);
// At most `most` stages: the first, the last, and others at even distances between them; with `wanted` among them.
std::vector<std::size_t> some_stages(const ClusterForecast& plan, std::size_t most, std::size_t wanted);
// "--set recompute.policy=full --set batch.micro=2".
std::string settings_text(const std::vector<std::string>& settings);

}  // namespace trident
