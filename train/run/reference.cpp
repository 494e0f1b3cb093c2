#include "train/run/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "core/adapter_spec.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/fnv1a.h"
#include "train/config/resolve_model.h"
#include "train/config/resolve_tuning.h"
#include "train/run/resume.h"

namespace trident {
namespace {

// reference.f32 of a run directory: what the reference of preference optimisation says of every pair of the training data.
// reference_valid.f32: the same of the validation data.
//
// Little-endian: 4 bytes "TREF", u32 version = 1, u64 identity of data and reference, u64 pairs, u64 hash of the values
// (FNV-1a), then 2 f32 a pair: the log-probability of the chosen and of the rejected answer's counted targets.
constexpr const char *kReferenceFile = "reference.f32", *kValidReferenceFile = "reference_valid.f32";

struct Header {
  char magic[4] = {'T', 'R', 'E', 'F'};
  std::uint32_t version = 1;
  std::uint64_t identity = 0, pairs = 0, content = 0;
};
static_assert(sizeof(Header) == 32);

std::uint64_t content_of(const std::vector<float>& values) {
  Fnv1a hash;
  hash.add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  return hash.value();
}

void write_reference(const std::string& path, std::uint64_t identity, const std::vector<float>& values) {
  const Header header{.identity = identity, .pairs = values.size() / 2, .content = content_of(values)};
  std::string content(sizeof header + values.size() * sizeof(float), '\0');
  std::memcpy(content.data(), &header, sizeof header);
  if (!values.empty()) std::memcpy(content.data() + sizeof header, values.data(), values.size() * sizeof(float));
  write_file(path, content);
}

// Nothing where there is no such file.
std::optional<std::vector<float>> read_reference(const std::string& path, std::uint64_t identity, std::int64_t pairs) {
  if (!file_exists(path)) return std::nullopt;
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format(
        "{}: {}; put the run's own file back, or begin anew (--set run.overwrite=true --set checkpoint.resume=never)", path, why));
  };
  const std::string content = read_file(path);
  Header header{.version = 0}, wanted;
  const std::size_t bytes = sizeof header + static_cast<std::size_t>(2 * pairs) * sizeof(float);
  if (content.size() >= sizeof header) std::memcpy(&header, content.data(), sizeof header);
  if (std::memcmp(header.magic, wanted.magic, sizeof header.magic) != 0 || header.version != wanted.version)
    refuse("is no file of a reference's log-probabilities");
  if (header.identity != identity) refuse("belongs to other training data or to another reference");
  if (header.pairs != static_cast<std::uint64_t>(pairs) || content.size() != bytes)
    refuse(fmt::format("has {} bytes, and {} pairs take {}", content.size(), pairs, bytes));
  std::vector<float> values(static_cast<std::size_t>(2 * pairs));
  if (!values.empty()) std::memcpy(values.data(), content.data() + sizeof header, values.size() * sizeof(float));
  if (content_of(values) != header.content) refuse("is damaged: its values are others than were written");
  return values;
}

// The pairs of some sources, in a file.
struct AskedPart {
  std::string path;
  std::span<const TokenSource> sources;
  std::span<const DataFacts> facts;
  std::vector<float>* values;
};

std::uint64_t identity_of(const RunInputs& inputs, std::span<const DataFacts> data, const std::vector<ManifestTensor>& tensors) {
  const TrainConfig& config = inputs.plan.config;
  Fnv1a hash;
  const auto add = [&](std::string_view text) {
    hash.add(static_cast<std::uint64_t>(text.size()));
    hash.add(text);
  };
  for (const DataFacts& facts : data) add(facts.sizes), add(facts.content);
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
std::vector<float> asked(const RunInputs& inputs, std::span<const TokenSource> sources, RankTrainer& trainer) {
  std::vector<BatchLoader> loaders;
  std::int64_t answers = 0;
  for (const TokenSource& source : sources)
    answers += loaders.emplace_back(loader_in_order(inputs, source)).sequences_per_epoch();
  const bool without = inputs.plan.config.reference == kAdapterOffReference;
  const auto adapters = without ? RankTrainer::Adapters::kOff : RankTrainer::Adapters::kOn;
  std::vector<float> values(static_cast<std::size_t>(answers));
  std::span<float> rest = values;
  for (BatchLoader& loader : loaders) {
    const auto own = static_cast<std::size_t>(loader.sequences_per_epoch());
    trainer.refer([&](std::int64_t first, std::int64_t count, const SampleSpans& spans) { loader.load(first, count, spans); },
                  loader.samples_per_epoch(), rest.first(own), adapters);
    rest = rest.subspan(own);
  }
  return values;
}

// Reads what an earlier start wrote, on the rank that `reads`; the others have 0.
void read_part(const RunInputs& inputs, const AskedPart& part, std::uint64_t identity, bool reads) {
  std::int64_t answers = 0;
  for (const TokenSource& source : part.sources) answers += loader_in_order(inputs, source).sequences_per_epoch();
  part.values->resize(static_cast<std::size_t>(answers));
  if (!reads) return;
  std::optional<std::vector<float>> read = read_reference(part.path, identity, answers / 2);
  if (!read)
    throw DataError(
        fmt::format("{}: is missing, and the weights before the first step, of which it tells, are gone; put the copy of the "
                    "folder there that the run began in{}",
                    part.path, part.path.ends_with(kValidReferenceFile) ? ", or evaluate nothing (--set eval.every=0)" : ""));
  *part.values = *std::move(read);
}

bool has_adapters(const WeightsSource& weights) {
  return weights.beside != nullptr ||
         std::ranges::any_of(weights.manifest.tensors, is_adapter_tensor, &ManifestTensor::name);
}

// The weights as they were before modules trained whole beside adapters (adapter.modules_to_save), which leaving these out does not
// undo: `weights` where none did, else a base; null: no base has them.
const WeightsSource* before_saved_modules(const WeightsSource& weights) {
  const WeightsSource* at = &weights;
  while (at != nullptr && at->hf == nullptr && !config_of(*at).config.adapter.modules_to_save.empty()) at = at->base.get();
  return at;
}

// Weights that are asked where training begins with others; nothing: training's are asked.
std::optional<Resume> asked_weights(const RunInputs& inputs) {
  const TrainConfig& config = inputs.plan.config;
  if (config.names_reference()) return inputs.reference;
  if (config.reference != kAdapterOffReference || !inputs.initial) return std::nullopt;
  const WeightsSource* const before = before_saved_modules(*inputs.initial);
  return before == &*inputs.initial ? std::nullopt : std::optional(Resume{*before});
}

// Every element is one rank's, the others' are 0: the sum is exact.
void share(std::vector<float>& values, RankTrainer& trainer) {
  Stream& stream = trainer.context().host_stream();
  trainer.context().world().all_reduce(stream, TensorView(values.data(), DType::kF32, {std::ssize(values)}), ReduceOp::kSum);
}

}  // namespace

