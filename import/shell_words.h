// The reader of a shell script reads words into these types. They are for import alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_reader.h"
#include "import/shell_reader.h"
#include "import/text_limits.h"

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

inline bool has(std::string_view any, char c) { return any.find(c) != any.npos; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }
inline bool is_space(char c) { return has(" \t\r\n", c); }
inline bool ends_word(char c) { return c == '\0' || is_space(c) || has(";&|()<>", c); }

void set_unknown(Variable& variable, const std::string& name, int at, int why);
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
struct Script;
// Returns what dirname, basename, realpath, readlink, pwd, or cd and pwd with these words say; "": other commands.
std::string path_said(const Script& script, const std::vector<std::string>& words);
// Returns the files that a command with these words changes: all that it names, but those that are copied.
std::vector<std::string> changed_by(const std::vector<std::string>& words);
// Returns the variables in ((N += 1)); none where nothing is assigned.
std::vector<std::string> assigned_in(std::string_view sum);
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
  std::vector<std::string> reasons = {""};
  Variables variables = {};
  std::vector<ShellCommand> commands = {};
  ShellFiles files = {};
  std::optional<std::string> folder = "";  // that `cd` went to, from the working directory; nothing: nobody knows which
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
  int reason(std::string text) {
    reasons.push_back(std::move(text));
    return static_cast<int>(reasons.size()) - 1;
  }
  // The folder that `cd` would go to; nothing: nobody knows which.
  std::optional<std::string> folder_at(const std::string& path) const {
    if (path.empty() || path == "-" || (!folder && path[0] != '/')) return std::nullopt;
    if (path[0] == '~' || path.find_first_of("*?[{") != path.npos) return std::nullopt;  // a shell makes other paths of these
    return (std::filesystem::path(folder.value_or("")) / path).lexically_normal().string();
  }
  // $0 or $PWD; "": nobody knows it.
  std::string path_of(std::string_view name) const;
  ShellWord word_of(const Text& text, int at) const {  // in whose place `at` counts where there is no text
    const auto [line, column] = place(text.empty() ? at : text.front().at);
    return {bytes_of(text), line, column, reasons[static_cast<std::size_t>(why_of(text))]};
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
    const std::string word = plain_word();
    script_.fail(here(), fmt::format("{} stands here alone; correct the script",
                                     in_quotes(word.empty() ? bytes_of(part(last, last + 1)) : word)));
  }
  void skip_blanks() {
    while (true) {
      if (has(" \t\r", peek()) && !at_end()) ++pos_;
      else if (takes("\\\n")) continue;
      else if (peek() == '#') while (!at_end() && peek() != '\n') ++pos_;
      else return;
    }
  }
  // Skips the here documents behind it, too.
  void skip_newline() {
    ++pos_;
    for (HereDocument& document : here_documents_) {
      std::size_t begin = pos_;
      const std::size_t first = pos_;
      for (std::string line = document.end + '.'; line != document.end && !at_end(); ++pos_) {
        begin = pos_;
        while (!at_end() && text_[pos_].c != '\n') ++pos_;
        line = typed(begin);
        if (document.has_tabs) line.erase(0, line.find_first_not_of('\t'));
      }
      document.text = part(first, begin);
      bool is_before = document.has_tabs;
      std::erase_if(document.text, [&](const Char& c) {
        const bool is_tab = is_before && c.c == '\t';
        is_before = is_tab || (document.has_tabs && c.c == '\n');
        return is_tab;
      });
      if (!document.file.empty()) written_.push_back(std::move(document));
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

  struct HereDocument {
    std::string end;
    bool is_quoted;  // nothing in it is replaced
    bool has_tabs;   // <<-: those before its lines are none of it
    std::string file = {};
    bool appends = false;
    int runs = 0;  // of the command that writes it
    Text text = {};
  };
  std::vector<HereDocument> here_documents_, written_;  // those to come, and those of files that are not kept yet
};

constexpr int kNever = -1;  // in the place of a doubt: commands do not run

// An open block of a script. Runs are as WordReader's runs_.
struct Block {
  std::string_view kind;
  int begin;
  int base;  // runs of its commands
  int rest;  // runs of the branches to come
  std::optional<std::string> folder = {};  // when "(" began a shell of its own
  Variables variables = {};
  // A loop that is followed goes back there, its commands run as `passes` says, and `for` has these items left.
  std::size_t again = std::string::npos;
  int passes = 0;
  bool is_until = false;
  std::string name = {};
  std::vector<Text> items = {};
  bool at_pattern = false;
  Text subject = {};  // of a case
};

// Reads words, in which variables, integers and quotes are replaced.
class WordReader : protected Cursor {
 protected:
  enum class Stop : std::uint8_t { kWord, kQuote, kBrace, kEnd };
  WordReader(Script& script, Text text) : Cursor(script, std::move(text)) {}

  // Puts what was typed from `begin` to here, with the reason for which it has no value.
  void put_unknown(Fields& out, std::size_t begin, int why) {
    script_.spend(pos_ - begin, at(begin));
    for (std::size_t i = begin; i < pos_; ++i) out.put({text_[i].c, text_[i].at, why});
  }
  void put_not_executed(Fields& out, std::size_t begin) {
    const std::string shown = typed(begin);
    put_unknown(out, begin, script_.reason(fmt::format("{} in line {} would have to be executed; write its value in its place",
                                                       in_quotes(shown, 40), line_of(begin))));
  }
  // Puts path_said() of the words from `inner` to `end`, which no program has to compute. false: they are other commands.
  bool puts_path(Fields& out, std::size_t begin, std::size_t inner, std::size_t end) {
    const Level level(script_, at(begin));
    WordReader reader(script_, part(inner, end));
    reader.runs_ = kNever;  // what stands in it assigns nothing
    std::vector<std::string> words;
    while (reader.skip_blanks(), !reader.at_end()) {
      if (reader.takes("&&") || reader.takes(";")) {
        words.push_back("&&");
      } else if (has("&>", reader.peek())) {  // errors and answers go elsewhere
        while (has("&>", reader.peek()) && !reader.at_end()) ++reader.pos_;
        reader.skip_blanks();
        reader.scanned_word();
      } else if (ends_word(reader.peek())) {
        return false;
      } else {
        const Text word = reader.scanned_word();
        if (why_of(word) != 0) return false;
        const std::string text = bytes_of(word);
        if (!is_listed(text, "-- -P -L -f -e -m") && !(is_digit(text[0]) && reader.peek() == '>')) words.push_back(text);
      }
    }
    const std::string value = path_said(script_, words);
    script_.spend(value.size(), at(begin));
    for (const char c : value) out.put({c, at(begin)});
    return !value.empty();
  }
  void scan(Fields& out, Stop stop, bool is_quoted) {
    const Level level(script_, here());
    const std::size_t begin = pos_;
    while (true) {
      const char c = peek();
      const std::size_t from = pos_;
      if ((stop == Stop::kWord && ends_word(c)) || (stop == Stop::kEnd && at_end())) return;
      if (at_end()) script_.fail(at(begin), stop == Stop::kQuote ? "nothing closes this quote" : "nothing closes this brace");
      if ((stop == Stop::kQuote && takes("\"")) || (stop == Stop::kBrace && takes("}"))) return;
      if (takes("\\\n")) continue;
      if (c == '\\' && pos_ + 1 < text_.size() && (!is_quoted || has("$`\\", peek(1)) ||
                                                    (stop != Stop::kEnd && peek(1) == '"') ||
                                                    (stop == Stop::kBrace && peek(1) == '}'))) {
        out.put(text_[pos_ + 1]);
        pos_ += 2;
      } else if (c == '\'' && !is_quoted) {
        skip_quoted(at(from));
        out.is_open = true;
        for (std::size_t i = from + 1; i + 1 < pos_; ++i) out.put(text_[i]);
      } else if (stop != Stop::kEnd && takes("\"")) {
        const bool was_open = std::exchange(out.is_open, true);
        has_no_items_ = false;
        scan(out, Stop::kQuote, true);
        if (has_no_items_ && !was_open) out.is_open = !out.current.empty();
      } else if (c == '$') {
        dollar(out, is_quoted);
      } else if (c == '`') {
        skip_quoted(at(from));
        if (!puts_path(out, from, from + 1, pos_ - 1)) put_not_executed(out, from);
      } else {
        out.put(text_[pos_++]);
      }
    }
  }
  Text scanned_word() {
    Fields word{false};
    scan(word, Stop::kWord, false);
    return word.take_one();
  }
  void dollar(Fields& out, bool is_quoted) {
    const std::size_t begin = pos_++;
    if (const bool is_sum = takes("(("); is_sum || takes("(")) {
      const std::size_t inner = pos_;
      skip_parentheses(at(begin));
      const std::size_t end = pos_ - 1;
      if (is_sum && !takes(")")) script_.fail(at(begin), "nothing closes this parenthesis");
      const bool is_expr = bytes_of(part(inner, std::min(inner + 5, end))) == "expr ";
      if (is_sum || is_expr) arithmetic(out, begin, inner + (is_sum ? 0 : 5), end, is_sum);
      else if (!puts_path(out, begin, inner, end)) put_not_executed(out, begin);
    } else if (takes("{")) {
      parameter(out, begin, is_quoted);
    } else if (peek() == '\'' && !is_quoted) {
      skip_quoted(at(begin), true);
      put_not_executed(out, begin);
    } else if (const std::string name = parameter_name(false); !name.empty()) {
      put_variable(out, begin, name, "", is_quoted);
    } else if (peek() != '"' || is_quoted) {
      out.put(text_[begin]);
    }
  }
  // A name, digits or a special parameter here; "": none.
  std::string parameter_name(bool is_braced) {
    const std::size_t begin = pos_;
    if (is_digit(peek())) while (is_digit(peek()) && (is_braced || pos_ == begin)) ++pos_;
    else if (is_name(peek())) while (is_name(peek())) ++pos_;
    else pos_ += !at_end() && has("@*#?$!-", peek()) ? 1 : 0;
    return typed(begin);
  }
  // Puts what $(( )), or expr, computes of the text from `inner` to `end`.
  void arithmetic(Fields& out, std::size_t begin, std::size_t inner, std::size_t end, bool has_names) {
    const Level level(script_, at(begin));
    WordReader reader(script_, part(inner, end));
    reader.runs_ = runs_;
    Fields content{false};
    bool has_sum = false;  // as the value of a variable, which is computed before what stands beside it
    while (!reader.at_end()) {
      const std::size_t from = reader.pos_, before = content.current.size();
      if (reader.peek() == '$') {
        reader.dollar(content, true);
      } else if (!has_names || !is_name(reader.peek()) || is_digit(reader.peek())) {
        content.put(reader.text_[reader.pos_++]);
      } else {
        reader.put_variable(content, from, reader.parameter_name(false), "", true);
        const std::span value = std::span(content.current).subspan(before);
        has_sum |= std::ranges::any_of(value, [](const Char& c) { return c.why == 0 && !is_digit(c.c) && !is_space(c.c); });
      }
    }
    const Text text = content.take_one();
    if (why_of(text) != 0) return put_unknown(out, begin, why_of(text));
    std::string sum = bytes_of(text);
    std::erase_if(sum, [](char c) { return is_space(c) || c == '\\'; });  // expr has \*
    const double value = sum_of(sum);
    if (has_sum || !std::isfinite(value)) return put_not_executed(out, begin);
    for (const char digit : fmt::format("{}", static_cast<std::int64_t>(value))) out.put({digit, at(begin)});
  }
  // Stands behind "${".
  void parameter(Fields& out, std::size_t begin, bool is_quoted) {
    const std::string name = peek() == '#' && peek(1) != '}' ? "" : parameter_name(true);
    std::string subscript;
    if (!name.empty() && takes("["))
      while (!at_end() && !takes("]")) subscript += text_[pos_++].c;
    if (!name.empty() && takes("}")) return put_variable(out, begin, name, subscript, is_quoted);
    const bool counts_empty = !name.empty() && takes(":");
    const char sign = peek();
    const bool is_followed = !name.empty() && has("-=+?", sign);
    pos_ += is_followed ? 1 : 0;
    Fields other{false};
    scan(other, Stop::kBrace, is_quoted);
    if (!is_followed) return put_not_executed(out, begin);
    const auto found = script_.variables.find(name);
    const bool is_there = found != script_.variables.end() &&
                          (!counts_empty || std::ranges::any_of(found->second.items, [](const Text& one) { return !one.empty(); }));
    if (sign == '?' || (is_there && sign != '+')) return put_variable(out, begin, name, subscript, is_quoted);
    if (is_there != (sign == '+')) return;
    const Text value = other.take_one();
    script_.spend(value.size(), at(begin));
    if (sign == '=' && runs_ == 0) script_.variables[name] = {{value}};
    else if (sign == '=' && runs_ != kNever) set_unknown(script_.variables[name], name, at(begin), runs_);
    out.put_value(value, is_quoted);
  }
  void put_variable(Fields& out, std::size_t begin, const std::string& name, const std::string& subscript, bool is_quoted) {
    const bool is_of_arguments = is_listed(name, "@ * #");
    const auto found = script_.variables.find(is_of_arguments ? "@" : name);
    const bool is_set = found != script_.variables.end();
    if (name == "#" && (!is_set || count_of(found->second) >= 0)) {
      for (const char digit : fmt::format("{}", is_set ? count_of(found->second) : 0)) out.put({digit, at(begin)});
      return;
    }
    if (is_of_arguments && !is_set) return void(has_no_items_ = true);  // the script has none
    if (!is_set) return put_unset(out, begin, name, is_quoted);
    const bool is_all = is_of_arguments || subscript == "@" || subscript == "*";
    if (!is_all && (subscript.size() > 4 || !std::ranges::all_of(subscript, is_digit))) return put_not_executed(out, begin);
    const std::vector<Text>& items = found->second.items;
    has_no_items_ |= is_all && items.empty();
    const std::size_t first = is_all || subscript.empty() ? 0 : std::stoul(subscript);
    for (std::size_t i = first; i < (is_all ? items.size() : std::min(items.size(), first + 1)); ++i) {
      script_.spend(items[i].size() + 1, at(begin));
      if (i > first && out.splits && (subscript == "@" || name == "@" || !is_quoted)) out.close();
      else if (i > first) out.put({' ', at(begin)});
      out.is_open |= is_quoted;
      out.put_value(items[i], is_quoted);
    }
  }
  // How many items an array has; -1: nobody knows.
  static int count_of(const Variable& array) {
    return array.items.empty() || why_of(array.items[0]) == 0 ? static_cast<int>(array.items.size()) : -1;
  }
  void put_unset(Fields& out, std::size_t begin, const std::string& name, bool is_quoted) {
    if (const std::string path = script_.path_of(name); !path.empty()) {
      Text value;
      for (const char c : path) value.push_back({c, at(begin)});
      script_.spend(value.size(), at(begin));
      return out.put_value(value, is_quoted);
    }
    const bool is_argument = is_digit(name[0]) && name != "0",
               is_folder = is_listed(name, "HOME PWD OLDPWD TMPDIR USER HOSTNAME SLURM_JOB_ID 0");
    if (const auto all = script_.variables.find("@"); is_argument && all != script_.variables.end())
      return count_of(all->second) < 0 ? out.put_value(all->second.items[0], true) : void();
    if (in_test_ && !is_folder) return;
    const std::string shown = in_quotes("$" + name, 60);
    put_unknown(out, begin, script_.reason(
        is_argument ? shown + " is an argument of the script (set -- ARGUMENTS above its first command gives it)"
        : is_folder || !is_name(name[0]) ? shown + " is known where the script runs"
                                         : fmt::format("{} is set nowhere before line {}; write {}=... above it", shown,
                                                       line_of(begin), name)));
  }

  int runs_ = 0;               // of the next command: 0, kNever, or the number of the reason for which nobody knows
  bool in_test_ = false;       // a variable that is set nowhere is empty
  bool has_no_items_ = false;  // "${A[@]}" of an empty array was replaced: its quotes make no word
};

}  // namespace trident::shell
