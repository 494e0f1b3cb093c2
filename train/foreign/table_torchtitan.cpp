#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> torchtitan_sections() { return {}; }

}  // namespace trident
