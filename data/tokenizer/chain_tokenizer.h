// A tokenizer made of its parts, as a tokenizer.json or a file of ranks describes them: added tokens, normalizers, splitters, a BPE
// model, what is put around a text, a decoder. Ids equal those of Hugging Face's tokenizers library and of tiktoken.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/text_chain.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {

struct ChainParts {
  std::string name, source;             // as the user named it; the file, for messages
  std::string kind = "tokenizer.json";  // for the description
  TextChain text = {};
  std::size_t pattern_bytes = 0;        // bytes of all patterns read so far
  std::vector<std::string> steps = {};  // what `text` does, a line for each step; equal for chains that do the same
  std::vector<AddedToken> added = {};   // one of kVocabulary is left out where `tokens` has none of its text
  TokenTexts tokens = TokenTexts();     // spelled as `rules` say; bytes where there are ranks
  bool is_ranks = false;                // a token is merged of any two, the lowest id first; `merges` and `rules` are not looked at
  std::vector<BpeMerge> merges = {};
  BpeRules rules = {};
  std::vector<TextStep> of_token = {}, of_text = {};  // to each token alone; then to the text that they make
  std::string between = {};                             // tokens, in a decoded text
  SpecialIds special = {};                              // `before` and `after`; the others are settled by the texts
  std::string bos = {}, pad = {};                       // "": not named; a text that is no token names none
  std::vector<std::string> eos = {};
};

// DataError: an added token twice, or of another id than the library gives it.
std::unique_ptr<Tokenizer> make_chain_tokenizer(ChainParts parts);

// A step of ChainParts::steps.
std::string line_of_split(std::string_view pattern, std::string_view behavior, bool invert);

}  // namespace trident
