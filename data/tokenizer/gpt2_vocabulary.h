// GPT-2's vocabulary, linked into the binary from data/gpt2/ (modified MIT licence, data/gpt2/LICENSE).
#pragma once

#include <string_view>

namespace trident {

std::string_view gpt2_vocab_json();
std::string_view gpt2_merges_txt();

}  // namespace trident
