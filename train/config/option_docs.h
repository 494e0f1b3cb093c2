// The option table for people and editors.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "core/json_reader.h"
#include "train/config/option_values.h"
#include "train/config/train_config.h"

namespace trident {

// Columns of what `trident help` prints where no terminal has others.
inline constexpr std::size_t kHelpWidth = 80;

// `text` in lines of at most `width` columns, each after `indent` spaces and ending in a line break; a longer word keeps its
// line to itself.
std::string help_paragraph(std::string_view text, std::size_t indent, std::size_t width = kHelpWidth);

// Every key by section: default, meaning, what it takes. For `trident train --help`.
std::string options_help(std::size_t width = kHelpWidth);

// Everything about one key, or the keys of one section, for `trident help parallel.zero`; "" where there is no such key or section.
std::string option_help(std::string_view name, std::size_t width = kHelpWidth);

// A text in a cell of a table in Markdown.
std::string markdown_cell(std::string_view text);

// docs/configuration.md.
std::string options_markdown();

// JSON Schema, draft-07, for editors: types, ranges, choices, defaults, descriptions.
JsonValue options_schema();

// JSON text of an object, each value on a line with `origin_of` its path behind it as a comment; nothing there means a block, whose
// values have theirs. `block`: the path of the object, "" for the whole. No line break at its end.
using OriginOf = FunctionRef<std::optional<std::string>(const std::string& path)>;
std::string text_with_origins(const JsonValue& object, OriginOf origin_of, const std::string& block = "");

// The resolved configuration with a comment after each key: where its value comes from. parse_train_config reads it back.
std::string config_with_origins(const TrainConfig& config, const OptionValues& values);
// The keys among them that somebody gave: parse_train_config reads them to an equal configuration.
JsonValue given_to_json(const TrainConfig& config, const OptionValues& values);

}  // namespace trident
