#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> swift_sections() { return {}; }

}  // namespace trident
