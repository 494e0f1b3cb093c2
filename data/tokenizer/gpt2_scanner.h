// GPT-2's pre-tokenizer: cuts text into the pieces that BPE works on.
//
// Equal to the alternatives of the regular expression, in this order, over all of Unicode:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, encoder.py.)
#pragma once

#include <cstddef>
#include <string_view>

namespace trident {

enum class CharClass : unsigned char { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

CharClass char_class(char32_t code_point);
// \w as Hugging Face's tokenizers use it to cut out added tokens.
bool is_word_character(char32_t code_point);

// End of the piece that starts at `begin` (< text.size(), at a code point boundary). `text` is well-formed UTF-8; its end counts as
// the end of the text for the whitespace rule.
std::size_t gpt2_piece_end(std::string_view text, std::size_t begin);

}  // namespace trident
