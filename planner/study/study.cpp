#include "planner/study/study.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include "core/counted.h"
#include "core/file_io.h"
#include "core/int_math.h"
#include "core/number_text.h"
#include "core/scratch_folder.h"
#include "data/indexed_dataset_writer.h"
#include "model/config/model_stats.h"
#include "planner/predict/cluster_forecast.h"
#include "planner/predict/plan_on_cluster.h"
#include "planner/predict/run_prices.h"
#include "planner/predict/simulated_run_forecast.h"
#include "planner/study/study_keys.h"
#include "report/run_page.h"
#include "train/launch/prepare_run.h"
#include "train/launch/run_training.h"
#include "train/plan/machine.h"
#include "train/plan/run_plan.h"
#include "train/plan/step_flops.h"
#include "train/run/run_report.h"

namespace trident {
namespace {

// How often a unit is gathered and reduced over dp in a step, on average over all units of all stages.
void count_collectives(const RunPlan& plan, StudyRow& row) {
  if (plan.step_spec.data_parallel == 1) return;  // with nobody
  double units = 0;
  for (const StepProgram& program : plan.step_programs) {
    units += static_cast<double>(program.units.size());
    for (const Instruction& i : program.instructions) {
      row.gathers += i.kind == InstructionKind::kGather ? 1 : 0;
      row.reductions += i.kind == InstructionKind::kReduceGradients ? 1 : 0;
    }
  }
  row.gathers /= units;
  row.reductions /= units;
}

void price(const PlanHardware& hardware, const PointConfig& point, StudyRow& row) {
  const ClusterForecast plan = plan_on(hardware, point.config, 0);
  row.gpus = point.gpus;
  row.replicas = point.replicas;
  row.micro_batches = plan.plan.num_micro_batches;
  row.tokens = plan.plan.tokens_per_step();
  row.parameters = num_parameters(plan.plan.model);
  row.seconds = plan.seconds();
  row.parts = plan.parts;
  row.bubble = plan.forecast.price.bubble_over_ideal;
  if (const auto& stages = plan.forecast.price.ranks; stages.size() > 1 && !(plan.process && plan.process->shares_cores)) {
    double computing = 0;
    for (const TimeParts& stage : stages) computing += stage[TimePart::kCompute];
    row.uneven = plan.parts[TimePart::kCompute] - computing / static_cast<double>(stages.size());
    row.stage = fmt::format("stage {} ({})", plan.busiest, units_text(plan.plan, plan.busiest));
  }
  row.bytes_sent = plan.bytes_sent;
  count_collectives(plan.plan, row);
  row.mfu = plan.mfu;
  if (hardware.on_gpus()) row.optimizer_bytes = plan.most().of(MemoryPartKind::kOptimizer);
  row.memory_bytes = plan.needed_bytes();
  row.memory_there = static_cast<std::int64_t>(hardware.device_bytes);
  row.fits = plan.fits;
  row.tight = plan.is_tight(hardware);
}

}  // namespace

void check_on_processors(const TrainConfig& config) {
  if (config.device == AskedDevice::kCuda)
    throw ConfigError(
        "device = cuda: this is priced on processors; set device to \"cpu\", or name a cluster of GPUs with --cluster");
}

StudyHardware cluster_hardware(const Cluster& cluster) {
  return {cluster.name, "GPU", [cluster, hardware = hardware_of(cluster)](const PointConfig& point, StudyRow& row) {
            // config_of() refuses more than kMostGpus.
            check_cluster_size(cluster, checked_cast<int>(point.gpus), checked_cast<int>(point.gpus / point.replicas));
            price(hardware, point, row);
          }};
}

StudyHardware processor_hardware(const CpuRates& rates) {
  return {fmt::format("processors, by {} ({} cores)", name_of_profile(rates), rates.cores), "rank",
          [hardware = hardware_of(rates)](const PointConfig& point, StudyRow& row) {
            check_on_processors(point.config);
            price(hardware, point, row);
          }};
}

namespace {

void add_new(std::vector<std::string>& lines, std::string line) {
  if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
}

}  // namespace

StudyResult run_study(const StudySpec& spec, const StudyHardware& hardware, const ExecutePoint& execute,
                      const OnProgress& progress) {
  StudyResult result{.spec = spec,
                     .models = {},
                     .batches = {},
                     .hardware = hardware.name,
                     .counted_as = hardware.counted_as,
                     .held = held_fixed(spec, hardware.counted_as),
                     .rows = {},
                     .causes = {}};
  std::vector<StudyPoint> points = points_of(spec);
  for (StudyPoint& point : points) {
    if (progress) progress(std::ssize(result.rows), std::ssize(points));
    StudyRow row;
    row.point = std::move(point);
    try {
      PointConfig chosen = config_of(spec, row.point);
      chosen.config = with_facts_of_files(std::move(chosen.config));
      hardware.price(chosen, row);
      add_new(result.models, model_text(resolve_model(chosen.config)));
      add_new(result.batches, fmt::format("{} of {} tokens", counted(chosen.config.batch.global, "sequence"),
                                          with_commas(chosen.config.batch.sequence)));
      if (execute) execute(chosen, row);
    } catch (const ConfigError& error) {
      row.reason = error.what();
    }
    result.rows.push_back(std::move(row));
  }
  compare_rows(result);
  result.causes = causes_of(result);
  return result;
}

namespace {

constexpr int kSteps = 6;  // the first is not counted

void write_random_tokens(const std::string& prefix, std::int64_t vocabulary, std::int64_t sequences, std::int64_t length) {
  std::mt19937 random(1);  // NOLINT: the same tokens every time
  IndexedDatasetWriter writer(prefix, vocabulary, Overwrite::kNo);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < sequences; ++i) {
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocabulary));
    writer.add_document(ids);
  }
  writer.finish({});
}

