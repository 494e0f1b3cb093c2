#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> llama_factory_sections() { return {}; }

}  // namespace trident
