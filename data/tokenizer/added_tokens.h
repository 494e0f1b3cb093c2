// Tokens that stand for a text of their own and are cut out before anything else, as Hugging Face's tokenizers library does it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/function_ref.h"

namespace trident {

struct AddedToken {
  std::string content;       // UTF-8, not empty
  static constexpr std::int32_t kVocabulary = -1, kNext = -2;
  std::int32_t id = kVocabulary;  // kNext: the vocabulary's, or behind all others
  bool single_word = false;  // not beside a letter, a number or another character of words
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
  bool normalized = false;   // is looked for in what the others leave
  bool special = false;      // a control token
  bool operator==(const AddedToken&) const = default;
};

// The only added token of GPT-2's vocabulary ends documents.
inline std::vector<AddedToken> plain_added_tokens() { return {{.content = "<|endoftext|>", .special = true}}; }

// Cuts tokens out of texts in time linear in the text, whatever the tokens are.
class AddedTokens {
 public:
  // No content is empty. The first of two with one content counts.
  explicit AddedTokens(std::vector<AddedToken> tokens);
  bool is_empty() const { return tokens_.empty(); }

  // Gives the tokens in `text` (well-formed UTF-8) to `take` with the text that each covers, and the stretches before, between and
  // behind them to `between`, in the order of the text. Of two tokens that begin at one place the longer one counts. A token whose
  // own text `counts` denies is part of a stretch.
  void cut(std::string_view text, FunctionRef<bool(const AddedToken&, std::string_view own)> counts,
           FunctionRef<void(const AddedToken&, std::string_view covers)> take,
           FunctionRef<void(std::string_view)> between) const;

 private:
  // An automaton of the tokens' bytes from last to first (Aho and Corasick 1975), run from the end of a text to its beginning: its
  // state knows the longest token that begins where it stands.
  struct State {
    std::int32_t fallback = 0;  // the longest other state that ends as this one does
    std::int32_t longest = -1;  // token
    std::int32_t next = 0;      // by `byte`, the first edge; most states have no other
    unsigned char byte = 0;
  };
  struct Found {
    std::size_t at;
    std::int32_t token;
  };
  static std::uint64_t key_of(std::int32_t state, unsigned char byte) {
    return static_cast<std::uint64_t>(state) << 8 | byte;
  }
  std::int32_t step(std::int32_t state, unsigned char byte) const;  // 0 where there is no edge
  std::vector<Found> find_all(std::string_view text) const;         // from the end of the text

  std::vector<AddedToken> tokens_;
  std::vector<State> states_ = std::vector<State>(1);
  std::unordered_map<std::uint64_t, std::int32_t> edges_;  // the others, by state and byte
  std::array<bool, 256> ends_{};     // by byte: whether a token ends with it
  std::optional<unsigned char> only_end_;  // the byte with which all of them end
};

}  // namespace trident
