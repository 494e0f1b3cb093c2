#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> olmo_sections() { return {}; }

}  // namespace trident
