// tokenizer.json, the file of Hugging Face's tokenizers library, as far as it describes what this program does.
#pragma once

#include <string>
#include <string_view>

namespace trident {

// The vocabulary and merges of a GPT-2 style tokenizer.json, as vocab.json and merges.txt hold them.
struct BpeTexts {
  std::string vocab_json, merges_txt;
};

// `text` must describe GPT-2's way: no normalizer, pre_tokenizer ByteLevel with its own pattern and without a prefix space, a plain
// BPE model, no added token but "<|endoftext|>" of the vocabulary, nothing added afterwards. What would cut text into other tokens:
// DataError "FILE: FIELD is ...".
BpeTexts read_tokenizer_json(std::string_view text, const std::string& path);

// For a folder whose vocab.json and merges.txt stand without a tokenizer.json: other files may say that text is split otherwise, or
// that there are more tokens (Qwen's older folders). tokenizer_config.json may name GPT-2's class alone, and no prefix space;
// added_tokens.json no token but "<|endoftext|>". DataError "FILE: FIELD is ...". Files that are not there say nothing.
void refuse_other_tokenizer(const std::string& folder);

}  // namespace trident
