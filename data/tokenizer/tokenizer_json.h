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

// Adds what the files beside a vocabulary say of its tokens, as transformers does; `config` is tokenizer_config_of() the folder.
// DataError.
void add_named_tokens(const std::string& folder, const JsonValue& config, ChainParts& parts);

// An added token's object, as tokenizer.json and tokenizer_config.json have it. `where` begins messages.
AddedToken read_added_token(const JsonValue& item, const JsonValue* id, const std::string& where);

}  // namespace trident
