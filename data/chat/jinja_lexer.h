// The tokens of a Jinja template, with Hugging Face's settings: trim_blocks and lstrip_blocks are on, one line end at the end is
// dropped.
#pragma once

#include <algorithm>
#include <cstddef>
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

// A parser reads its tokens with this.
class TokenReader {
 protected:
  explicit TokenReader(std::string_view source) : tokens_(tokenize(source)) {}

  // One level more of the parser's calls in each other; about three stand for a bracket.
  class Level {
   public:
    explicit Level(TokenReader* reader) : reader_(reader) {
      if (++reader_->open_ > kMaxOpen) reader_->refuse("nested too deeply");
    }
    ~Level() { --reader_->open_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    static constexpr int kMaxOpen = 400;
    TokenReader* reader_;
  };

  const Token& token(std::size_t ahead = 0) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }
  [[noreturn]] void refuse(const std::string& what) const { throw SyntaxRefusal(token().at, what); }
  [[noreturn]] void refuse_token(std::string_view wanted) const;  // what stands there in its place
  bool is(std::string_view text, std::size_t ahead = 0) const;    // a name or an operator
  bool take(std::string_view text);
  void expect(std::string_view text);
  void expect(Token::Type type, std::string_view wanted);
  std::string name();

  std::vector<Token> tokens_;
  std::size_t next_ = 0;

 private:
  int open_ = 0;
};

}  // namespace trident::jinja
