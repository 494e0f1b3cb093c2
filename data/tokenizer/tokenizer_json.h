// tokenizer.json, the file of Hugging Face's tokenizers library, as far as it describes what this program does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"

namespace trident {

// The vocabulary and merges of a GPT-2 style tokenizer.json, as vocab.json and merges.txt hold them, and its added tokens.
struct BpeTexts {
  std::string vocab_json, merges_txt;
  std::vector<AddedToken> added = plain_added_tokens();
};

// `text` must describe GPT-2's way: text that is not changed before, pieces of ByteLevel's own pattern without a prefix space, a
// plain BPE model, "<|endoftext|>" among the added tokens, nothing put around a text. Components are judged by what they do to a
// text, not by their types. What would make other tokens: DataError "FILE: FIELD is ...".
BpeTexts read_tokenizer_json(std::string_view text, const std::string& path);

// For a folder whose vocab.json and merges.txt stand without a tokenizer.json: what other files say. The added tokens are those of
// tokenizer_config.json (added_tokens_decoder), else those of added_tokens.json, which have no flags. tokenizer_config.json may
// name GPT-2's class alone, and no prefix space. DataError "FILE: FIELD is ...". Files that are not there say nothing.
std::vector<AddedToken> added_tokens_beside(const std::string& folder);

}  // namespace trident
