#include "train/forecast/cluster_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "core/check.h"
#include "model/gpt.h"
#include "model/model_stats.h"
#include "plan/gpu_prices.h"
#include "train/plan/machine.h"
#include "train/run/eval_samples.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

// Groups of more than one that the rank calls: each has channels of its own.
std::int64_t communicators_of(const StepRecord& record) {
  std::set<std::pair<Axis, std::string>> groups;
  for (const PassRecord& pass : record.passes) {
    for (const auto& call : pass.calls) {
      const auto* const collective = std::get_if<RecordedCollective>(&call);
      if (collective != nullptr && collective->size > 1) groups.insert({collective->axis, collective->group});
    }
  }
  return std::ssize(groups);
}

RankMemory memory_of(const PlanHardware& hardware, const DryRun& run, const StepRecord& record, const StepProgram& program,
                     int stage) {
  const auto slots = [](const std::vector<int>& of_chunks, std::size_t chunk) {
    return chunk < of_chunks.size() ? std::int64_t{of_chunks[chunk]} : 0;
  };
  std::int64_t saved = 0;
  for (std::size_t chunk = 0; chunk < run.blocks.size(); ++chunk) {
    const ActivationBlocks& block = run.blocks[chunk];
    saved += block.saved * slots(program.num_activation_slots, chunk) + block.for_weights * slots(program.num_weight_slots, chunk) +
             block.kept * slots(program.num_kept_slots, chunk);
  }
  const auto booked = [&](MemoryUse use) { return run.arena.total_bytes(use); };
  const std::int64_t rest =
      run.arena.total_bytes() - std::accumulate(kMemoryUses.begin(), kMemoryUses.end(), std::int64_t{0},
                                                [&](std::int64_t sum, MemoryUse use) { return sum + booked(use); });
  const auto communicators = static_cast<double>(communicators_of(record)) * hardware.communicator_bytes;
  return {stage,
          run.rank,
          {{"parameters", booked(MemoryUse::kParameters)},
           {"gradients", booked(MemoryUse::kGradients)},
           {"optimizer", booked(MemoryUse::kOptimizer)},
           {"kept activations", saved - run.logits_bytes},
           {"recomputed activations", booked(MemoryUse::kActivations) - saved},
           {"logits", run.logits_bytes},
           {"communication buffers", booked(MemoryUse::kCommunication)},
           {"workspaces", booked(MemoryUse::kWorkspace)},
           {"data", booked(MemoryUse::kData) + rest},
           {"context", static_cast<std::int64_t>(hardware.context_bytes)},
           {"communicators", static_cast<std::int64_t>(communicators)}}};
}

// Of products and attention that a step's backwards do again, on all ranks; attention in full, as in model FLOPs.
double recomputed_flops(const RunPlan& plan, const RecordedStep& step) {
  double flops = 0;
  for (const StepRecord& record : step.records) {
    const std::vector<std::int64_t> counts = record.counts();
    for (std::size_t pass = 0; pass < record.passes.size(); ++pass) {
      for (const auto& call : record.passes[pass].calls) {
        const auto* const operation = std::get_if<RecordedOperation>(&call);
        if (operation == nullptr || !operation->recomputed) continue;
        const auto times = static_cast<double>(counts[pass]);
        if (const auto* const a = std::get_if<AttentionShape>(&operation->shape))
          flops += times * 4 * static_cast<double>(a->batch * a->query_heads) * static_cast<double>(a->query_length) *
                   static_cast<double>(a->key_length) * static_cast<double>(a->head_dim);
        else if (std::holds_alternative<MatmulShape>(operation->shape))
          flops += times * operation->flops;
      }
    }
  }
  return flops * plan.world_size() / static_cast<double>(step.records.size());
}

