#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/file_io.h"
#include "data/batch_loader.h"
#include "data/tokenizer/tokenizer.h"
#include "device/cpu/cpu_device.h"
#include "model/model_stats.h"
#include "parallel/thread_world.h"
#include "train/machine.h"
#include "train/metrics.h"
#include "train/preflight.h"
#include "train/rank_trainer.h"
#include "train/run_files.h"
#include "train/run_plan.h"
#include "train/run_report.h"

namespace trident {
namespace {

constexpr int kMaxSkippedInARow = 10;  // non-finite gradients: after as many batches the run has no future

// What all ranks of a run share, read-only.
struct RunInputs {
  RunPlan plan;
  TokenSources sources;
  std::vector<std::int32_t> token_bytes;  // of every token's text; empty without a tokenizer
  std::optional<int> first_core;          // of rank 0 when ranks are pinned
};

std::vector<std::int32_t> token_lengths(const std::string& tokenizer_name) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(tokenizer_name, "data.tokenizer");
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(tokenizer->vocab_size()));
  for (std::size_t id = 0; id < lengths.size(); ++id) {
    const std::int32_t token = static_cast<std::int32_t>(id);
    if (token != tokenizer->eod()) lengths[id] = static_cast<std::int32_t>(tokenizer->decode({&token, 1}).size());
  }
  return lengths;
}

BatchLoader make_loader(const RunPlan& plan, const std::vector<TokenSource>& sources, Shuffle shuffle) {
  return BatchLoader(sources, {plan.config.batch.sequence, plan.model.vocab_size, static_cast<std::uint64_t>(plan.config.run.seed), shuffle});
}

Shuffle train_order(const RunPlan& plan) { return plan.config.data.shuffle ? Shuffle::kPerEpoch : Shuffle::kInOrder; }

std::vector<WeightedPath> weighted_paths(const std::vector<DataSource>& sources) {
  std::vector<WeightedPath> paths;
  for (const DataSource& source : sources) paths.push_back({source.path, source.weight});
  return paths;
}

// Opens and checks the data; refuses what cannot be trained on.
void open_data(RunInputs& inputs) {
  const TrainConfig& config = inputs.plan.config;
  if (config.data.tokenizer) inputs.token_bytes = token_lengths(*config.data.tokenizer);
  const auto vocabulary = static_cast<std::size_t>(inputs.plan.model.vocab_size);
  if (config.data.tokenizer && inputs.token_bytes.size() < vocabulary) inputs.token_bytes.resize(vocabulary);
  inputs.sources = open_token_sources(weighted_paths(config.data.train), weighted_paths(config.data.valid), config.data.split);
  check_tokens(inputs.sources.train, make_loader(inputs.plan, inputs.sources.train, train_order(inputs.plan)), inputs.plan);
  if (config.eval.every == 0) return;
  if (inputs.sources.valid.empty()) {
    throw ConfigError(fmt::format("eval.every = {}: there is no validation data; set data.valid or data.split, or eval.every to 0", config.eval.every));
  }
  check_tokens(inputs.sources.valid, make_loader(inputs.plan, inputs.sources.valid, Shuffle::kInOrder), inputs.plan);
}

// Everything that can be known without a rank.
RunInputs prepare(const TrainConfig& config) {
  RunInputs inputs;
  check_run_folder(config.run.dir);
  check_thread_ranks(config);
  lr_schedule_of(config);
  const ModelConfig model = resolve_model(config);
  // Without a launcher the degrees say how many ranks there are; memory is theirs to share.
  const std::int64_t ranks = config.parallel.data.ranks.value_or(1) * config.parallel.pipeline * config.parallel.tensor;
  const MachineFacts machine = cpu_machine_facts(static_cast<int>(ranks));
  check_model_fits(model, machine.memory_per_rank * ranks);
  inputs.plan = make_run_plan(config, model, 0, machine);
  check_memory(inputs.plan, machine.memory_per_rank * ranks);
  open_data(inputs);
  const int world = inputs.plan.world_size(), threads = static_cast<int>(config.run.threads_per_rank);
  if (config.run.pin) inputs.first_core = core_for_rank(0, world, threads);
  if (config.run.pin && !inputs.first_core) {
    inputs.plan.notes.push_back(fmt::format("run.pin: {} ranks x {} threads are not pinned, {} cores are here", world, threads, usable_cores()));
  }
  return inputs;
}

