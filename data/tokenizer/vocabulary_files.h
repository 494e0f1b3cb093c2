// Files of tokens and merges, as the parts of a tokenizer: vocab.json and merges.txt; tokenizer.json, the file of Hugging Face's
// tokenizers library; ranks, tiktoken's and Mistral's tekken.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json_reader.h"
#include "core/json_scanner.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/chain_tokenizer.h"

namespace trident {

inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;

// Takes the first line off `rest`, and its end, "\n" or "\r\n".
std::string_view take_line(std::string_view& rest);

// The object of token: id that comes next. DataError that names `source`: an id that is none, or occurs twice.
void read_vocab(JsonScanner& scanner, const std::string& source, TokenTexts& tokens);

// Adds a merge whose parts and result are tokens. Returns what is wrong, or "".
std::string_view add_merge(std::string_view left, std::string_view right, ChainParts& parts);

// The model of vocab.json ({"token": id, ...}) and merges.txt ("left right" a line, best first; lines "#version..." are skipped),
// both in the printable spelling of bytes. Replaces the tokens and merges of `parts`. The names are for messages. DataError.
struct VocabularyFiles {
  std::string_view vocab_json, merges_txt;
  std::string vocab_source, merges_source;
};
void read_vocabulary(const VocabularyFiles& files, ChainParts& parts);

// The parts of a tokenizer that does what GPT-2 does, without tokens.
ChainParts gpt2_parts();

// `text` must describe a BPE model behind components that are built. Any other type or field is a DataError "FILE: PATH is ...",
// such as pre_tokenizer.pretokenizers[1].behavior, and so are a merge of unknown tokens, an id twice and malformed JSON.
ChainParts read_tokenizer_json(std::string_view text, const std::string& path);

// Adds what the files beside a vocabulary say of its tokens, as transformers does; `config` is tokenizer_config_of() the folder.
// DataError.
void add_named_tokens(const std::string& folder, const JsonValue& config, ChainParts& parts);

// An added token's object, as tokenizer.json and tokenizer_config.json have it. `where` begins messages.
AddedToken read_added_token(const JsonValue& item, const JsonValue* id, const std::string& where);

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
