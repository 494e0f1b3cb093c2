// Token ids that a user writes, and whether they are a model's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace trident {

class Tokenizer;

// Parses a text such as "5 17 2" or "5,17,2". `key` asked for them. ConfigError that names key, text and the word that is
// no id.
std::vector<std::int32_t> parse_token_ids(std::string_view text, std::string_view key);

// Refuses (ConfigError) ids outside 0 .. vocabulary-1. `what`: of what they are, "prompt 0"; `tokenizer`: that made them, or
// nullptr.
void check_token_ids(std::span<const std::int32_t> ids, std::int64_t vocabulary, std::string_view what,
                     const Tokenizer* tokenizer);

}  // namespace trident
