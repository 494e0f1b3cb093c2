#include "train/import/facts.h"

namespace trident {

void derive_torchtitan(Facts&) {}

}  // namespace trident