void check_reference(const RunInputs& inputs) {
  const RunPlan& plan = inputs.plan;
  const TrainConfig& config = plan.config;
  const Resume& initial = inputs.initial.value();
  if (!inputs.reference && before_saved_modules(initial) == nullptr)
    throw ConfigError(
        fmt::format("reference = \"adapter_off\": {} has modules that trained whole (adapter.modules_to_save) and no base that has "
                    "them as they were; merge the adapters (trident convert --from ckpt --to hf), begin from the result, and name "
                    "the weights from before in reference",
                    initial.folder));
  if (!inputs.reference) return;
  const Resume& reference = *inputs.reference;
  if (const auto other = model_difference(model_of(reference), resolve_model(config)))
    throw ConfigError(
        fmt::format("reference = {}: is of another model: {} is {}, and this one's is {}; name weights of the same model",
                    in_quotes(config.reference), other->path, other->a, other->b));
  // Adapters stay as they are where the weights that are read have none.
  const bool has = has_adapters(reference);
  if (has != has_adapters(initial))
    throw ConfigError(
        fmt::format("reference = {}: has {}adapters, and model.init_from has {}; merge them (trident convert --to peft, then "
                    "--from peft BASE ADAPTER --to ckpt), and name the result",
                    in_quotes(config.reference), has ? "" : "no ", has ? "none" : "some"));
  const auto adapters_of = [](const Tuning& tuning) { return std::pair(tuning.adapters.modules, tuning.adapters.dora); };
  if (has && adapters_of(*resolve_tuning(config_of(reference).config, plan.model)) != adapters_of(*plan.model.tuning))
    throw ConfigError(
        fmt::format("reference = {}: has adapters of another type, other modules, another rank or scale than this run's; merge "
                    "them (trident convert --to peft, then --from peft BASE ADAPTER --to ckpt), and name the result",
                    in_quotes(config.reference)));
}

PairReference reference_of(const RunInputs& inputs, const std::vector<ManifestTensor>& tensors, RankTrainer& trainer,
                           const Logger& logger, const Say& say, const ReferenceUse& use) {
  const TrainConfig& config = inputs.plan.config;
  const bool writes = trainer.context().rank() == 0;
  PairReference reference;
  std::vector<AskedPart> parts;
  const std::span<const DataFacts> facts = inputs.data_facts;
  const auto path_of = [&](const char* name) { return fmt::format("{}/{}", config.run.dir, name); };
  const std::size_t of_training = inputs.sources.train.size();
  if (use.trains)
    parts.push_back({path_of(kReferenceFile), inputs.sources.train, facts.first(of_training), &reference.train});
  if (use.evaluates)
    parts.push_back({path_of(kValidReferenceFile), inputs.sources.valid, facts.subspan(of_training), &reference.valid});
  if (trainer.position().updates > 0) {
    for (const AskedPart& part : parts) {
      read_part(inputs, part, writes ? identity_of(inputs, part.facts, tensors) : 0, writes);
      share(*part.values, trainer);
    }
    return reference;
  }
  const double start = monotonic_seconds();
  const std::optional<Resume> other = asked_weights(inputs);
  if (other) load_weights(*other, trainer.model(), logger, "reference", config.reference);
  for (const AskedPart& part : parts) {
    *part.values = asked(inputs, part.sources, trainer);
    share(*part.values, trainer);
  }
  if (other) load_weights(inputs.initial.value(), trainer.model(), logger, "model.init_from", config.model.init_from.value());
  for (const AskedPart& part : parts) {
    if (!writes) continue;
    write_reference(part.path, identity_of(inputs, part.facts, tensors), *part.values);
    say(fmt::format("{}: log-probabilities of {} by {} (reference), in {:.1f} s", part.path,
                    counted(std::ssize(*part.values) / 2, "pair"),
                    config.names_reference()                   ? config.reference
                    : config.reference == kAdapterOffReference ? "the weights before the first step without their adapters"
                                                               : "the weights before the first step",
                    monotonic_seconds() - start));
  }
  return reference;
}

}  // namespace trident
