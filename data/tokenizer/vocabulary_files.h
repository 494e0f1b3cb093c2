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

// Adds merges whose parts and results are tokens.
class MergeReader {
 public:
  MergeReader(const TokenTexts& tokens, std::string_view prefix, std::vector<BpeMerge>& merges)
      : tokens_(tokens), prefix_(prefix), merges_(merges) {}

  // Returns what is wrong, or "".
  std::string_view add(std::string_view left, std::string_view right);

 private:
  const TokenTexts& tokens_;
  std::string_view prefix_;  // continuing_subword_prefix
  std::vector<BpeMerge>& merges_;
  std::string merged_;
};

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
