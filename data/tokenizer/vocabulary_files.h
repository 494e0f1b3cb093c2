// vocab.json and merges.txt, and a model's vocabulary and merges wherever they stand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_scanner.h"
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

}  // namespace trident
