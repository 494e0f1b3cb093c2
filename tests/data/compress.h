// Compressed files for tests.
#pragma once

#include <string>
#include <string_view>

namespace trident {

std::string gzipped(std::string_view text);  // one member
std::string zstd_packed(std::string_view text);  // one frame, with a checksum

}  // namespace trident
