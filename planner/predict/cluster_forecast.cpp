#include "planner/predict/cluster_forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <variant>

#include "core/check.h"
#include "core/counted.h"
#include "core/number_text.h"
#include "infer/generate/eval_samples.h"
#include "model/gpt.h"
#include "planner/price/gpu_prices.h"
#include "train/config/rank_count.h"
#include "train/plan/core_share.h"
#include "train/plan/machine.h"
#include "train/plan/preflight.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

// FLOPs of matmuls and attention that a step recomputes, on all ranks; attention in full, as in model FLOPs.
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
                   static_cast<double>(a->interval > 0 ? a->interval : a->key_length) * static_cast<double>(a->head_dim);
        else if (std::holds_alternative<MatmulShape>(operation->shape))
          flops += times * operation->flops;
      }
    }
  }
  return flops * plan.world_size() / static_cast<double>(step.records.size());
}

// The bytes that arenas may take there.
MachineFacts machine_for(const PlanHardware& hardware, const RunPlan& plan) {
  MachineFacts machine = hardware.machine;
  if (!hardware.on_gpus()) return machine;
  const ParallelDegrees& degrees = plan.grid.degrees();
  const int communicators =
      num_communicators(plan.model, plan.tensor_layout, degrees.data, degrees.pipeline, plan.zero.shard_optimizer);
  for (MemoryPool& pool : machine.memory) pool.bytes -= static_cast<std::int64_t>(communicators * hardware.communicator_bytes);
  return machine;
}

// The parts of a step of shared cores: the ranks' computing over the cores; what else they do is moving, and idle cores are bubble.
TimeParts parts_of_shared_cores(const RunPlan& plan, const StepPrice& price, const ProcessPlan& run, int cores) {
  TimeParts parts;
  const double ranks_of_a_stage = plan.world_size() / plan.grid.degrees().pipeline;
  for (const TimeParts& rank : price.ranks) {
    for (const TimePart part : {TimePart::kCompute, TimePart::kRecompute, TimePart::kOptimizer, TimePart::kOther})
      parts[part] += rank[part] * ranks_of_a_stage / cores;
  }
  const double computing = parts.total(), busy = run.cpu_seconds / cores;
  if (computing > busy) {
    for (double& seconds : parts.seconds) seconds *= busy / computing;
  } else {
    const ParallelDegrees& d = plan.grid.degrees();
    parts[d.tensor > 1     ? TimePart::kTensor
          : d.data > 1     ? TimePart::kData
          : d.pipeline > 1 ? TimePart::kPipeline
                           : TimePart::kOther] += busy - computing;
  }
  parts[TimePart::kBubble] += run.step_seconds - busy;
  return parts;
}

// FLOP/s of all cores in the fastest product that was measured; 0 where none of that dtype was.
double fastest_product(const CpuRates& rates, DType compute) {
  double most = 0;
  for (const ProductTimes& product : rates.products) {
    if (product.in != compute) continue;
    const auto& axes = product.seconds.axes();
    auto seconds = product.seconds.values().begin();
    for (const double m : axes[0])
      for (const double n : axes[1])
        for (const double k : axes[2]) most = std::max(most, 2 * m * n * k / *seconds++ * rates.cores / product.threads);
  }
  return most;
}

void forecast_on_gpus(const PlanHardware& hardware, ClusterForecast& it) {
  it.forecast = forecast_run(it.plan, *hardware.prices, any_gpu(it.plan.config.cuda.deterministic).get());
  it.busiest = it.forecast.price.busiest();
  it.parts = it.forecast.price.ranks[it.busiest];
  it.step_seconds = it.forecast.price.seconds;
  it.peak_flops = hardware.peak_flops * it.plan.world_size();
}

void forecast_on_processors(const CpuRates& rates, ClusterForecast& it) {
  const ProcessPlan run = forecast_on_processors_here(it.plan, rates, it.forecast);
  const StepPrice& price = it.forecast.price;
  it.busiest = price.busiest();
  it.parts = run.shares_cores ? parts_of_shared_cores(it.plan, price, run, rates.cores) : price.ranks[it.busiest];
  it.step_seconds = run.step_seconds;
  const int threads = it.plan.world_size() * it.plan.threads_per_rank;
  it.peak_flops = rates.peak(it.plan.multiplied) * std::min(threads, rates.cores);
  it.process = run;
}

