// One folder of scripts/oracle/family_goldens.py: a tiny random model as transformers saved it, and what PyTorch computed with it.
// Reads with code that shares nothing with the product's readers, but the list of tensors, which is itself held to state_dict.txt.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "model/config/hf_tensors.h"
#include "model/config/model_config.h"
#include "tests/support/safetensors.h"

namespace trident::testing {

inline constexpr std::int64_t kFamilySteps = 6, kFamilyBatch = 6, kFamilySequence = 16, kFamilyShown = 2;

inline std::vector<std::string> family_golden_names() {
  return {"gpt2", "llama", "llama3", "smollm", "qwen2", "qwen2.5", "qwen3", "mistral", "olmo", "olmo2", "phi3",
          "olmo_clipped", "llama_dynamic", "mistral_windowed", "qwen2_windowed", "qwen3_mixed", "llama_softcapped"};
}

struct FamilyGolden {
  std::string folder, model_json;  // config.json
  ModelConfig model;
  std::map<std::string, std::vector<float>> weights;  // whole tensors, matrices [out, in]
  std::vector<std::int32_t> stream;                   // [steps, batch, sequence + 1]
  std::vector<float> logits;                          // [shown, sequence, vocabulary], of the first samples before step 1
  std::vector<float> losses, grad_norms;              // [steps]

  // Position `s` of sample `sample` of step `step`; one further is its target.
  std::int32_t token(std::int64_t step, std::int64_t sample, std::int64_t s) const {
    return stream.at(static_cast<std::size_t>((step * kFamilyBatch + sample) * (kFamilySequence + 1) + s));
  }
};

// Whole tensors of a Hugging Face file, which has all of the model's and no other; matrices [out, in].
inline std::map<std::string, std::vector<float>> out_by_in(const ModelConfig& model, const test::TensorMap& stored) {
  std::map<std::string, std::vector<float>> whole;
  for (const HfTensor& tensor : hf_tensors(model)) {
    const test::NamedTensor& in_file = stored.at(tensor.name);
    TRIDENT_CHECK(in_file.shape == tensor.shape, "{} has another shape in the file", tensor.name);
    const std::vector<float> values = in_file.values<float>();
    std::vector<float>& out = whole[tensor.name] = values;
    if (!tensor.transposed) continue;
    const auto inputs = static_cast<std::size_t>(tensor.shape[0]), outputs = static_cast<std::size_t>(tensor.shape[1]);
    for (std::size_t i = 0; i < inputs; ++i)
      for (std::size_t o = 0; o < outputs; ++o) out[o * inputs + i] = values[i * outputs + o];
  }
  TRIDENT_CHECK(whole.size() == stored.size(), "{} tensors in the file, {} in the list", stored.size(), whole.size());
  return whole;
}

// `goldens`: the folder of all of them.
inline FamilyGolden read_family_golden(const std::string& goldens, const std::string& name) {
  FamilyGolden golden;
  golden.folder = goldens + "/" + name + "/";
  golden.model_json = read_file(golden.folder + "config.json");
  golden.model = model_config_from_hf_json(golden.model_json, golden.folder + "config.json");
  golden.weights = out_by_in(golden.model, test::read_safetensors(golden.folder + "model.safetensors"));
  const test::TensorMap oracle = test::read_safetensors(golden.folder + "oracle.safetensors");
  golden.stream = oracle.at("stream").values<std::int32_t>();
  golden.logits = oracle.at("logits").values<float>();
  golden.losses = oracle.at("losses").values<float>();
  golden.grad_norms = oracle.at("grad_norms").values<float>();
  return golden;
}

}  // namespace trident::testing
