// Words of a shell script: quotes, escapes, and what variables have.
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

#include "core/check.h"
#include "core/json_reader.h"
#include "train/import/shell_reader.h"

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
  bool is_parameter;
};

bool is_digit(char c);
bool is_name(char c);  // of a variable
bool is_space(char c);
bool ends_word(char c);
bool has(std::string_view any, char c);
bool is_word(std::string_view word, std::string_view words);
std::string bytes_of(const Text& text);
int why_of(const Text& text);  // 0: it has its value

// The fields that a word becomes.
class Fields {
 public:
  explicit Fields(bool splits) : splits_(splits) {}
  bool is_open() const { return is_open_; }
  void open() { is_open_ = true; }
  void close_if_empty() { is_open_ = !current_.empty(); }
  void put(Char c) { current_.push_back(c), is_open_ = true; }
  // A variable's value: blanks end fields where the word is not quoted.
  void put_value(const Text& value, bool is_quoted) {
    for (const Char& c : value)
      if (splits_ && !is_quoted && is_space(c.c) && c.why == 0) close();
      else put(c);
  }
  void close() {
    if (is_open_) done_.push_back(std::move(current_));
    current_.clear();
    is_open_ = false;
  }
  bool splits() const { return splits_; }
  std::vector<Text> take() { return close(), std::move(done_); }
  Text take_one() { return close(), done_.empty() ? Text() : std::move(done_.front()); }

 private:
  bool splits_;
  bool is_open_ = false;
  Text current_;
  std::vector<Text> done_;
};

// The readers of a script and of the scripts in its words share this.
struct Script {
  std::string_view source;
  std::span<const std::string_view> settings;
  std::vector<int> line_starts = {0};
  std::vector<Reason> reasons = {{"", false}};
  Variables variables;
  std::vector<ShellCommand> commands;
  std::size_t spent = 0;  // bytes that expansions wrote
  int levels = 0;

  std::pair<int, int> place(int at) const;  // line and column
  [[noreturn]] void fail(int at, std::string_view why) const {
    const auto [line, column] = place(at);
    throw ConfigError(fmt::format("{}:{}:{}: {}", source, line, column, why));
  }
  void spend(std::size_t bytes, int at) {
    if ((spent += bytes) > std::size_t{1} << 22)
      fail(at, "more than 4 MiB once variables are replaced; give import the command alone");
  }
  int reason(std::string text, bool is_parameter = false) {
    reasons.push_back({std::move(text), is_parameter});
    return static_cast<int>(reasons.size()) - 1;
  }
  ShellWord word_of(const Text& text, int at) const;  // in whose place `at` counts where there is no text
};

class Level {
 public:
  Level(Script& script, int at) : script_(script) {
    if (++script_.levels > 64) script_.fail(at, "more than 64 levels; give import the command alone");
  }
  ~Level() { --script_.levels; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Script& script_;
};

// Reads words at a cursor.
class Scanner {
 public:
  Scanner(Script& script, Text text) : script_(script), text_(std::move(text)) {}

 protected:
  enum class Stop : std::uint8_t { kWord, kQuote, kBrace };

  bool at_end() const { return pos_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    if (pos_ + ahead >= text_.size()) return '\0';
    const Char& c = text_[pos_ + ahead];
    return c.why != 0 || c.c == '\0' ? '\x01' : c.c;  // what has no value is nothing that a shell reads once more
  }
  bool takes(std::string_view what) {
    for (std::size_t i = 0; i < what.size(); ++i)
      if (peek(i) != what[i]) return false;
    pos_ += what.size();
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
    if (at_end()) script_.fail(here(), "the script ends within a command; complete it");
    script_.fail(here(), fmt::format("{} stands here alone; correct the script", in_quotes(std::string_view(&text_[pos_].c, 1))));
  }
  void skip_blanks();
  void skip_newline();
  void skip_lines() {
    for (skip_blanks(); peek() == '\n'; skip_blanks()) skip_newline();
  }
  // Puts what was typed from `begin` to here, with the reason for which it has no value.
  void put_unknown(Fields& out, std::size_t begin, int why) {
    script_.spend(pos_ - begin, at(begin));
    for (std::size_t i = begin; i < pos_; ++i) out.put({text_[i].c, text_[i].at, why});
  }
  void put_not_executed(Fields& out, std::size_t begin) {
    put_unknown(out, begin, script_.reason(fmt::format("{} in line {} would have to be executed; write its value in its place",
                                                       in_quotes(typed(begin), 40), line_of(begin))));
  }
  void scan(Fields& out, Stop stop, bool is_quoted);
  void single_quoted(Fields& out, bool has_escapes);
  // From behind "(" to behind its ")".
  void skip_parentheses(int begin);
  // From a quote to behind the one that closes it.
  void skip_quoted(char quote, int begin);
  void dollar(Fields& out, bool is_quoted);
  // A name, digits or a special parameter at the cursor; "": none.
  std::string parameter_name(bool is_braced);
  void arithmetic(Fields& out, std::size_t begin);
  // Behind "${".
  void parameter(Fields& out, std::size_t begin, bool is_quoted);
  void put_variable(Fields& out, std::size_t begin, const std::string& name, const std::string& subscript, bool is_quoted);
  void put_unset(Fields& out, std::size_t begin, const std::string& name);

  Script& script_;
  Text text_;
  std::size_t pos_ = 0;
  bool in_test_ = false;       // a variable that is set nowhere is empty
  bool has_no_items_ = false;  // "${A[@]}" of an empty array was replaced: its quotes make no word
  std::vector<std::pair<std::string, bool>> here_documents_;  // ends, and whether tabs go before them
};

}  // namespace trident::shell
