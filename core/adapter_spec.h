// Low-rank adapters of a model (LoRA; Hu et al. 2021, arXiv 2106.09685; DoRA; Liu et al. 2024, arXiv 2402.09353): which linear
// layers have one, of what rank and scale.
// A pure value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// These follow a module's name in the name of a tensor, as PEFT names them: A [rank, in], B [out, rank], and with DoRA the
// magnitude [out].
inline constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight", kLoraMagnitude = ".lora_magnitude_vector";

// y += scale (x A^T) B^T beside y = x W^T of a module; A [rank, in], B [out, rank]. With DoRA the sum's columns are then multiplied
// by magnitude / length of the row of W + scale B A.
struct AdaptedModule {
  std::string module;  // Hugging Face's name, "model.layers.0.self_attn.q_proj"
  std::int64_t rank = 0;
  double scale = 1;

  std::string a() const { return std::string(module).append(kLoraA); }
  std::string b() const { return std::string(module).append(kLoraB); }
  std::string magnitude() const { return std::string(module).append(kLoraMagnitude); }
  bool operator==(const AdaptedModule&) const = default;
};

// Whether a tensor's name is one of an adapter's.
inline bool is_adapter_tensor(std::string_view tensor) {
  return tensor.ends_with(kLoraA) || tensor.ends_with(kLoraB) || tensor.ends_with(kLoraMagnitude);
}

struct AdapterSpec {
  std::vector<AdaptedModule> modules;  // by name
  double dropout = 0;                  // probability, of what A multiplies
  bool dora = false;                   // each has a magnitude

  // Null: the module has no adapter.
  const AdaptedModule* find(std::string_view module) const {
    const auto found = std::ranges::lower_bound(modules, module, {}, &AdaptedModule::module);
    return found == modules.end() || found->module != module ? nullptr : &*found;
  }
  bool operator==(const AdapterSpec&) const = default;
};

}  // namespace trident
