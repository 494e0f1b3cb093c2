// Files of ranks: tiktoken's, and Mistral's tekken.json.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/chain_tokenizer.h"

namespace trident {

// Whether the first line is one of ranks: base64, a space, a number.
bool is_rank_file(std::string_view content);

// Lines of base64 of a token's bytes, a space, and its id, which is its rank. DataError that names the line: malformed, a token or
// an id twice; a byte without a token. The pattern and the control tokens are left to the caller.
ChainParts read_ranks(std::string_view content, const std::string& path);

// {"<|endoftext|>": 100257, ...}, added to the parts. DataError.
void read_special_file(const std::string& path, ChainParts& parts);

// Splits as `name_or_text` says: the name of a known pattern, or a regular expression as tiktoken has it. Qwen's normal form is
// NFC. ConfigError: what looks like a name and is none.
void set_pattern(std::string_view name_or_text, const std::string& where, ChainParts& parts);

// Control tokens come first, then as many tokens as default_vocab_size leaves room for. A text begins with <s>. DataError.
bool is_tekken(std::string_view content);
ChainParts read_tekken(std::string_view content, const std::string& path);

// OpenAI's, with its control tokens.
ChainParts cl100k_parts();

}  // namespace trident
