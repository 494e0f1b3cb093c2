#include "planner/bench/bench.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/clock.h"
#include "device/cpu/memory_reads.h"
#include "device/operations.h"
#include "device/ops.h"
#include "model/config/model_stats.h"
#include "parallel/communicator/launcher.h"
#include "parallel/shared_memory/thread_world.h"
#include "planner/bench/bench_collectives.h"
#include "planner/bench/metered_device.h"
#include "planner/bench/random_samples.h"
#include "train/launch/prepare_run.h"
#include "train/launch/rank_devices.h"
#include "train/launch/start_up.h"
#include "train/plan/machine.h"
#include "train/run/dry_run.h"
#include "train/run/rank_trainer.h"
#include "train/run/run_together.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

TrainConfig on_one_rank(TrainConfig config) {
  ParallelConfig& parallel = config.parallel;
  parallel.data = 1;
  parallel.pipeline = parallel.tensor = parallel.context = parallel.virtual_stages = 1;
  parallel.schedule = ScheduleKind::k1f1b;
  parallel.sequence_parallel = false;
  parallel.layers.reset();
  config.cuda.nccl_register = false;
  return config;
}

// The best of as many calls as `budget` seconds have room for, two at least: the first may do what only a first does.
double best_seconds(Device& device, double budget, const std::function<void()>& call) {
  double best = 1e30;
  int calls = 0;
  for (const double start = monotonic_seconds(); calls < 2 || monotonic_seconds() - start < budget; ++calls) {
    const double before = monotonic_seconds();
    call();
    device.compute_stream().synchronize();
    best = std::min(best, monotonic_seconds() - before);
  }
  return best;
}

// The rates of what no cache holds.
void measure_memory_rates(Device& device, double budget, BenchReport& report) {
  const bool on_processors = device.kind() == DeviceKind::kCpu;
  const std::int64_t bytes = std::int64_t{1} << (on_processors ? 28 : 30);
  const Buffer memory = device.allocate(2 * bytes, "copies");
  if (on_processors) {
    const std::span all(memory.data(), static_cast<std::size_t>(2 * bytes)), from = all.first(all.size() / 2);
    const std::span words(reinterpret_cast<const std::uint64_t*>(from.data()), from.size() / sizeof(std::uint64_t));
    std::memset(from.data(), 1, from.size());  // pages that were never written may all be one page of zeros
    report.copy_bytes =
        2.0 * static_cast<double>(bytes) / best_seconds(device, budget, [&] { copy_in_parts(all.last(from.size()), from); });
    report.read_bytes = static_cast<double>(bytes) / best_seconds(device, budget, [&] { sum_of_words(words); });
    return;
  }
  const Shape shape{bytes / size_of(DType::kF32)};
  const TensorView from(memory.data(), DType::kF32, shape, memory.where()),
      to(memory.data() + bytes, DType::kF32, shape, memory.where());
  const auto copy = [&] { device.ops().run(device.compute_stream(), op::Convert{.out = to, .x = from}); };
  report.copy_bytes = 2.0 * static_cast<double>(bytes) / best_seconds(device, budget, copy);
}

// Instructions keep the most that they reached in any call.
void measure_peak(const RunPlan& plan, double seconds, BenchReport& report) {
  std::vector<MultiplyRate> rates = measure_multiply_rates(seconds);
  for (std::size_t i = 0; i < report.instructions.size(); ++i)
    rates[i].flops = std::max(rates[i].flops, report.instructions[i].flops);
  report.instructions = std::move(rates);
  report.peak_flops = report.instructions.front().flops;
  for (const MultiplyRate& rate : report.instructions)
    if (plan.multiplied == DType::kBF16) report.peak_flops = std::max(report.peak_flops, rate.flops);
}

void measure_products(const RunPlan& plan, Device& device, double budget, BenchReport& report) {
  report.peak_flops = report.matmul_flops = measure_matmul_rate(device, plan.compute, budget);
  if (device.kind() == DeviceKind::kCpu) measure_peak(plan, budget / 3, report);
}

// Other work may have had the cores while the peak was measured, and not while a faster product ran.
void measure_peak_again(const RunPlan& plan, double budget, BenchReport& report) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && report.fastest_product() > report.peak_flops; ++i) measure_peak(plan, budget, report);
  report.raise_peak();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The first step is no example: memory is touched, plans are made.
void measure_step(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, const OnDevice& on_device, int steps,
                  BenchReport& report) {
  WorkMeter meter;
  const std::unique_ptr<Device> metered = make_metered_device(device, meter);
  RankTrainer trainer(plan, *metered, std::move(world), nullptr, on_device);
  const LoadSamples load = random_samples(plan.model.vocab_size, plan.config.batch.sequence);
  const auto timed_step = [&] {
    const double before = monotonic_seconds();
    trainer.step(load);
    device.compute_stream().synchronize();
    return monotonic_seconds() - before;
  };
  timed_step();
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) seconds.push_back(timed_step());
  report.step_seconds = median(std::move(seconds));
  meter.start();
  report.metered_seconds = timed_step();
  meter.stop();
  report.work.assign(meter.work().begin(), meter.work().end());
  report.products.assign(meter.products().begin(), meter.products().end());
  trainer.drain();
}

CollectiveOptions collective_options(const TrainConfig& config, const BenchOptions& options) {
  CollectiveOptions collectives;
  collectives.cuda.nccl_max_ctas = config.cuda.nccl_max_ctas;
  collectives.cuda.nccl_timeout = config.cuda.nccl_timeout;
  collectives.threads_per_rank = static_cast<int>(config.run.threads_per_rank.value_or(1));  // more of them do not exchange faster
  collectives.megabytes = options.collective_megabytes;
  return collectives;
}

}  // namespace

