// Which parameters of a model train. A pure value, resolved from a configuration's patterns before anything is declared; a model
// without one (null) trains everything.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "core/adapter_spec.h"

namespace trident {

struct Tuning {
  // Hugging Face's names of the tensors that stay as they are: "model.layers.0.mlp.up_proj.weight". A tied weight has one name.
  std::set<std::string, std::less<>> frozen;
  AdapterSpec adapters;  // whose tensors train beside them

  bool trains(std::string_view tensor) const { return !frozen.contains(tensor); }
};

}  // namespace trident
