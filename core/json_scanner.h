// Strict JSON, read once from its beginning to its end, for texts that are too large to become one JsonValue: the caller takes the
// values that it wants and skips the others.
//
// Memory beside what the caller takes: eight bytes for each key of the objects that are open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "core/json_reader.h"

namespace trident {

class JsonScanner {
 public:
  // `text` and `source` must live as long. Violations of the grammar, duplicate keys and rules.max_depth throw as parse_json does,
  // also inside values that are skipped.
  JsonScanner(std::string_view text, std::string_view source, const JsonRules& rules);

  // The kind of the value that comes next; kNumber for all numbers.
  JsonValue::Kind kind();

  // Each reads the value that comes next. For members(), items() and string(), kind() must say that it is such a value.
  void members(FunctionRef<void(const std::string& key)> member);  // `member` reads the value of its key
  void items(FunctionRef<void()> item);                            // `item` reads one value
  std::string string();
  JsonValue value(std::size_t& values_left);  // counts down by the values that it holds; an error beyond 0
  std::string_view skip();                    // the value's text

  // Nothing may follow.
  void end();

  std::int64_t num_replaced() const { return num_replaced_; }  // lone surrogates of the strings and keys that were returned

 private:
  struct Place {
    std::size_t at = 0, line_begin = 0;
    std::int64_t line = 1;
  };

  [[noreturn]] void refuse_here(const std::string& what) const;
  [[noreturn]] void refuse_syntax(const std::string& what) const;
  [[noreturn]] void refuse_value() const;
  [[noreturn]] void refuse_duplicate(std::uint64_t key);
  std::string found() const;

  char next() const { return here_.at < text_.size() ? text_[here_.at] : '\0'; }
  bool take(char c);
  void skip_space();
  void skip_comment();
  bool another(char close);
  void enter();
  void check_keys(std::size_t first_key);
  std::string text_of_key(std::uint64_t key);
  void read_string(std::string* out);
  char32_t escape();
  char32_t hex4();
  void digits(std::string_view part);
  std::string_view number_text();
  JsonValue number();
  void word(std::string_view expected);

  std::string_view text_, source_;
  JsonRules rules_;
  Place here_;
  int depth_ = 0;
  Place open_;  // the bracket of the innermost object or list that is open
  std::int64_t num_replaced_ = 0;
  std::deque<std::uint64_t> keys_;  // of all objects that are open: half a hash, and the place; a deque grows without a copy
};

}  // namespace trident
