// tokenizer.json, the file of Hugging Face's tokenizers library, as the parts of a tokenizer; and vocab.json with merges.txt.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/chain_tokenizer.h"

namespace trident {

// `text` must describe a BPE model behind components that are built. Any other type or field is a DataError "FILE: PATH is ...",
// such as pre_tokenizer.pretokenizers[1].behavior, and so are a merge of unknown tokens, an id twice and malformed JSON.
ChainParts read_tokenizer_json(std::string_view text, const std::string& path);

// For a folder whose vocab.json and merges.txt stand without a tokenizer.json: what other files say. The added tokens are those of
// tokenizer_config.json (added_tokens_decoder), else those of added_tokens.json, which have no flags. tokenizer_config.json may
// name GPT-2's class alone, and no prefix space. DataError "FILE: FIELD is ...". Files that are not there say nothing.
std::vector<AddedToken> added_tokens_beside(const std::string& folder);

// An added token's object, as tokenizer.json and tokenizer_config.json have it. `where` begins messages.
AddedToken read_added_token(const JsonValue& item, const JsonValue* id, const std::string& where);

}  // namespace trident
