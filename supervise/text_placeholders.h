// {name} in a text that a user wrote.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trident {

using Placeholders = std::vector<std::pair<std::string_view, std::string>>;  // "{host}" -> what stands there

// Every placeholder of the text replaced; what was put in is not looked at again.
std::string with_placeholders(std::string_view text, const Placeholders& values);

}  // namespace trident