FirstLimit first_limit(const PlanHardware& hardware, const ClusterForecast& it) {
  if (!it.fits) {
    const auto needed = static_cast<double>(it.needed_bytes());
    return {PlanLimit::kMemory, needed / hardware.device_bytes,
            fmt::format("{} needs {} of {} that has {}",
                        it.process ? "the process" : fmt::format("a rank of stage {}", it.most().stage), gigabytes_text(needed),
                        it.process ? "a machine" : "a GPU", gigabytes_text(hardware.device_bytes))};
  }
  const TimeParts& t = it.parts;
  const auto share = [&](double seconds) { return seconds / it.seconds(); };
  const auto percent = [&](double seconds) { return 100 * share(seconds); };
  const double links = t[TimePart::kTensor] + t[TimePart::kPipeline] + t[TimePart::kData];
  const double most = std::max({links, t[TimePart::kBubble], t[TimePart::kLaunch]});
  if (share(most) <= 0.05)
    return {PlanLimit::kCompute, 1 - share(links + t[TimePart::kBubble] + t[TimePart::kLaunch]),
            "nothing beside the work itself takes more than a twentieth of the step"};
  if (most == links)
    return {PlanLimit::kLinks, share(most),
            fmt::format("waiting for collectives and messages takes {:.1f} % of the step: tp {:.1f} %, pp {:.1f} %, dp {:.1f} %",
                        percent(links), percent(t[TimePart::kTensor]), percent(t[TimePart::kPipeline]),
                        percent(t[TimePart::kData]))};
  if (most == t[TimePart::kLaunch])
    return {PlanLimit::kLaunch, share(most),
            fmt::format("the host issues kernels more slowly than the device ends them: {:.1f} % of the step", percent(most))};
  const std::string bubble =
      fmt::format("the bubble takes {:.1f} % of the step with {} on {}", percent(most),
                  counted(it.plan.num_micro_batches, "micro-batch", "micro-batches"),
                  counted(it.plan.grid.degrees().pipeline, "stage"));
  if (it.plan.config.batch.micro == 1)
    return {PlanLimit::kBatch, share(most),
            bubble + ", of one sequence each: more of them, and a smaller bubble, come only from a larger batch.global"};
  return {PlanLimit::kBubble, share(most), bubble};
}

// The configuration for so many ranks, on such a device.
TrainConfig for_ranks(const PlanHardware& hardware, const TrainConfig& config, int gpus) {
  TrainConfig asked = config;
  if (!hardware.on_gpus()) {
    if (config.device == AskedDevice::kCuda)
      throw ConfigError("device = cuda: --cluster names processors; set device to \"cpu\", or name a cluster of GPUs");
    asked.device = AskedDevice::kCpu;
  }
  if (gpus == 0) {
    if (!hardware.on_gpus()) check_thread_ranks(asked);
    return asked;
  }
  const int replica = planned_replica(config.parallel);
  if (gpus % replica != 0)
    throw ConfigError(
        fmt::format("{} {}: not a multiple of the {} that one replica of the model takes (tensor {} x context {} x "
                    "pipeline {}); ask for {}",
                    gpus, hardware.on_gpus() ? "GPUs" : "ranks", replica, config.parallel.tensor, config.parallel.context,
                    config.parallel.pipeline, std::max(1, gpus / replica) * replica));
  asked.parallel.data = gpus / replica;
  if (!hardware.on_gpus()) check_thread_ranks(asked);
  return asked;
}

