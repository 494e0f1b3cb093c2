// Foreign text in HTML, SVG and scripts: names of runs, models and machines come from outside.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/json_reader.h"

namespace trident {

// As content or as a quoted attribute: on one line (core/printable.h), with & < > " ' as references.
std::string html_escaped(std::string_view text);

// The whole of a text of at most so many bytes, else its beginning with "... (12,345 bytes)" behind it.
std::string beginning_of(std::string_view text, std::size_t most_bytes);

// JSON that a script element may hold: no "<", ">" or "&" in it, and no line separators that older scripts end lines at.
std::string script_json(const JsonValue& value);

}  // namespace trident
