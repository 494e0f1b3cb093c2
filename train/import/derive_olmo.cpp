#include "train/import/facts.h"

namespace trident {

void derive_olmo(Facts&) {}

}  // namespace trident
