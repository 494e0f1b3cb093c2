// Low-rank adapters of a model (LoRA; Hu et al. 2021, arXiv 2106.09685): which linear layers have one, of what rank and scale.
// A pure value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// y += scale (x A^T) B^T beside y = x W^T of a module; A [rank, in], B [out, rank].
struct AdaptedModule {
  std::string module;  // Hugging Face's name, "model.layers.0.self_attn.q_proj"
  std::int64_t rank = 0;
  double scale = 1;

  std::string a() const { return module + ".lora_A.weight"; }
  std::string b() const { return module + ".lora_B.weight"; }
  bool operator==(const AdaptedModule&) const = default;
};

// Whether a tensor's name is one of an adapter's.
inline bool is_adapter_tensor(std::string_view tensor) {
  return tensor.ends_with(".lora_A.weight") || tensor.ends_with(".lora_B.weight");
}

struct AdapterSpec {
  std::vector<AdaptedModule> modules;  // by name
  double dropout = 0;                  // probability, of what A multiplies

  // Null: the module has no adapter.
  const AdaptedModule* find(std::string_view module) const {
    const auto found = std::ranges::lower_bound(modules, module, {}, &AdaptedModule::module);
    return found == modules.end() || found->module != module ? nullptr : &*found;
  }
  bool operator==(const AdapterSpec&) const = default;
};

}  // namespace trident
