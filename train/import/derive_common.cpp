#include "train/import/facts.h"

namespace trident {

void derive_common(Facts&) {}

}  // namespace trident