// The loop of one rank. Rank 0 also writes.
class RankLoop {
 public:
  RankLoop(const RunInputs& inputs, const TrainOutput& output, CpuDevice& device, ThreadWorld& world, int rank)
      : inputs_(inputs),
        plan_(inputs.plan),
        output_(output),
        logger_(output.log, rank),
        device_(device),
        trainer_(inputs.plan, device, world.communicator(rank, device.progress())),
        loader_(make_loader(plan_, inputs.sources.train, train_order(plan_))) {
    if (plan_.config.eval.every > 0) valid_loader_.emplace(make_loader(plan_, inputs.sources.valid, Shuffle::kInOrder));
  }

  void run() {
    open();
    const double start = monotonic_seconds();
    if (rank() == 0) console_.emplace(output_.console, output_.mode, plan_.config.run.steps, 0, start);
    if (valid_loader_) summary_.first_valid = evaluate();
    while (updates_ < plan_.config.run.steps && !summary_.out_of_time) one_step(start);
    summary_.seconds = monotonic_seconds() - start;
    if (valid_loader_ && updates_ > 0) summary_.last_valid = last_eval_at_ == updates_ ? last_eval_ : evaluate();
    close();
  }

 private:
  int rank() const { return rank_; }

  // Rank 0 creates the run directory once every rank has its memory, so that a run that cannot start leaves nothing behind.
  void open() {
    rank_ = trainer_.context().rank();
    trainer_.context().world().barrier();
    if (rank() == 0) open_run_folder();
    trainer_.context().world().barrier();  // the peak is measured while nobody else works
  }

  void open_run_folder() {
    for (const std::string& line : opening_lines(plan_, device_.describe(), trainer_.arena_plan())) output_.console << line << '\n';
    make_run_folder(plan_.config.run.dir);
    write_config_file(plan_.config.run.dir, plan_.config);
    write_plan_file(plan_.config.run.dir, plan_, trainer_.arena_plan());
    const std::string metrics = plan_.config.run.dir + "/metrics.jsonl";
    if (file_exists(metrics)) output_.console << "note: " << metrics << " of an earlier run is replaced\n";
    metrics_.emplace(metrics);
    if (valid_loader_) eval_metrics_.emplace(plan_.config.run.dir + "/eval.jsonl");
    const int busy = std::min(usable_cores(), plan_.world_size() * static_cast<int>(plan_.config.run.threads_per_rank));
    peak_flops_ = measure_matmul_rate(device_, plan_.compute, 0.2) * busy / static_cast<double>(plan_.config.run.threads_per_rank);
  }

  bool out_of_time(double start) {
    if (plan_.config.run.max_minutes <= 0) return false;
    double minutes = (monotonic_seconds() - start) / 60;  // rank 0's clock decides for all
    trainer_.context().world().broadcast(trainer_.context().compute_stream(), TensorView(&minutes, DType::kF64, {1}), 0);
    return minutes >= plan_.config.run.max_minutes;
  }

  void one_step(double start) {
    trainer_.context().reset_bytes_sent();
    const double before = monotonic_seconds();
    const StepResult result = trainer_.step([this](std::int64_t first, std::int64_t count, auto tokens, auto targets) {
      loader_.load(first, count, tokens, targets);
    });
    const double seconds = monotonic_seconds() - before;
    if (!result.non_finite.empty()) logger_.warning("gradient is not finite, no rank applies the update: {}", result.non_finite);
    if (!result.applied) {
      ++summary_.skipped;
      if (++skipped_in_a_row_ == kMaxSkippedInARow) {
        throw Error(ExitCode::kNoProgress, fmt::format("{} batches in a row had non-finite gradients after update {}; lower optimizer.lr or "
                                                       "look at the data", kMaxSkippedInARow, updates_));
      }
      summary_.out_of_time = out_of_time(start);
      return;
    }
    skipped_in_a_row_ = 0;
    updates_ = result.updates;
    summary_.out_of_time = updates_ < plan_.config.run.steps && out_of_time(start);
    if (updates_ == 1) summary_.first_loss = result.loss;
    summary_.last_loss = result.loss;
    if (is_logged(updates_)) log(result, seconds);
    if (rank() == 0 && !is_logged(updates_)) console_->progress(updates_, monotonic_seconds());
    if (valid_loader_ && updates_ % plan_.config.eval.every == 0) evaluate();
  }

  bool is_logged(std::int64_t update) const {
    return update == 1 || update == plan_.config.run.steps || summary_.out_of_time || (plan_.config.log.every > 0 && update % plan_.config.log.every == 0);
  }

