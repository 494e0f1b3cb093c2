#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> megatron_sections() { return {}; }

}  // namespace trident
