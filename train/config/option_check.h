// Checks one value by the option table: is it allowed, and if not, a sentence that helps.
#pragma once

#include <string>
#include <string_view>

#include "core/json_reader.h"
#include "train/config/option_table.h"

namespace trident {

// The values that the option takes, in words: `an integer from 1 to 1024 or "auto"`.
std::string expected_text(const Option& option);

// The value in its canonical form: aliases replaced, a neutral value of a reserved option replaced by the default, integers that
// stand for numbers made numbers. Throws ConfigError "<where><path> = <value>: <why>; <remedy>"; `where` is "" or ends in ": ".
JsonValue checked_value(const Option& option, const JsonValue& value, std::string_view where);

// The default, canonical; null for an option that the user must give.
JsonValue default_value(const Option& option);

// The option with this key that may have this value (null: any): of the run block, or the only one. nullptr: none, or several.
const Option* option_with_key(std::string_view key, const JsonValue& value);

// Says what the same key in another block, or another system's word, is called here: "; did you mean parallel.tensor?", or why it
// is to be left out. `near`: our own key that it may be a misspelling of; others' words count then where they mean that key.
// `value`: what was given for it, if that is known. "" for a word of nobody.
std::string name_here(std::string_view word, const JsonValue& value = {}, std::string_view near = "");
// The same for an unknown path, or the key of which it may be a misspelling; "" without an idea.
std::string did_you_mean(std::string_view unknown_path, const JsonValue& value = {});

// A value for a message: JSON text of one line, cut to a readable length.
std::string value_text(const JsonValue& value);

}  // namespace trident
