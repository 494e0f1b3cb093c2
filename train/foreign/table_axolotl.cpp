#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> axolotl_sections() { return {}; }

}  // namespace trident
