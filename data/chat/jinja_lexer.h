// The tokens of a Jinja template, with Hugging Face's settings: trim_blocks and lstrip_blocks are on, one line end at the end is
// dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/value.h"

namespace trident::jinja {

struct Position {
  int line = 1, column = 1;  // in bytes
};

// A Refusal with its place in the template.
class SyntaxRefusal : public Refusal {
 public:
  SyntaxRefusal(Position at, const std::string& what) : Refusal(what), at_(at) {}
  Position at() const { return at_; }

 private:
  Position at_;
};

struct Token {
  enum class Type : std::uint8_t {
    kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kString, kInteger, kFloat, kOperator, kEnd
  };
  Type type;
  Position at;
  std::string text;  // of a string what it means, of a number its digits
};

// Ends with kEnd. `source` is UTF-8. Throws SyntaxRefusal.
std::vector<Token> tokenize(std::string_view source);

}  // namespace trident::jinja
