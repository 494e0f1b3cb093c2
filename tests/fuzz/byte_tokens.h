// The least that a vocab.json must have.
#pragma once

#include <string>

namespace trident::fuzz {

// Members of its object: the 256 bytes as GPT-2 spells them and the end of a document, ids 0 .. 256: `"Ā":0, ...`.
std::string bytes_as_tokens();

}  // namespace trident::fuzz
