// scripts/nodes.sh, which makes the nodes, and what it ends with where the machine makes none.
#pragma once

namespace trident {

inline constexpr int kCannotMakeNodes = 77;
inline constexpr const char* kNodes = TRIDENT_SOURCE_DIR "/scripts/nodes.sh";

}  // namespace trident
