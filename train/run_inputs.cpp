#include "train/run_inputs.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "data/dataset_record.h"
#include "data/tokenizer/tokenizer.h"
#include "device/cpu/cpu_device.h"
#include "train/machine.h"
#include "train/preflight.h"
#include "train/rank_devices.h"
#include "train/rank_trainer.h"

namespace trident {
namespace {

// Tokens of each source that a fingerprint looks at: pages that every rank reads from the disk, and a tenth of a second of one rank
// per node.
constexpr std::int64_t kSomeTokens = 256, kAllTokens = std::int64_t{1} << 24;

std::vector<std::int32_t> token_lengths(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < lengths.size(); ++id) {
    const std::int32_t token = static_cast<std::int32_t>(id);
    if (token != tokenizer.eod()) lengths[id] = static_cast<std::int32_t>(tokenizer.decode({&token, 1}).size());
  }
  return lengths;
}

BatchLoader make_loader(const RunPlan& plan, const std::vector<TokenSource>& sources, Shuffle shuffle) {
  return BatchLoader(
      sources, {plan.config.batch.sequence, plan.model.vocab_size, static_cast<std::uint64_t>(plan.config.run.seed), shuffle});
}

Shuffle train_order(const RunPlan& plan) { return plan.config.data.shuffle ? Shuffle::kPerEpoch : Shuffle::kInOrder; }

std::vector<WeightedPath> weighted_paths(const std::vector<DataSource>& sources) {
  std::vector<WeightedPath> paths;
  for (const DataSource& source : sources) paths.push_back({source.path, source.weight});
  return paths;
}

std::vector<std::string> prefixes_of(const TokenSources& sources) {
  std::vector<std::string> prefixes;
  for (const auto* part : {&sources.train, &sources.valid})
    for (const TokenSource& source : *part) prefixes.push_back(source.dataset->prefix());
  return prefixes;
}

// Opens and checks the data; refuses what cannot be trained on.
void open_data(RunInputs& inputs, bool look_through) {
  const TrainConfig& config = inputs.plan.config;
  std::unique_ptr<Tokenizer> tokenizer;
  if (config.data.tokenizer && look_through) {
    tokenizer = load_tokenizer(*config.data.tokenizer, "data.tokenizer");
    inputs.token_bytes = token_lengths(*tokenizer);
    const auto vocabulary = static_cast<std::size_t>(inputs.plan.model.vocab_size);
    if (inputs.token_bytes.size() < vocabulary) inputs.token_bytes.resize(vocabulary);
  }
  inputs.sources = open_token_sources(weighted_paths(config.data.train), weighted_paths(config.data.valid), config.data.split);
  if (look_through)
    for (std::string& note :
         check_records(prefixes_of(inputs.sources), tokenizer.get(), "data.tokenizer", inputs.plan.model.vocab_size))
      inputs.plan.notes.push_back(std::move(note));
  if (look_through)
    check_tokens(inputs.sources.train, make_loader(inputs.plan, inputs.sources.train, train_order(inputs.plan)), inputs.plan);
  if (config.eval.every == 0) return;
  if (inputs.sources.valid.empty()) {
    throw ConfigError(fmt::format("eval.every = {}: there is no validation data; set data.valid or data.split, or eval.every to 0",
                                  config.eval.every));
  }
  if (look_through)
    check_tokens(inputs.sources.valid, make_loader(inputs.plan, inputs.sources.valid, Shuffle::kInOrder), inputs.plan);
}

}  // namespace

std::int64_t ranks_of(const ParallelConfig& parallel) {
  return parallel.data.ranks.value_or(1) * parallel.pipeline * parallel.tensor;
}

RunInputs prepare_run(const TrainConfig& config, const RunPlace& place, const MachineFacts& machine) {
  RunInputs inputs;
  check_run_folder(config.run.dir);
  if (place.world_size == 0) check_thread_ranks(config);
  lr_schedule_of(config);
  const ModelConfig model = resolve_model(config);
  // All memory together; machines and cards are judged one by one when arenas are known.
  check_model_fits(model, machine.bytes());
  inputs.plan = make_run_plan(config, model, place.world_size, machine);
  check_memory(inputs.plan, machine.bytes());
  open_data(inputs, place.reads_all);
  const int local = place.local_ranks > 0 ? place.local_ranks : inputs.plan.world_size(),
            threads = static_cast<int>(config.run.threads_per_rank);
  if (machine.device == DeviceKind::kCuda) {
    inputs.ranks_at_once = static_cast<double>(place.cards.size());
    inputs.peak_flops = named_peak_flops(place.cards, inputs.plan.compute).value_or(0);
    return inputs;  // cores are for those who compute on them
  }
  const int cores = place.nodes * std::min(place.world_size > 0 ? online_cores() : usable_cores(), local * threads);
  inputs.ranks_at_once = static_cast<double>(cores) / threads;
  if (threads > 1 && local * threads > online_cores()) {
    inputs.plan.notes.push_back(fmt::format(
        "run.threads_per_rank = {}: {} ranks x {} threads on {} cores; OpenMP's threads spin while they wait, which makes "
        "steps many times slower: use fewer threads, or set OMP_WAIT_POLICY=passive",
        threads, local, threads, online_cores()));
  }
  if (!config.run.pin) return inputs;
  inputs.first_core = core_for_rank(place.first_local, local, threads);
  if (!inputs.first_core) {
    inputs.plan.notes.push_back(
        fmt::format("run.pin: {} ranks x {} threads are not pinned, {} cores are here", local, threads, usable_cores()));
  }
  return inputs;
}

std::string data_fingerprint(const TokenSources& sources, DataDepth depth) {
  const std::int64_t looked_at = depth == DataDepth::kAll ? kAllTokens : kSomeTokens;
  std::string text;
  for (const auto* part : {&sources.train, &sources.valid}) {
    for (const TokenSource& source : *part) {
      const IndexedDataset& dataset = *source.dataset;
      text += fmt::format("{}{} documents, {} tokens of type {}, from {} for {}", text.empty() ? "" : "; ", dataset.num_documents(),
                          dataset.num_tokens(), static_cast<int>(dataset.type()), source.first_token, source.num_tokens);
      std::uint64_t hash = 14695981039346656037u;  // FNV-1a over tokens spread through the source
      const std::int64_t stride = std::max<std::int64_t>(1, source.num_tokens / looked_at);
      for (std::int64_t i = 0; i < source.num_tokens; i += stride) {
        std::int32_t token = 0;
        dataset.copy_tokens(source.first_token + i, 1, std::numeric_limits<std::int32_t>::max(), &token, 1);
        hash = (hash ^ static_cast<std::uint64_t>(token)) * 1099511628211u;
      }
      text += fmt::format(", content {:016x}", hash);
    }
  }
  return text;
}

BatchLoader train_loader(const RunInputs& inputs) {
  return make_loader(inputs.plan, inputs.sources.train, train_order(inputs.plan));
}

BatchLoader valid_loader(const RunInputs& inputs) { return make_loader(inputs.plan, inputs.sources.valid, Shuffle::kInOrder); }

}  // namespace trident
