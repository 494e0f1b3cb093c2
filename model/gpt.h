// A decoder-only model as a list of units: 0 the embedding, 1 .. L the blocks, L+1 the head.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/config/model_config.h"
#include "model/layer.h"

namespace trident {

inline int num_units(const ModelConfig& config) { return static_cast<int>(config.layers) + 2; }
inline int head_unit(const ModelConfig& config) { return num_units(config) - 1; }

// Whether the model can be split over layout.degree ranks and run on sequences of this length. Throws ConfigError naming
// parallel.tensor or batch.sequence, the values that do not divide, and degrees or lengths that would work.
void check_layout(const ModelConfig& config, const TensorLayout& layout, std::int64_t sequence);

// The layer of a unit. The layout it is planned with has passed check_layout.
std::unique_ptr<Layer> make_unit(const ModelConfig& config, int unit);

// The unit's parameters: what its layer declares. The same on every rank.
std::vector<ParamSpec> unit_params(const ModelConfig& config, const TensorLayout& layout, int unit);

// Sub-axes of tp over which some parameter's gradient is partial, each once.
std::vector<SubAxis> partial_axes(const ModelConfig& config, const TensorLayout& layout);

}  // namespace trident
