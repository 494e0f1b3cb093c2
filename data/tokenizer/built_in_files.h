// Files that are linked into the binary: GPT-2's vocabulary (data/gpt2), cl100k's ranks (data/cl100k), and a text.
#pragma once

#include <string_view>

namespace trident {

std::string_view gpt2_vocab_json();
std::string_view gpt2_merges_txt();
std::string_view cl100k_ranks();
std::string_view sample_text();  // data/excerpt/valid.txt

}  // namespace trident
