// Byte-level byte-pair encoding as GPT-2 does it (Sennrich et al. 2016 over bytes; Radford et al. 2019).
//
// Ids equal those of Hugging Face's tokenizers library for the same two files and added tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {

struct ByteLevelBpeFiles {
  std::string name;
  std::string_view vocab_json;  // {"token": id, ...}, tokens in GPT-2's printable spelling of bytes; ids 0 .. n-1 without gaps
  std::string_view merges_txt;  // "left right" per line, best first; a first line "#version..." is skipped
  std::string vocab_source;     // file names for messages
  std::string merges_source;
  std::vector<AddedToken> added = plain_added_tokens();  // one of them ends documents, "<|endoftext|>"
};

// Nothing of `files` is kept. DataError: malformed JSON, an id twice or out of range, a byte without token, no "<|endoftext|>", a
// merge whose parts or result are not in the vocabulary, an added token whose id is neither the vocabulary's nor the next one.
std::unique_ptr<Tokenizer> make_byte_level_bpe(const ByteLevelBpeFiles& files);

}  // namespace trident
