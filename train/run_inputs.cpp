#include "train/run_inputs.h"

#include <memory>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "device/cpu/cpu_device.h"
#include "train/machine.h"
#include "train/preflight.h"
#include "train/rank_trainer.h"

namespace trident {
namespace {

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

}  // namespace

RunInputs prepare_run(const TrainConfig& config) {
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

BatchLoader train_loader(const RunInputs& inputs) { return make_loader(inputs.plan, inputs.sources.train, train_order(inputs.plan)); }

BatchLoader valid_loader(const RunInputs& inputs) { return make_loader(inputs.plan, inputs.sources.valid, Shuffle::kInOrder); }

}  // namespace trident
