// A tokenizer that does what GPT-2 does, of a vocabulary as text.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/vocabulary_files.h"

namespace trident {

inline std::unique_ptr<Tokenizer> make_gpt2_style(const std::string& name, const VocabularyFiles& files,
                                                  std::vector<AddedToken> added = plain_added_tokens()) {
  ChainParts parts = gpt2_parts();
  parts.name = name, parts.source = files.vocab_source, parts.added = std::move(added);
  read_vocabulary(files, parts);
  return make_chain_tokenizer(std::move(parts));
}

}  // namespace trident
