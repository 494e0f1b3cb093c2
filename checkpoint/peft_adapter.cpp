#include "checkpoint/peft_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>
#include <vector>

#include "core/adapter_spec.h"
#include "core/check.h"
#include "core/file_io.h"
#include "model/config/hf_tensors.h"

namespace trident {
namespace {

PeftConfig read_config(const std::string& folder, const ModelConfig& base) {
  const std::string path = folder + "/" + std::string(kPeftConfigName);
  if (!is_there(path)) throw DataError(fmt::format("{}: is not there; name a folder that PEFT saved an adapter in", path));
  PeftConfig config = read_peft_config(read_json_file(path, {.blame = ExitCode::kData}), base, path);
  const std::string weights = folder + "/" + std::string(kPeftWeightsName), pickle = folder + "/adapter_model.bin";
  if (!is_there(weights) && is_there(pickle))
    throw DataError(
        fmt::format("{}: is a pickle, which is not read; save the adapter once more as safetensors (save_pretrained() of "
                    "peft does)",
                    pickle));
  return config;
}

std::vector<ManifestTensor> tensors_of(const PeftConfig& config, const ModelConfig& base) {
  std::vector<ManifestTensor> tensors;
  for (const PeftModule& module : config.modules) {
    tensors.push_back({fmt::format("{}{}", module.name, kLoraA), {module.rank, module.in}});
    tensors.push_back({fmt::format("{}{}", module.name, kLoraB), {module.out, module.rank}});
    if (config.dora) tensors.push_back({fmt::format("{}{}", module.name, kLoraMagnitude), {module.out}});
  }
  const std::set<std::string_view> copies(config.copies.begin(), config.copies.end());
  for (ManifestTensor& tensor : tensors_of_hf(base))
    if (copies.contains(tensor.name)) tensors.push_back(std::move(tensor));
  return tensors;
}

// Says what a name in the file means: a tensor of an adapter, or one of the base, which modules with adapters call base_layer.
HfMeanings meanings_of(const std::vector<ManifestTensor>& expected, const ModelConfig& base) {
  std::set<std::string, std::less<>> names;
  for (const ManifestTensor& tensor : expected) names.insert(tensor.name);
  return [names, of_base = HfNames(base)](std::string_view in_file) -> HfName {
    if (!in_file.starts_with(kPeftPrefix)) return {};
    std::string name(in_file.substr(kPeftPrefix.size()));
    if (names.contains(name)) return {HfNameKind::kTensor, name};
    // PEFT saves the ends of a resized model and trained biases as they lie in it, too: a copy once more, and what it replaced.
    for (const std::string_view again : {".modules_to_save.", ".original_module."})
      if (const std::size_t at = name.rfind(again);
          at != name.npos && names.contains(std::string(name).erase(at, again.size() - 1)))
        return {HfNameKind::kBuffer, {}};
    constexpr std::string_view kBaseLayer = ".base_layer.";
    if (const std::size_t at = name.rfind(kBaseLayer); at != name.npos) name.erase(at, kBaseLayer.size() - 1);
    HfName meaning = of_base(name);
    return meaning.kind == HfNameKind::kBuffer ? HfName() : meaning;
  };
}

}  // namespace

PeftAdapter::PeftAdapter(const std::string& folder, const ModelConfig& base)
    : PeftAdapter(folder, base, read_config(folder, base)) {}

PeftAdapter::PeftAdapter(const std::string& folder, const ModelConfig& base, PeftConfig config)
    : config_(std::move(config)),
      tensors_(folder, tensors_of(config_, base), meanings_of(tensors_of(config_, base), base),
               {.weights = kPeftWeightsName,
                .index = "adapter_model.safetensors.index.json",
                .says = "adapter_config.json and the base's config.json",
                .optional = tensors_of_hf(base),  // PEFT saves a head's copy beside its adapter
                .by_token = tensors_by_token(base),
                .may_have_other_tokens = true,
                .wrong_shape = ExitCode::kConfig}),
      vocab_size_(base.vocab_size) {
  tensors_.check_tied_copies();
  for (const std::string& name : tensors_by_token(base))
    if (const HfFileTensor* const copy = tensors_.find(name)) vocab_size_ = copy->shape.front();
  for (const std::string& name : tensors_by_token(base)) {
    const HfFileTensor* const copy = tensors_.find(name);
    if (const std::int64_t rows = copy != nullptr ? copy->shape.front() : base.vocab_size; rows != vocab_size_)
      throw ConfigError(fmt::format("{}: has copies for {} tokens, and {} has {} rows; name both ends of the model in "
                                    "modules_to_save",
                                    folder, vocab_size_, name, rows));
  }
  for (std::size_t m = 0; m < config_.modules.size(); ++m) by_weight_.emplace(fmt::format("{}.weight", config_.modules[m].name), m);
}

std::string base_value_key(const ManifestTensor& tensor) { return fmt::format("{} {}", tensor.name, fmt::join(tensor.shape, "x")); }

JsonValue PeftAdapter::base_values() const {
  const auto text = tensors_.metadata().find(kPeftBaseValues);
  if (text == tensors_.metadata().end()) return {};
  const std::string source = fmt::format("{}: {}", tensors_.path(0), kPeftBaseValues);
  JsonValue values = parse_json(text->second, source, {.comments = false, .blame = ExitCode::kData});
  if (!values.is_object()) throw DataError(fmt::format("{}: expected an object; convert the adapter again", source));
  return values;
}

const PeftModule* PeftAdapter::module_of(std::string_view tensor) const {
  const auto found = by_weight_.find(tensor);
  return found == by_weight_.end() ? nullptr : &config_.modules[found->second];
}

}  // namespace trident