  // Collective: bytes are summed, the arena's high-water mark maximised over ranks.
  void log(const StepResult& result, double seconds) {
    std::array<double, kNumAxes> bytes = trainer_.context().bytes_sent();
    Communicator& world = trainer_.context().world();
    Stream& stream = trainer_.context().compute_stream();
    world.all_reduce(stream, TensorView(bytes.data(), DType::kF64, {kNumAxes}), ReduceOp::kSum);
    std::int64_t memory[2] = {trainer_.arena().planned_bytes(), trainer_.arena().high_water()};
    world.all_reduce(stream, TensorView(memory, DType::kI64, {2}), ReduceOp::kMax);
    stream.synchronize();
    summary_.bytes_counted = bytes;
    summary_.planned_bytes = memory[0];
    summary_.granted_bytes = memory[1];
    if (rank() != 0) return;
    const double tokens = static_cast<double>(plan_.tokens_per_step());
    const auto sent = [&](Axis axis) { return std::llround(bytes[static_cast<std::size_t>(axis)]); };
    StepMetrics metrics;
    metrics.step = updates_;
    metrics.loss = result.loss;
    metrics.grad_norm = result.grad_norm;
    metrics.lr = result.lr;
    metrics.tokens = updates_ * plan_.tokens_per_step();
    metrics.step_ms = 1e3 * seconds;
    metrics.tokens_per_s = tokens / seconds;
    metrics.mfu = model_flops_per_token(plan_.model, plan_.config.batch.sequence) * metrics.tokens_per_s / peak_flops_;
    metrics.peak_bytes = summary_.granted_bytes;
    metrics.comm_bytes = {sent(Axis::kTensor), sent(Axis::kContext), sent(Axis::kData), sent(Axis::kPipeline)};
    metrics_->write(metrics);
    console_->step(metrics, monotonic_seconds());
  }

  EvalResult evaluate() {
    const EvalResult result = trainer_.evaluate(
        [this](std::int64_t first, std::int64_t count, auto tokens, auto targets) { valid_loader_->load(first, count, tokens, targets); },
        plan_.config.eval.steps, inputs_.token_bytes);
    last_eval_ = result;
    last_eval_at_ = updates_;
    if (rank() == 0) {
      EvalMetrics metrics;
      metrics.step = updates_;
      metrics.valid_loss = result.loss;
      if (result.bytes_per_token) metrics.valid_bits_per_byte = bits_per_byte(result);
      eval_metrics_->write(metrics);
      console_->eval(metrics);
    }
    return result;
  }

  void close() {
    trainer_.drain();
    if (updates_ == 0) return;
    summary_.updates = updates_;
    summary_.tokens = updates_ * plan_.tokens_per_step();
    summary_.replayed_bubble = replay_bubble(plan_, collect_cpu_seconds(trainer_, plan_));
    if (rank() != 0) return;
    console_->finish();
    for (const std::string& line : closing_lines(plan_, summary_)) console_->line(line);
  }

  const RunInputs& inputs_;
  const RunPlan& plan_;
  const TrainOutput& output_;
  Logger logger_;
  CpuDevice& device_;
  RankTrainer trainer_;
  BatchLoader loader_;
  std::optional<BatchLoader> valid_loader_;
  std::optional<MetricsWriter> metrics_, eval_metrics_;
  std::optional<Console> console_;
  RunSummary summary_;
  EvalResult last_eval_;
  double peak_flops_ = 0;
  std::int64_t updates_ = 0, last_eval_at_ = -1;
  int rank_ = 0, skipped_in_a_row_ = 0;
};

}  // namespace

void refuse_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || std::atoi(value) <= 1) continue;
    throw ConfigError(fmt::format("{} = {}: started by a launcher as one of several processes; this build runs its ranks as threads, start "
                                  "`trident train` once, without mpirun or srun -n", name, value));
  }
}

void run_training(const TrainConfig& config, const TrainOutput& output) {
  const RunInputs inputs = prepare(config);
  const int threads = static_cast<int>(config.run.threads_per_rank);
  ThreadWorld world(inputs.plan.world_size());
  run_thread_ranks(world, [&](int rank) {
    CpuDeviceOptions options;
    options.threads_per_rank = threads;
    if (inputs.first_core) options.first_core = *inputs.first_core + rank * threads;
    CpuDevice device(world.doorbell(rank), options);
    RankLoop(inputs, output, device, world, rank).run();
  });
}

}  // namespace trident