// Names the keys that change how a GPU computes and that prices leave out.
std::vector<std::string> unpriced(const PlanHardware& hardware, const RunPlan& plan) {
  std::vector<std::string> notes;
  const bool tf32 = plan.config.cuda.tf32;
  if (!hardware.on_gpus()) return notes;
  if (plan.config.cuda.graphs)
    notes.emplace_back("cuda.graphs: a graph is priced as one launch; that its kernels follow each other sooner is not priced");
  if (std::string note = width_note(hardware, plan.model.hidden / plan.tensor_layout.degree); !note.empty())
    notes.push_back(std::move(note));
  if (plan.compute != DType::kF32) {
    if (tf32) notes.push_back(fmt::format("cuda.tf32 changes nothing: products are in {}", to_string(plan.compute)));
    return notes;
  }
  if (tf32 && !hardware.peak_tf32)
    notes.push_back(fmt::format("cuda.tf32 is not priced: the profile of {} has no peak_tf32_tflops; products are priced as fp32",
                                hardware.device));
  if (tf32 && hardware.peak_tf32 == 0.0)
    notes.push_back(fmt::format("cuda.tf32 changes nothing: {} has no such units", hardware.device));
  if (!hardware.peak_fp32)
    notes.push_back(fmt::format("the profile of {} has no peak_fp32_tflops: fp32 is priced at a 16th of the 16-bit rate",
                                hardware.device));
  return notes;
}

RunPlan run_plan_on(const PlanHardware& hardware, const TrainConfig& asked, int gpus) {
  MachineFacts machine = hardware.machine;
  const std::int64_t ranks = gpus > 0 ? gpus : ranks_of(asked.parallel);
  if (!hardware.on_gpus()) machine.core_share.ranks = static_cast<int>(std::min<std::int64_t>(ranks, kMaxThreadRanks));
  RunPlan plan = make_run_plan(asked, resolve_model(asked), gpus, machine);
  if (const auto samples = find_eval_samples(asked, plan.model)) plan.generation = samples->shapes();
  plan = settle_grad_sync(std::move(plan), machine_for(hardware, plan));
  std::erase(plan.notes, threads_line(machine.core_share));  // said with the hardware
  std::ranges::copy(unpriced(hardware, plan), std::back_inserter(plan.notes));
  if (!asked.parallel.data && gpus == 0)
    plan.notes.push_back(fmt::format("parallel.data is auto and is planned as 1, with {}; --gpus N plans it for N",
                                     counted(plan.world_size(), hardware.on_gpus() ? "GPU" : "rank")));
  return plan;
}

}  // namespace

std::string width_note(const PlanHardware& hardware, std::int64_t width) {
  if (width >= hardware.fitted_width) return "";
  return fmt::format(
      "the profile's products were fitted on models at least {} wide (over tensor ranks); this one is {} wide, where "
      "what a product takes besides its inner loop decides, and is less sure",
      hardware.fitted_width, width);
}

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
  hardware.peak_tf32 = gpu.peak_tf32;
  hardware.fitted_width = gpu.gemm.least_width;
  hardware.peak_fp32 = gpu.peak_fp32;
  hardware.device_bytes = gpu.device_bytes;
  hardware.context_bytes = gpu.context_bytes;
  hardware.communicator_bytes = gpu.communicator_bytes;
  hardware.file = gpu.file;
  return hardware;
}

PlanHardware hardware_of(const CpuRates& rates) {
  PlanHardware hardware;
  hardware.name = fmt::format("{}, {}", counted(rates.cores, "core"), name_of_profile(rates));
  hardware.device = rates.processor;
  hardware.processors = std::make_shared<CpuRates>(rates);
  const double of_products = fastest_product(rates, DType::kBF16) / std::max(1.0, fastest_product(rates, DType::kF32));
  hardware.machine = cpu_machine_facts(1, rates.bf16_over_fp32.value_or(of_products));
  const CoreShare here = hardware.machine.core_share;
  if (rates.processor == processor_name() && rates.cores == here.at_once() && !hardware.machine.memory.empty())
    hardware.device_bytes = static_cast<double>(hardware.machine.memory.front().bytes);
  hardware.machine.memory = kAnyMachine.memory;  // what does not fit is said, not refused
  hardware.machine.core_share.node = "that machine";
  hardware.machine.core_share.cores = rates.cores;
  hardware.machine.core_share.quota.reset();
  return hardware;
}

