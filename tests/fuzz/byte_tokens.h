// The least that vocabularies must have.
#pragma once

#include <string>
#include <string_view>

namespace trident::fuzz {

// Members of its object: the 256 bytes as GPT-2 spells them and the end of a document, ids 0 .. 256: `"Ā":0, ...`.
std::string bytes_as_tokens();

// Lines of a file of ranks: the 256 bytes, ids 0 .. 255.
std::string bytes_as_ranks();

// One byte or two in base64.
std::string in_base64(std::string_view bytes);

}  // namespace trident::fuzz
