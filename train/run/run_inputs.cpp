#include "train/run/run_inputs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/int_math.h"

namespace trident {
namespace {

BatchLoader make_loader(const RunInputs& inputs, const std::vector<TokenSource>& sources, Shuffle shuffle, BlendStart start = {}) {
  const RunPlan& plan = inputs.plan;
  return BatchLoader(sources, {plan.config.batch.sequence, plan.model.vocab_size, static_cast<std::uint64_t>(plan.config.run.seed),
                               shuffle, std::move(start), inputs.documents});
}

Shuffle train_order(const RunPlan& plan) { return plan.config.data.shuffle ? Shuffle::kPerEpoch : Shuffle::kInOrder; }

// New weights, and another number of sources, begin the rule anew, behind the samples that were taken so far.
BlendStart blend_start(const TrainConfig& config, const std::optional<Resume>& resume) {
  if (!resume || config.data.train.size() < 2) return {};
  const TrainingState& state = resume->manifest.state;
  const TrainConfig then = config_of(*resume).config;
  if (std::ranges::equal(config.data.train, then.data.train, {}, &WeightedPath::weight, &WeightedPath::weight))
    return {state.blend_start, state.blend_taken};
  std::vector<std::int64_t> taken = state.blend_now;
  taken.resize(config.data.train.size());
  return {state.position, std::move(taken)};
}

}  // namespace

std::vector<DataFacts> RunInputs::training_facts() const {
  return {data_facts.begin(), data_facts.begin() + std::ssize(sources.train)};
}

BatchLoader train_loader(const RunInputs& inputs, const std::optional<Resume>& resume) {
  return make_loader(inputs, inputs.sources.train, train_order(inputs.plan), blend_start(inputs.plan.config, resume));
}

BatchLoader loader_in_order(const RunInputs& inputs, const TokenSource& source) {
  return make_loader(inputs, {source}, Shuffle::kInOrder);
}

std::int64_t eval_samples(const TrainConfig& config, std::int64_t samples_of_set) {
  const std::int64_t global = config.batch.global;
  return std::min(std::min(config.eval.steps, ceil_div(samples_of_set, global)) * global, samples_of_set);
}

std::vector<ValidationSet> validation_sets(const RunInputs& inputs) {
  const DataConfig& data = inputs.plan.config.data;
  const std::vector<WeightedPath>& named = data.valid.empty() ? data.train : data.valid;  // of data.split: the parts of these
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  std::set<std::string> names;
  double weights = 0;
  for (const WeightedPath& source : named) names.insert(last_part(source.path)), weights += source.weight;
  std::vector<ValidationSet> sets;
  for (std::size_t i = 0; i < inputs.sources.valid.size(); ++i) {
    const std::string& path = named[i].path;
    BatchLoader loader = loader_in_order(inputs, inputs.sources.valid[i]);
    const std::int64_t samples = eval_samples(inputs.plan.config, loader.samples_per_epoch());
    sets.push_back({names.size() == named.size() ? last_part(path) : path, named[i].weight / weights, std::move(loader), samples});
  }
  return sets;
}

}  // namespace trident