BenchReport run_bench(const TrainConfig& asked, const BenchOptions& options, CudaBackend& cuda) {
  const TrainConfig config = on_one_rank(asked);
  const auto devices_of = [&](int ranks) { return choose_device(config.device, cuda, look_for_gpus(config.device, cuda, thread_ranks(ranks))); };
  const DeviceChoice choice = devices_of(1);
  const MachineFacts machine = machine_facts(choice, 1);
  const RunPlan plan = settle_grad_sync(make_run_plan(config, resolve_model(config), 0, machine), machine);
  BenchReport report;
  report.why = choice.why;
  report.compute = plan.compute;
  report.tokens = plan.tokens_per_step();
  report.row_units = row_units_per_block(config, machine);
  const double frozen = (1 - plan.trained_share()) * model_flops_per_token(plan.model, plan.config.batch.sequence);  // not computed
  report.step_flops = static_cast<double>(report.tokens) * (least_flops_per_token(plan.model, plan.config.batch.sequence) - frozen);
  ThreadWorld world(1);
  run_thread_ranks(world, [&](int rank) {
    RankDeviceOptions device_options;
    device_options.cuda = config.cuda;
    device_options.cpu.threads_per_rank = plan.threads_per_rank;
    device_options.cpu.first_core = first_core_here({}, machine, 1, plan.threads_per_rank);
    device_options.cpu.bf16_products = plan.bf16_products();
    const std::unique_ptr<Device> device = make_rank_device(choice, cuda, world.doorbell(rank), device_options);
    report.device = device->describe();
    measure_products(plan, *device, options.seconds, report);
    measure_memory_rates(*device, options.seconds, report);
    measure_step(plan, *device, world.communicator(rank, device->progress()),
                 on_device(choice, cuda, *device, DeviceTransport::kThread), options.steps, report);
    if (choice.kind == DeviceKind::kCpu) measure_peak_again(plan, options.seconds, report);
  });
  const CollectiveOptions collectives = collective_options(config, options);
  report.collectives.push_back(
      rates_between_threads(devices_of(options.collective_ranks), cuda, DeviceTransport::kThread, options.collective_ranks, collectives));
  if (choice.kind == DeviceKind::kCuda) report.collectives.push_back(nccl_rates_between_gpus(cuda, collectives));
  return report;
}

std::optional<BenchReport> run_bench_as_process(const TrainConfig& asked, const BenchOptions& options, ProcessWorld& world, CudaBackend& cuda,
                                                const std::function<void(const std::string& message)>& say) {
  std::vector<CollectiveRates> between_processes;
  try {
    between_processes = rates_between_processes(world, asked.device, cuda, collective_options(asked, options));
  } catch (const AgreedError& error) {
    say(error.what());  // before anybody ends: launchers kill the rest as soon as one has
    world.finish();
    throw ReportedElsewhere(error.code(), error.what());
  } catch (const ReportedElsewhere&) {
    world.finish();
    throw;
  } catch (const Error&) {
    world.fail("the benchmark ended early");
    throw;
  }
  world.finish();
  if (world.rank() != 0) return std::nullopt;
  BenchReport report = run_bench(asked, options, cuda);  // when nobody else computes
  report.collectives.insert(report.collectives.end(), between_processes.begin(), between_processes.end());
  return report;
}

std::optional<BenchReport> run_bench_here(const TrainConfig& config, const BenchOptions& options, CudaBackend& cuda) {
  if (config.loss.is_dpo())
    throw ConfigError("loss.type = \"dpo\": random tokens are no pairs of answers; measure a step with \"cross_entropy\"");
  const Launcher launcher = detect_launcher([](const char* name) { return std::getenv(name); });
  switch (launcher.kind) {
    case Launcher::Kind::kNone: break;
    case Launcher::Kind::kMpi:
      return run_bench_as_process(config, options, *join_process_world(), cuda,
                                  [](const std::string& message) { fmt::print(stderr, "trident: {}\n", message); });
    case Launcher::Kind::kPlainSrun: refuse_unconnected_processes(launcher);
  }
  BenchReport report = run_bench(config, options, cuda);
  CollectiveRates processes;
  processes.way = "processes";
  processes.skipped = "there is one; mpirun -n 2 trident bench ... measures them";
  report.collectives.push_back(std::move(processes));
  return report;
}

namespace {

double row_bytes(const RunPlan& plan, Ops* oracle) {
  double bytes = 0;
  for (const OperationTotal& total : record_step(plan, 0, oracle, DryWork::kStep).operations())
    if (total.kind == WorkKind::kRows || total.kind == WorkKind::kHeads) bytes += total.bytes;
  return bytes;
}

}  // namespace

// The second block is what two have and one has not: ends have passes over rows, too.
double row_units_per_block(const TrainConfig& asked, const MachineFacts& machine) {
  TrainConfig config = asked;
  config.train = {};  // blocks of which all parts train
  ModelConfig model = resolve_model(config);
  model.layers = 1;
  const RunPlan one = make_run_plan(config, model, 0, machine);
  model.layers = 2;
  const RunPlan two = make_run_plan(config, model, 0, machine);
  const std::shared_ptr<Ops> oracle = machine.device == DeviceKind::kCpu ? processor_here(one) : nullptr;
  const double of_one_unit = static_cast<double>(two.tokens_per_step() * model.hidden * size_of(two.compute));
  return (row_bytes(two, oracle.get()) - row_bytes(one, oracle.get())) / of_one_unit;
}

}  // namespace trident