PlanHardware shipped_processors() {
  PlanHardware hardware = hardware_of(shipped_cpu_rates());
  hardware.band = processor_band();
  hardware.resident_band = resident_band();
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

std::int64_t ClusterForecast::needed_bytes() const {
  return process ? std::llround(process->resident_bytes) : most().total();
}

double ClusterForecast::bytes_off(const PlanHardware& hardware) const {
  if (!process) return tensors_off(static_cast<double>(most().total() - most().all_of(Certainty::kEstimate)));
  return hardware.resident_band ? (hardware.resident_band->high - 1) * process->resident_bytes : 0;
}

bool ClusterForecast::is_tight(const PlanHardware& hardware) const {
  return fits && hardware.device_bytes > 0 && static_cast<double>(needed_bytes()) + bytes_off(hardware) > hardware.device_bytes;
}

RunKind ClusterForecast::kind() const {
  const ParallelDegrees& degrees = plan.grid.degrees();
  return {.gathers = plan.zero.param_gather != ParamGather::kResident && degrees.data > 1,
          .splits_model = degrees.tensor > 1 || degrees.pipeline > 1,
          .gpus = plan.world_size()};
}

std::string room_text(double needed, double there, double off) {
  if (there == 0) return "";
  const auto text = [](double bytes) { return bytes < 5e7 ? bytes_text(bytes) : gigabytes_text(bytes); };
  const double room = there - needed;
  if (room < 0) return fmt::format(" of {}, {} too much", bytes_text(there), text(-room));
  return fmt::format(" of {}, {} free{}", bytes_text(there), text(room),
                     room < off ? fmt::format(", less than the {} by which predictions may be off", text(off)) : "");
}

int planned_replica(const ParallelConfig& parallel) {
  const std::int64_t ranks = ranks_of_a_replica(parallel);
  if (ranks > kMostGpus)
    throw ConfigError(fmt::format("parallel: one replica would take {} ranks; use at most {}", ranks, kMostGpus));
  return static_cast<int>(ranks);
}

ClusterForecast plan_on(const PlanHardware& hardware, const TrainConfig& config, int gpus) {
  ClusterForecast it;
  it.plan = run_plan_on(hardware, for_ranks(hardware, config, gpus), gpus);
  if (hardware.on_gpus())
    forecast_on_gpus(hardware, it);
  else
    forecast_on_processors(*hardware.processors, it);
  for (std::size_t stage = 0; stage < it.forecast.stages.size(); ++stage)
    it.memory.push_back(rank_memory(it.forecast.stages[stage], it.forecast.step.records[stage], static_cast<int>(stage), hardware));
  it.fullest = static_cast<std::size_t>(
      std::max_element(it.memory.begin(), it.memory.end(), [](const auto& a, const auto& b) { return a.total() < b.total(); }) -
      it.memory.begin());
  it.fits = hardware.device_bytes == 0 || static_cast<double>(it.needed_bytes()) <= hardware.device_bytes;
  it.model_flops = static_cast<double>(it.plan.tokens_per_step()) * it.plan.predicted_flops_per_token();
  it.recomputed_flops = recomputed_flops(it.plan, it.forecast.step);
  if (it.peak_flops > 0) {
    it.mfu = it.model_flops / (it.seconds() * it.peak_flops);
    it.hfu = (it.model_flops + it.recomputed_flops) / (it.seconds() * it.peak_flops);
  }
  it.bytes_sent = bytes_of_all_ranks(it.plan, it.forecast.stages);
  for (double& bytes : it.bytes_sent) bytes /= it.plan.world_size();
  it.limit = first_limit(hardware, it);
  return it;
}

TrainConfig with_settings(const TrainConfig& config, const std::vector<std::string>& settings) {
  TrainConfig with = parse_train_config(to_json_text(to_json(config)), "settings of a plan", settings);
  with.data = config.data;  // files say more of the data than its keys
  return with;
}

TrainingCost training_cost(const PlanHardware& hardware, const ClusterForecast& plan, double tokens) {
  const double steps = tokens / static_cast<double>(plan.plan.tokens_per_step());
  const double seconds = steps * plan.seconds();
  const int devices = hardware.on_gpus() ? plan.plan.world_size() : hardware.processors->cores;
  return {tokens, steps, seconds / 86400, seconds * devices / 3600};
}

}  // namespace trident
