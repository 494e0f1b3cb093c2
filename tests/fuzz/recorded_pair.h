// The pair of token files that records of the corpus belong to.
#pragma once

#include <string>

namespace trident::fuzz {

// PREFIX.bin and PREFIX.idx: two documents of two tokens and one, as uint16.
void write_recorded_pair(const std::string& prefix);

}  // namespace trident::fuzz
