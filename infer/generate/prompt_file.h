// Files of prompts for trident generate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trident {

// A text, token ids, or a file of prompts.
struct Prompt {
  std::optional<std::string> text = {};
  std::vector<std::int32_t> ids = {};
  std::optional<std::string> file = {};
};

// The prompts of a file: every line a text; of a .jsonl file a JSON text, or an object with "prompt" (a text) or "ids". DataError
// naming file and line for what is none; StorageError.
std::vector<Prompt> read_prompts(const std::string& path);

}  // namespace trident
