// Tokens that stand for a text of their own and are cut out before anything else, as Hugging Face's tokenizers library does it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"

namespace trident {

struct AddedToken {
  std::string content;       // UTF-8, not empty
  std::int32_t id = -1;      // -1: the vocabulary's
  bool single_word = false;  // not beside a letter, a number or another character of words
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
  bool normalized = false;   // is looked for in what the others leave
  bool operator==(const AddedToken&) const = default;
};

// The only added token of GPT-2's vocabulary ends documents.
inline std::vector<AddedToken> plain_added_tokens() { return {{.content = "<|endoftext|>"}}; }

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Appends the ids of the tokens in `text` (well-formed UTF-8) to *ids, and gives each stretch before, between and behind them to
  // `between`, in the order of the text. Of two tokens that begin at one place the longer one counts.
  void cut(std::string_view text, std::vector<std::int32_t>* ids, FunctionRef<void(std::string_view)> between) const;

 private:
  // Those of one pass over the text, in the order of their bytes.
  class Pass {
   public:
    explicit Pass(std::vector<AddedToken> tokens);
    bool is_empty() const { return tokens_.empty(); }
    void cut(std::string_view text, std::vector<std::int32_t>* ids, FunctionRef<void(std::string_view)> between) const;

   private:
    const AddedToken* longest_at(std::string_view text, std::size_t at) const;  // nullptr: none begins there
    std::vector<AddedToken> tokens_;
    std::array<bool, 256> begins_{};  // by byte: whether a token begins with it
  };
  Pass first_, normalized_;
};

}  // namespace trident
