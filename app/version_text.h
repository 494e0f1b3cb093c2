// `trident --version` prints it: version, commit of the sources, compiler, libraries. cmake/version_text.cmake writes the source.
#pragma once

#include <string_view>

namespace trident {

std::string_view version_text();

}  // namespace trident