// What arenas may take there.
MachineFacts machine_for(const PlanHardware& hardware, const RunPlan& plan) {
  const ParallelDegrees& degrees = plan.grid.degrees();
  const int communicators =
      num_communicators(plan.model, plan.tensor_layout, degrees.data, degrees.pipeline, plan.zero.shard_optimizer);
  MachineFacts machine = hardware.machine;
  for (MemoryPool& pool : machine.memory) pool.bytes -= static_cast<std::int64_t>(communicators * hardware.communicator_bytes);
  return machine;
}

double gigabytes(double bytes) { return 1e-9 * bytes; }

FoundLimit limit_of(const PlanHardware& hardware, const ClusterPlan& it) {
  if (!it.fits)
    return {PlanLimit::kMemory, fmt::format("a rank of stage {} needs {:.1f} GB of a device of {:.1f} GB", it.most().stage,
                                            gigabytes(static_cast<double>(it.most().total())), gigabytes(hardware.device_bytes))};
  const auto share = [&](double seconds) { return 100 * seconds / it.seconds(); };
  const TimeParts& t = it.parts;
  const double links = t[TimePart::kTensor] + t[TimePart::kPipeline] + t[TimePart::kData];
  const double most = std::max({links, t[TimePart::kBubble], t[TimePart::kLaunch]});
  if (share(most) <= 5) return {PlanLimit::kCompute, "nothing beside the work itself takes more than a twentieth of the step"};
  if (most == links)
    return {PlanLimit::kLinks,
            fmt::format("waiting for collectives and messages takes {:.1f} % of the step: tp {:.1f} %, pp {:.1f} %, dp "
                        "{:.1f} %",
                        share(links), share(t[TimePart::kTensor]), share(t[TimePart::kPipeline]), share(t[TimePart::kData]))};
  if (most == t[TimePart::kLaunch])
    return {PlanLimit::kLaunch,
            fmt::format("the host issues kernels more slowly than the device ends them: {:.1f} % of the step", share(most))};
  const std::string bubble = fmt::format("the bubble takes {:.1f} % of the step with {} micro-batches on {} stages", share(most),
                                         it.plan.num_micro_batches, it.plan.grid.degrees().pipeline);
  if (it.plan.config.batch.micro == 1)
    return {PlanLimit::kBatch, bubble + ", which are of one sequence already: batch.global gives no more"};
  return {PlanLimit::kBubble, bubble};
}

}  // namespace

PlanHardware hardware_of(const Cluster& cluster) {
  const GpuRates& gpu = cluster.gpu;
  PlanHardware hardware;
  hardware.name = cluster.name;
  hardware.device = gpu.name;
  hardware.prices = std::make_shared<GpuPrices>(gpu, cluster.links);
  hardware.machine = kAnyMachine;
  hardware.machine.device = DeviceKind::kCuda;
  hardware.machine.multiplies_fp16 = true;
  hardware.machine.description = cluster.name;
  hardware.machine.memory = {{gpu.name, {0}, static_cast<std::int64_t>(gpu.device_bytes - gpu.context_bytes)}};
  hardware.peak_flops = gpu.peak_16bit;
  hardware.device_bytes = gpu.device_bytes;
  hardware.context_bytes = gpu.context_bytes;
  hardware.communicator_bytes = gpu.communicator_bytes;
  hardware.band = error_band(gpu.file);
  return hardware;
}

int num_communicators(const ModelConfig& model, const TensorLayout& tensor, int data, int pipeline, bool shards_optimizer) {
  // parallel/grid/parallel_context.h: one over tensor ranks, and those of partial gradients; gathers and reductions over data
  // ranks; two directions along the pipeline; of each axis that of statistics.
  int groups = 0;
  if (tensor.degree > 1) {
    groups += 2;
    for (const SubAxis& axis : partial_axes(model, tensor)) groups += axis.size > 1 ? 1 : 0;
  }
  if (data > 1) groups += shards_optimizer ? 3 : 2;
  if (pipeline > 1) groups += 3;
  return groups;
}

