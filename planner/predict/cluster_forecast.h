// A configuration's forecast on the GPUs of a cluster, or on the processors of a machine: memory and time by part, what bounds it,
// what it costs. Values; cluster_report.h makes text, JSON and a table of them, plan_page.h a page.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/named_enum.h"
#include "planner/predict/error_bands.h"
#include "planner/predict/forecast.h"
#include "planner/predict/rank_memory.h"
#include "planner/price/cluster.h"
#include "planner/price/cpu_rates.h"
#include "planner/price/step_price.h"
#include "planner/price/work_prices.h"
#include "train/plan/run_plan.h"

namespace trident {

// The hardware that steps are priced on.
struct PlanHardware {
  std::string name;    // "H100 nodes with NDR"
  std::string device;  // of a rank: "H100-SXM5-80GB"
  std::shared_ptr<const WorkPrices> prices = {};     // of GPUs
  std::shared_ptr<const CpuRates> processors = {};   // instead of them: ranks are threads there
  MachineFacts machine = {};                         // as make_run_plan() takes it
  double peak_flops = 0;          // of a GPU, dense, in 16 bits
  std::optional<double> peak_tf32 = {}, peak_fp32 = {};  // likewise, as GpuRates has them
  int fitted_width = 0;                                  // as GemmRates::least_width
  std::string file = {};          // of a GPU, in configs/hardware: error_band()'s
  double device_bytes = 0;        // of a rank's GPU; of the machine whose processors they are, 0: not known
  double context_bytes = 0;       // of a GPU, outside the arena: driver and libraries
  double communicator_bytes = 0;  // likewise, for each group that a rank belongs to
  std::optional<ErrorBand> band = {};  // of times on processors; nothing: none is known
  std::optional<ErrorBand> resident_band = {};  // of a process' memory, likewise

  bool on_gpus() const { return processors == nullptr; }
};

// GPUs of a cluster; machine.memory is without the context. Throws ConfigError where its hardware file lacks what a step needs.
PlanHardware hardware_of(const Cluster& cluster);
// Processors of a machine, all of whose ranks are threads of one process. How much memory it has is known where it is this one.
PlanHardware hardware_of(const CpuRates& rates);
PlanHardware shipped_processors();  // of the profile that comes with the program, with what its predictions are known to be off

// Says that prices of products this wide (hidden over tensor ranks) are less sure, because the profile was fitted on wider ones; ""
// where it was not.
std::string width_note(const PlanHardware& hardware, std::int64_t width);

// Groups of more than one that a rank calls, each of which has channels of its own: `data` counts the ranks that gradients are
// reduced over.
int num_communicators(const ModelConfig& model, const TensorLayout& tensor, int data, int pipeline, bool shards_optimizer);

enum class PlanLimit : std::uint8_t { kMemory, kLinks, kBubble, kBatch, kLaunch, kCompute };
template <>
inline constexpr std::array<std::string_view, 6> kNamesOf<PlanLimit>{"memory", "links", "bubble", "batch", "launch", "compute"};

// The first limit of the step: memory that is not there; else whatever costs most time beside the work itself, if that is more
// than a twentieth of the step.
struct FirstLimit {
  PlanLimit limit = PlanLimit::kCompute;
  double share = 0;  // of the step that it takes; of memory what is needed over what is there
  std::string why;   // a sentence with numbers
};

struct ClusterForecast {
  RunPlan plan;
  Forecast forecast;                  // on processors as if every rank had cores of its own
  std::optional<ProcessPlan> process; // on processors
  double step_seconds = 0;
  std::vector<RankMemory> memory;             // by stage
  std::size_t fullest = 0;                    // of them
  std::size_t busiest = 0;                    // stage
  TimeParts parts;                            // of its ranks, or of shared cores; they add up to the step
  double peak_flops = 0;                      // of all ranks, that MFU is a share of
  double model_flops = 0;                     // of a step: RunPlan::predicted_flops_per_token(), nothing twice
  double recomputed_flops = 0;                // of a step: products and attention, counted likewise, that are done again
  double mfu = 0, hfu = 0;                    // model FLOPs, and with the recomputed, over seconds x peak
  std::array<double, kNumAxes> bytes_sent{};  // in a step, by axis, on average of a rank
  FirstLimit limit;
  bool fits = false;

  double seconds() const { return step_seconds; }
  const RankMemory& most() const { return memory[fullest]; }
  // The bytes that have to fit: the most that a rank takes of its GPU, or the process of a machine.
  std::int64_t needed_bytes() const;
  double bytes_off(const PlanHardware& hardware) const;  // by which needed_bytes() may be too few
  bool is_tight(const PlanHardware& hardware) const;     // fits, with less than that free
  RunKind kind() const;
  double tokens_per_second() const { return static_cast<double>(plan.tokens_per_step()) / step_seconds; }
};

// parallel.grad_sync "auto" may use what context and communicators leave of a device.
// `gpus`: ranks of the job, whose data-parallel degree then is what they make of it; 0: as many as the configuration says. Throws
// ConfigError naming what cannot be: GPUs that make no whole replicas, what make_run_plan() refuses, a table that a profile lacks.
ClusterForecast plan_on(const PlanHardware& hardware, const TrainConfig& config, int gpus);

// A complete configuration with other values, none of the data's. Throws ConfigError for those that contradict it.
TrainConfig with_settings(const TrainConfig& config, const std::vector<std::string>& settings);

// " of 84.9 GB, 1.6 GB free", or "... too much", behind the bytes that are needed; "" where what is there is not known (0). Less
// free than `off`, by which more may be needed, is said to be less.
std::string room_text(double needed, double there, double off);

// ranks_of_a_replica(). Throws ConfigError above kMostGpus: so many are not planned.
int planned_replica(const ParallelConfig& parallel);

// The cost of training on so many tokens. gpu_hours: on processors hours of cores, all of them.
struct TrainingCost {
  double tokens = 0, steps = 0, days = 0, gpu_hours = 0;
};
TrainingCost training_cost(const PlanHardware& hardware, const ClusterForecast& plan, double tokens);

}  // namespace trident
