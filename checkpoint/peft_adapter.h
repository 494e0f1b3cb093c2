// A folder of PEFT's form: adapter_config.json, and the weights of adapters to a base in adapter_model.safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "checkpoint/hf_folder.h"
#include "core/json_reader.h"
#include "model/config/model_config.h"
#include "model/config/peft_config.h"

namespace trident {

inline constexpr std::string_view kPeftWeightsName = "adapter_model.safetensors";
inline constexpr std::string_view kPeftPrefix = "base_model.model.";  // of all names in the file
// Trident's files have this text in their metadata: an object of content_hash() in hexadecimal by base_value_key(), of the base
// that the adapters were trained beside. PEFT has but a name.
inline constexpr std::string_view kPeftBaseValues = "trident.base_values";
std::string base_value_key(const ManifestTensor& tensor);  // a tensor that has got rows since is another one

class PeftAdapter {
 public:
  // Reads the configuration and the headers, no values. Throws as read_peft_config(); ConfigError naming tensor and both shapes
  // where the adapter is to another base; DataError as HfFolder, and where the weights are a pickle.
  PeftAdapter(const std::string& folder, const ModelConfig& base);

  const PeftConfig& config() const { return config_; }
  // Tokens of the model with the adapter: those of its copies of embedding and head, which may be more than the base's, else these.
  std::int64_t vocab_size() const { return vocab_size_; }
  // Its tensors: "<module>.lora_A.weight" and so on, and by the base's names the copies of tensors that were trained whole.
  const HfFolder& tensors() const { return tensors_; }
  // Null where the file does not say it. DataError where it is no object.
  JsonValue base_values() const;

  // The module whose weight the base's tensor of that name is; nullptr: it has no adapter.
  const PeftModule* module_of(std::string_view tensor) const;

 private:
  PeftAdapter(const std::string& folder, const ModelConfig& base, PeftConfig config);

  PeftConfig config_;
  HfFolder tensors_;
  std::int64_t vocab_size_;
  std::map<std::string, std::size_t, std::less<>> by_weight_;  // in config_.modules
};

}  // namespace trident
