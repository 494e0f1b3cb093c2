#include "train/run/reference.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "core/adapter_spec.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/fnv1a.h"
#include "train/config/resolve_model.h"
#include "train/config/resolve_tuning.h"
#include "train/run/reference_file.h"
#include "train/run/resume.h"

namespace trident {
namespace {

std::uint64_t identity_of(const RunInputs& inputs, const std::vector<ManifestTensor>& tensors) {
  const TrainConfig& config = inputs.plan.config;
  Fnv1a hash;
  const auto add = [&](std::string_view text) {
    hash.add(static_cast<std::uint64_t>(text.size()));
    hash.add(text);
  };
  for (const DataFacts& facts : inputs.training_facts()) add(facts.sizes), add(facts.content);
  add(config.reference);
  const auto in_base = [](const ManifestTensor& tensor) { return tensor.base.has_value(); };
  for (const ManifestTensor& tensor : tensors)
    if (in_base(tensor)) hash.add(*tensor.base);
  if (std::ranges::none_of(tensors, in_base)) add(config.model.init_from.value_or(""));  // else it may have moved
  if (!config.model.init_from) hash.add(static_cast<std::uint64_t>(config.run.seed));
  hash.add(static_cast<std::uint64_t>(config.batch.sequence));
  return hash.value();
}

// Asks about all sources, one behind the other.
std::vector<float> asked(const RunInputs& inputs, RankTrainer& trainer) {
  std::vector<BatchLoader> loaders;
  std::int64_t samples = 0;
  for (const TokenSource& source : inputs.sources.train)
    samples += loaders.emplace_back(loader_in_order(inputs, source)).samples_per_epoch();
  std::vector<float> values(static_cast<std::size_t>(2 * samples));
  std::span<float> rest = values;
  for (BatchLoader& loader : loaders) {
    const std::int64_t own = loader.samples_per_epoch();
    trainer.refer([&](std::int64_t first, std::int64_t count, const SampleSpans& spans) { loader.load(first, count, spans); }, own,
                  rest.first(static_cast<std::size_t>(2 * own)));
    rest = rest.subspan(static_cast<std::size_t>(2 * own));
  }
  return values;
}

bool has_adapters(const Resume& weights) {
  return std::ranges::any_of(weights.manifest.tensors, is_adapter_tensor, &ManifestTensor::name);
}

// Every element is one rank's, the others' are 0: the sum is exact.
void share(std::vector<float>& values, RankTrainer& trainer) {
  Stream& stream = trainer.context().host_stream();
  trainer.context().world().all_reduce(stream, TensorView(values.data(), DType::kF32, {std::ssize(values)}), ReduceOp::kSum);
  stream.synchronize();
}

}  // namespace

void check_reference(const RunInputs& inputs) {
  const RunPlan& plan = inputs.plan;
  const TrainConfig& config = plan.config;
  const Resume &reference = inputs.reference.value(), &initial = inputs.initial.value();
  if (const auto other = model_difference(model_of(reference), resolve_model(config)))
    throw ConfigError(
        fmt::format("reference = {}: is of another model: {} is {}, and this one's is {}; name weights of the same model",
                    in_quotes(config.reference), other->key, other->a, other->b));
  // Adapters stay as they are where the weights that are read have none.
  const bool has = has_adapters(reference);
  if (has != has_adapters(initial))
    throw ConfigError(
        fmt::format("reference = {}: has {}adapters, and model.init_from has {}; merge them (trident convert --to peft, then "
                    "--from peft BASE ADAPTER --to ckpt), and name the result",
                    in_quotes(config.reference), has ? "" : "no ", has ? "none" : "some"));
  if (has && resolve_tuning(config_of(reference).config, plan.model)->adapters.modules != plan.model.tuning->adapters.modules)
    throw ConfigError(
        fmt::format("reference = {}: has adapters of other modules, another rank or scale than this run's; merge them (trident "
                    "convert --to peft, then --from peft BASE ADAPTER --to ckpt), and name the result",
                    in_quotes(config.reference)));
}

std::vector<float> reference_of(const RunInputs& inputs, const std::vector<ManifestTensor>& tensors, RankTrainer& trainer,
                                const Logger& logger, const Say& say) {
  const TrainConfig& config = inputs.plan.config;
  const std::string path = fmt::format("{}/{}", config.run.dir, kReferenceFile);
  const bool writes = trainer.context().rank() == 0, is_initial = config.reference == kInitialReference;
  if (trainer.position().updates > 0) {
    std::int64_t samples = 0;
    for (const TokenSource& source : inputs.sources.train) samples += loader_in_order(inputs, source).samples_per_epoch();
    std::vector<float> values(static_cast<std::size_t>(2 * samples));
    if (writes) {
      std::optional<std::vector<float>> read = read_reference(path, identity_of(inputs, tensors), samples);
      if (!read)
        throw DataError(
            fmt::format("{}: is missing, and the weights before the first step, of which it tells, are gone; put the copy of the "
                        "folder there that the run began in",
                        path));
      values = *std::move(read);
    }
    share(values, trainer);
    return values;
  }
  const double start = monotonic_seconds();
  if (!is_initial) load_weights(inputs.reference.value(), trainer.model(), logger, "reference", config.reference);
  std::vector<float> values = asked(inputs, trainer);
  share(values, trainer);
  if (!is_initial) load_weights(inputs.initial.value(), trainer.model(), logger, "model.init_from", config.model.init_from.value());
  if (!writes) return values;
  write_reference(path, identity_of(inputs, tensors), values);
  say(fmt::format("{}: log-probabilities of {} by {} (reference), in {:.1f} s", path, counted(std::ssize(values) / 2, "pair"),
                  is_initial ? "the weights before the first step" : config.reference, monotonic_seconds() - start));
  return values;
}

}  // namespace trident