std::int64_t RankMemory::total() const {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const MemoryPart& part) { return sum + part.bytes; });
}

std::int64_t RankMemory::of(std::string_view part) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const MemoryPart& it) { return it.name == part; });
  return found == parts.end() ? 0 : found->bytes;
}

std::string_view to_string(PlanLimit limit) {
  switch (limit) {
    case PlanLimit::kMemory: return "memory";
    case PlanLimit::kLinks: return "links";
    case PlanLimit::kBubble: return "bubble";
    case PlanLimit::kBatch: return "batch";
    case PlanLimit::kLaunch: return "launch";
    case PlanLimit::kCompute: return "compute";
  }
  return "";
}

int ranks_of_a_replica(const ParallelConfig& parallel) {
  double product = 1;
  for (const std::int64_t degree : {parallel.tensor, parallel.context, parallel.pipeline}) product *= static_cast<double>(degree);
  if (product > 1 << 24)
    throw ConfigError(fmt::format("parallel: one replica would take {:.3g} ranks; use at most {}", product, 1 << 24));
  return static_cast<int>(product);
}

ClusterPlan plan_on(const PlanHardware& hardware, const TrainConfig& config, int gpus) {
  TrainConfig asked = config;
  if (gpus > 0) {
    const int replica = ranks_of_a_replica(config.parallel);
    if (gpus % replica != 0)
      throw ConfigError(
          fmt::format("{} GPUs: not a multiple of the {} that one replica of the model takes (tensor {} x context {} x "
                      "pipeline {}); ask for {}",
                      gpus, replica, config.parallel.tensor, config.parallel.context, config.parallel.pipeline,
                      std::max(1, gpus / replica) * replica));
    asked.parallel.data.ranks = gpus / replica;
  }
  ClusterPlan it;
  it.plan = make_run_plan(asked, resolve_model(asked), gpus, hardware.machine);
  if (const auto samples = find_eval_samples(asked, it.plan.model)) it.plan.text = samples->shapes;
  it.plan = settle_grad_sync(it.plan, machine_for(hardware, it.plan));
  it.forecast = forecast_run(it.plan, *hardware.prices, any_card(it.plan).get());
  for (std::size_t stage = 0; stage < it.forecast.stages.size(); ++stage)
    it.memory.push_back(memory_of(hardware, it.forecast.stages[stage], it.forecast.step.records[stage],
                                  it.plan.step_programs[stage], static_cast<int>(stage)));
  it.fullest = static_cast<std::size_t>(
      std::max_element(it.memory.begin(), it.memory.end(), [](const auto& a, const auto& b) { return a.total() < b.total(); }) -
      it.memory.begin());
  it.fits = static_cast<double>(it.most().total()) <= hardware.device_bytes;
  it.busiest = it.forecast.price.busiest();
  it.parts = it.forecast.price.ranks[it.busiest];
  it.model_flops =
      static_cast<double>(it.plan.tokens_per_step()) * model_flops_per_token(it.plan.model, it.plan.config.batch.sequence);
  it.recomputed_flops = recomputed_flops(it.plan, it.forecast.step);
  const double peak = it.seconds() * it.plan.world_size() * hardware.peak_flops;
  it.mfu = it.model_flops / peak;
  it.hfu = (it.model_flops + it.recomputed_flops) / peak;
  it.bytes_sent = bytes_of_all_ranks(it.plan, it.forecast.stages);
  for (double& bytes : it.bytes_sent) bytes /= it.plan.world_size();
  it.limit = limit_of(hardware, it);
  return it;
}

TrainingCost training_cost(const ClusterPlan& plan, double tokens) {
  const double steps = tokens / static_cast<double>(plan.plan.tokens_per_step());
  const double seconds = steps * plan.seconds();
  return {tokens, steps, seconds / 86400, seconds * plan.plan.world_size() / 3600};
}

}  // namespace trident