TrainConfig for_execution(const TrainConfig& point, const ScratchFolder& folder) {
  TrainConfig config = point;
  config.device = AskedDevice::kCpu;
  config.run.dir = folder / "run";
  config.run.steps = kSteps;
  config.run.epochs.reset();
  config.run.max_minutes = 0;
  config.lr_schedule = {};
  config.data = {};
  config.data.train = {{folder / "tokens", 1}};
  config.eval = {};
  config.checkpoint = {};  // saves nothing
  config.model.init_from.reset();
  config.elastic.clear();
  config.log = {};
  config.log.every = 1;
  config.log.tensorboard = false;
  return config;
}

void execute(const PointConfig& point, const CpuRates& rates, StudyRow& row, CudaBackend& cuda) {
  if (point.config.loss.is_dpo())
    return void(row.not_run = "loss.type \"dpo\" learns from pairs of answers, and random tokens are none");
  if (!row.fits)
    return void(row.not_run = fmt::format("needs {} of {}", gigabytes_text(row.memory_bytes), gigabytes_text(row.memory_there)));
  if (kSteps * row.seconds > kLongestPointSeconds)
    return void(row.not_run = fmt::format("{} steps would take {:.0f} s, more than {:.0f}", kSteps, kSteps * row.seconds,
                                          kLongestPointSeconds));
  const ScratchFolder folder("trident_study");
  const std::int64_t sequence = point.config.batch.sequence;
  write_random_tokens(folder / "tokens", resolve_model(point.config).vocab_size, kSteps * point.config.batch.global + 8,
                      sequence + 1);
  TrainConfig config = for_execution(point.config, folder);
  config.run.hardware_profile = folder / "profile.json";
  write_file(*config.run.hardware_profile, to_json_text(to_json(rates)));
  std::ostringstream console, lines;
  LogSink log(lines);
  run_training([&] { return config; }, {console, ConsoleMode::kPlain, log}, cuda,
               {.check_profile = check_hardware_profile, .forecast = make_run_forecast, .report = write_run_page});
  // Where ranks share cores a step's wall time is not what was predicted: the run compares what processors worked.
  read_comparison(config.run.dir + "/comparison.json", row);
}

// A device that varies is a matter of points, and so are arms that may be refused.
void check_device(const StudySpec& spec) {
  if (spec.varies("device") || spec.given) return;
  for (std::size_t arm = 0; arm < spec.arms.size(); ++arm) check_on_processors(config_of_arm(spec, arm));
}

}  // namespace

StudyResult run_study_here(const StudySpec& spec, bool executes, CudaBackend& cuda, const OnProgress& progress) {
  const std::optional<PlanHardware> named = find_processors(spec.cluster);
  if (!named && !spec.cluster.empty() && !executes)
    return run_study(spec, cluster_hardware(find_cluster(shipped_price_book(), spec.cluster)), {}, progress);
  if (spec.cluster.empty() && !executes && (spec.gpus > 0 || spec.varies(kGpusKey)))
    throw ConfigError("gpus: this machine's processors are none; name their cluster with --cluster, such as h100_sxm_ndr");
  check_device(spec);
  const int cores = cpu_machine_facts(1).core_share.at_once();
  const CpuRates rates = named ? *named->processors : rates_of_this_machine(cores);
  if (!executes) return run_study(spec, processor_hardware(rates), {}, progress);
  const auto on_point = [&](const PointConfig& point, StudyRow& row) { execute(point, rates, row, cuda); };
  StudyResult result = run_study(spec, processor_hardware(rates), on_point, progress);
  const std::string here = processor_name();
  if (rates.processor != here || rates.cores != cores)
    result.held.push_back(fmt::format(
        "Measured is not what was predicted: rates are of {} with {}, this machine has {} with {}; trident bench --calibrate "
        "measures it.",
        rates.processor, counted(rates.cores, "core"), here, counted(cores, "core")));
  return result;
}

}  // namespace trident
