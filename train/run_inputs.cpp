#include "train/run_inputs.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>

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
  return BatchLoader(
      sources, {plan.config.batch.sequence, plan.model.vocab_size, static_cast<std::uint64_t>(plan.config.run.seed), shuffle});
}

Shuffle train_order(const RunPlan& plan) { return plan.config.data.shuffle ? Shuffle::kPerEpoch : Shuffle::kInOrder; }

std::vector<WeightedPath> weighted_paths(const std::vector<DataSource>& sources) {
  std::vector<WeightedPath> paths;
  for (const DataSource& source : sources) paths.push_back({source.path, source.weight});
  return paths;
}

// Opens and checks the data; refuses what cannot be trained on.
void open_data(RunInputs& inputs, bool look_through) {
  const TrainConfig& config = inputs.plan.config;
  if (config.data.tokenizer && look_through) {
    inputs.token_bytes = token_lengths(*config.data.tokenizer);
    const auto vocabulary = static_cast<std::size_t>(inputs.plan.model.vocab_size);
    if (inputs.token_bytes.size() < vocabulary) inputs.token_bytes.resize(vocabulary);
  }
  inputs.sources = open_token_sources(weighted_paths(config.data.train), weighted_paths(config.data.valid), config.data.split);
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

void place_on_cores(RunInputs& inputs, const RunPlace& place, const MachineFacts& machine) {
  const CoreShare& share = machine.core_share;
  const int local = place.local_ranks > 0 ? place.local_ranks : inputs.plan.world_size(), threads = inputs.plan.threads_per_rank;
  inputs.ranks_at_once = static_cast<double>(place.nodes * std::min(share.at_once(), local * threads)) / threads;
  const bool bound_already = std::ssize(machine.cores.ids) < share.cores;  // each rank to cores of its own, by its launcher
  if (!inputs.plan.config.run.pin || bound_already) return;
  // Under a quota the cores belong to others, too, whose programs would all take the first ones.
  if (share.at_once() == share.cores) inputs.first_core = core_for_rank(place.first_local, local, threads);
  if (inputs.first_core) return;
  const std::string cores = counted(share.cores, "core");
  inputs.plan.notes.push_back(share.at_once() < share.cores
                                  ? fmt::format("not pinned: a CPU quota of {:.3g} on {}", *share.quota, cores)
                                  : fmt::format("not pinned: {} on {}", counted(local * threads, "thread"), cores));
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
  if (machine.device == DeviceKind::kCuda) {
    inputs.ranks_at_once = static_cast<double>(place.cards.size());
    inputs.peak_flops = named_peak_flops(place.cards, inputs.plan.compute).value_or(0);
    return inputs;  // cores are for those who compute on them
  }
  place_on_cores(inputs, place, machine);
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

std::vector<ValidationSet> validation_sets(const RunInputs& inputs) {
  const DataConfig& data = inputs.plan.config.data;
  const std::vector<DataSource>& named = data.valid.empty() ? data.train : data.valid;  // of data.split: the parts of these
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  std::set<std::string> names;
  double weights = 0;
  for (const DataSource& source : named) names.insert(last_part(source.path)), weights += source.weight;
  std::vector<ValidationSet> sets;
  for (std::size_t i = 0; i < inputs.sources.valid.size(); ++i) {
    const std::string& path = named[i].path;
    sets.push_back({names.size() == named.size() ? last_part(path) : path, named[i].weight / weights,
                    make_loader(inputs.plan, {inputs.sources.valid[i]}, Shuffle::kInOrder)});
  }
  return sets;
}

}  // namespace trident
