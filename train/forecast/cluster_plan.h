// What a configuration takes on a cluster: memory and time by part, what bounds it, what it costs. Values; texts are made of them
// in plan_report.h and plan_page.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cluster.h"
#include "plan/error_bands.h"
#include "plan/step_price.h"
#include "plan/work_prices.h"
#include "train/forecast/forecast.h"
#include "train/plan/run_plan.h"

namespace trident {

// What steps are priced on.
struct PlanHardware {
  std::string name;    // "H100 nodes with NDR"
  std::string device;  // of a rank: "H100-SXM5-80GB"
  std::shared_ptr<const WorkPrices> prices;
  MachineFacts machine;           // as make_run_plan() takes it
  double peak_flops = 0;          // of a rank, dense, in 16 bits
  double device_bytes = 0;        // of a rank
  double context_bytes = 0;       // outside the arena: driver and libraries
  double communicator_bytes = 0;  // likewise, for each group that a rank belongs to
  ErrorBand band;
};

// GPUs of a cluster; machine.memory is without the context. Throws ConfigError where its hardware file lacks what a step needs.
PlanHardware hardware_of(const Cluster& cluster);

// Groups of more than one that a rank calls, each of which has channels of its own: `data` counts the ranks that gradients are
// reduced over.
int num_communicators(const ModelConfig& model, const TensorLayout& tensor, int data, int pipeline, bool shards_optimizer);

// Bytes of one rank. The parts add up to what it needs of its device.
struct MemoryPart {
  std::string name;
  std::int64_t bytes = 0;
};
struct RankMemory {
  int stage = 0, rank = 0;
  std::vector<MemoryPart> parts;  // the same ones, in the same order, for all ranks
  std::int64_t total() const;
  std::int64_t of(std::string_view part) const;  // 0 where there is none
};

enum class PlanLimit : std::uint8_t { kMemory, kLinks, kBubble, kBatch, kLaunch, kCompute };
std::string_view to_string(PlanLimit limit);

// What the step runs into first: memory that is not there; else whatever costs most time beside the work itself, if that is more
// than a twentieth of the step.
struct FoundLimit {
  PlanLimit limit = PlanLimit::kCompute;
  std::string why;  // a sentence with numbers
};

struct ClusterPlan {
  RunPlan plan;
  Forecast forecast;
  std::vector<RankMemory> memory;             // by stage
  std::size_t fullest = 0;                    // of them
  std::size_t busiest = 0;                    // stage
  TimeParts parts;                            // of its ranks; they add up to the step
  double model_flops = 0;                     // of a step: model_flops_per_token(), attention in full, nothing twice
  double recomputed_flops = 0;                // of a step: products and attention, likewise in full, that are done again
  double mfu = 0, hfu = 0;                    // model FLOPs, and with the recomputed, over seconds x ranks x peak
  std::array<double, kNumAxes> bytes_sent{};  // in a step, by axis, on average of a rank
  FoundLimit limit;

  double seconds() const { return forecast.price.seconds; }
  const RankMemory& most() const { return memory[fullest]; }
  double tokens_per_second() const { return forecast.tokens_per_second(plan); }
  bool fits = false;
};

// parallel.grad_sync "auto" may use what context and communicators leave of a device.
// `gpus`: of the job, whose data-parallel degree then is what they make of it; 0: as many as the configuration says. Throws
// ConfigError naming what cannot be: GPUs that are no whole replicas, and what make_run_plan() refuses.
ClusterPlan plan_on(const PlanHardware& hardware, const TrainConfig& config, int gpus);

// Ranks that hold one copy of the model: tensor x context x pipeline. Throws ConfigError where they are too many to count.
int ranks_of_a_replica(const ParallelConfig& parallel);

// What training on so many tokens takes.
struct TrainingCost {
  double tokens = 0, steps = 0, days = 0, gpu_hours = 0;
};
TrainingCost training_cost(const ClusterPlan& plan, double tokens);

}  // namespace trident
