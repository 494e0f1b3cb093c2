// Words of command lines that users paste into a shell.
#pragma once

#include <string>

namespace trident {

// The word in single quotes where a shell would take it apart or change it.
std::string for_shell(const std::string& word);

}  // namespace trident
