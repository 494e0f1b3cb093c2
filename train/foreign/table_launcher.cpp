#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> launcher_sections() { return {}; }

}  // namespace trident
