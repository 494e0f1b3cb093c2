// The reader of a shell script reads words into these types. They are for train/import alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_reader.h"
#include "train/import/shell_reader.h"
#include "train/import/text_limits.h"

namespace trident::shell {

struct Char {
  char c;
  int at;       // offset in the script
  int why = 0;  // number of the reason for which it has no value; 0: it has one
};
using Text = std::vector<Char>;

struct Variable {
  std::vector<Text> items;  // one, unless it is an array
  bool is_exported = false;
};
using Variables = std::map<std::string, Variable, std::less<>>;

struct Reason {
  std::string text;
  bool is_parameter = false;
};

inline bool has(std::string_view any, char c) { return any.find(c) != any.npos; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }
inline bool is_space(char c) { return has(" \t\r\n", c); }
inline bool ends_word(char c) { return c == '\0' || is_space(c) || has(";&|()<>", c); }

void set_unknown(Variable& variable, const std::string& name, int at, int why);
// Whether "$(pwd)/a" runs a program whose answer is the user's own, as $HOME is.
bool is_place_or_time(std::string_view command);

std::string bytes_of(const Text& text);
int why_of(const Text& text);

// The value of integers with + - * / % between them; not finite: all else, a division by zero, 9e15 and beyond.
double sum_of(std::string_view text);

// In this order "and" is the lower and "or" the higher of two. kPresumed: of a command that is not executed, whose success `&&`
// takes for granted and `if` does not.
enum class Outcome : std::uint8_t { kFalse, kUnknown, kTrue, kPresumed };

// Returns what a test of these words, which stand between && and ||, comes to.
Outcome outcome_of(const std::vector<Text>& words);
// Returns whether a pattern of letters, * and ? is of the whole text. Texts so long that the comparison would take seconds are in
// nobody's `case`.
Outcome match_of(const Text& text, const Text& pattern);
// Whether * or ? stands in quotes or after a backslash, where it is a letter and no sign of a pattern.
bool has_quoted_sign(const Text& word);

// The fields that a word becomes.
struct Fields {
  bool splits;
  bool is_open = false;
  Text current = {};
  std::vector<Text> done = {};

  void put(Char c) { current.push_back(c), is_open = true; }
  // A variable's value: blanks end fields where the word is not quoted.
  void put_value(const Text& value, bool is_quoted) {
    for (const Char& c : value)
      if (splits && !is_quoted && is_space(c.c) && c.why == 0) close();
      else put(c);
  }
  void close() {
    if (is_open) done.push_back(std::move(current));
    current.clear(), is_open = false;
  }
  std::vector<Text> take() { return close(), std::move(done); }
  Text take_one() { return close(), done.empty() ? Text() : std::move(done.front()); }
};

// The readers of a script and of the scripts in its words share this.
struct Script {
  std::string_view source;
  std::span<const std::string_view> settings;
  std::vector<int> line_starts = {0};
  std::vector<Reason> reasons = {{}};
  Variables variables = {};
  std::vector<ShellCommand> commands = {};
  std::size_t spent = 0;  // bytes that expansions wrote
  int levels = 0;

  std::pair<int, int> place(int at) const {  // line and column
    const auto line = std::ranges::upper_bound(line_starts, at) - 1;
    return {static_cast<int>(line - line_starts.begin()) + 1, at - *line + 1};
  }
  [[noreturn]] void fail(int at, std::string_view why) const {
    const auto [line, column] = place(at);
    refuse_at(source, line, column, why);
  }
  void spend(std::size_t bytes, int at) {
    if ((spent += bytes) > std::size_t{1} << 22)
      fail(at, "more than 4 MiB once variables are replaced; give import the command alone");
  }
  int reason(std::string text, bool is_parameter = false) {
    reasons.push_back({std::move(text), is_parameter});
    return static_cast<int>(reasons.size()) - 1;
  }
  ShellWord word_of(const Text& text, int at) const {  // in whose place `at` counts where there is no text
    const auto [line, column] = place(text.empty() ? at : text.front().at);
    const Reason& reason = reasons[static_cast<std::size_t>(why_of(text))];
    return {bytes_of(text), line, column, reason.text, reason.is_parameter};
  }
};

struct Level {
  Level(Script& script, int at) : levels(script.levels) {
    if (++levels > kMaxForeignDepth) script.fail(at, "more than 64 levels; give import the command alone");
  }
  ~Level() { --levels; }
  int& levels;
};

// A place in a text, and what moves it.
class Cursor {
 protected:
  Cursor(Script& script, Text text) : script_(script), text_(std::move(text)) {}

