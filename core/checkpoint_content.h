// checkpoint.content.
#pragma once

#include <cstdint>

namespace trident {

enum class CheckpointContent : std::uint8_t { kAll, kWeights };  // kWeights: the weights in the compute dtype, nothing else

}  // namespace trident