  bool at_end() const { return pos_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    if (pos_ + ahead >= text_.size()) return '\0';
    return text_[pos_ + ahead].why != 0 ? '\x01' : text_[pos_ + ahead].c;  // what has no value is nothing that a shell reads again
  }
  bool takes(std::string_view wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (peek(i) != wanted[i]) return false;
    pos_ += wanted.size();
    return true;
  }
  int at(std::size_t pos) const { return text_.empty() ? 0 : text_[std::min(pos, text_.size() - 1)].at; }
  int here() const { return at(pos_); }
  int line_of(std::size_t pos) const { return script_.place(at(pos)).first; }
  Text part(std::size_t begin, std::size_t end) const {
    return {text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  std::string typed(std::size_t begin) const { return bytes_of(part(begin, pos_)); }
  [[noreturn]] void fail_alone() const {
    const std::size_t last = std::min(pos_, text_.size() - 1);
    script_.fail(here(), fmt::format("{} stands here alone; correct the script", in_quotes(bytes_of(part(last, last + 1)))));
  }
  void skip_blanks() {
    while (true) {
      if (has(" \t\r", peek()) && !at_end()) ++pos_;
      else if (takes("\\\n")) continue;
      else if (peek() == '#') while (!at_end() && peek() != '\n') ++pos_;
      else return;
    }
  }
  void expect_document(const std::string& end) { here_documents_.push_back(end); }
  // Skips the here documents behind it, too.
  void skip_newline() {
    ++pos_;
    for (const std::string& end : here_documents_)
      for (std::string line = end + '.'; line != end && !at_end(); ++pos_) {
        const std::size_t begin = pos_;
        while (!at_end() && text_[pos_].c != '\n') ++pos_;
        line = typed(begin);
        line.erase(0, line.find_first_not_of('\t'));  // for <<-, and no other document has its end behind tabs
      }
    pos_ = std::min(pos_, text_.size());
    here_documents_.clear();
  }
  void skip_lines() {
    for (skip_blanks(); peek() == '\n'; skip_blanks()) skip_newline();
  }
  // A word of letters and brackets that no quote makes: "then", "[["; "" for every other.
  std::string plain_word() const {
    std::string word;
    for (std::size_t i = 0; !ends_word(peek(i)); ++i) {
      if (i == 10 || (!is_name(peek(i)) && !has("{}[]!", peek(i)))) return "";
      word += peek(i);
    }
    return word;
  }
  // Goes from the quote here to behind the one that closes it.
  void skip_quoted(int begin, bool escapes = false) {
    const char quote = peek();
    for (++pos_; peek() != quote; ++pos_) {
      if (at_end()) script_.fail(begin, "nothing closes this quote");
      if ((quote != '\'' || escapes) && peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
      else if (quote == '"' && takes("$(")) skip_parentheses(begin), --pos_;
    }
    ++pos_;
  }
  // Goes from behind "(" to behind its ")".
  void skip_parentheses(int begin) {
    const Level level(script_, begin);
    for (int open = 1; open > 0; ++pos_) {
      if (at_end()) script_.fail(begin, "nothing closes this parenthesis");
      if (peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
      else if (has("'\"", peek())) skip_quoted(begin), --pos_;
      else open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
    }
  }

  Script& script_;
  Text text_;
  std::size_t pos_ = 0;

 private:
  std::vector<std::string> here_documents_;  // their ends
};

}  // namespace trident::shell
