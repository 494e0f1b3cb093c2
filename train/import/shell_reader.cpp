#include "train/import/shell_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/json_reader.h"

namespace trident {
namespace {

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

// Whether commands run: all, none, or nobody knows for a reason.
struct Runs {
  bool is_never = false;
  int doubt = 0;
};

// kPresumed: of a command that is not executed, whose success `&&` takes for granted and `if` does not.
enum class Outcome : std::uint8_t { kTrue, kFalse, kUnknown, kPresumed };

bool has(std::string_view any, char c) { return any.find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }
bool is_space(char c) { return has(" \t\r\n", c); }
bool ends_word(char c) { return c == '\0' || is_space(c) || has(";&|()<>", c); }
bool is_word(std::string_view word, std::string_view words) {
  return !word.empty() && fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

std::string bytes_of(const Text& text) {
  std::string bytes;
  for (const Char& c : text) bytes += c.c;
  return bytes;
}
int why_of(const Text& text) {
  const auto found = std::ranges::find_if(text, [](const Char& c) { return c.why != 0; });
  return found == text.end() ? 0 : found->why;
}

// Integers, + - * / % and parentheses; nothing for all else, division by zero and overflow.
class Arithmetic {
 public:
  explicit Arithmetic(std::string text) : text_(std::move(text)) { std::erase_if(text_, is_space); }
  std::optional<std::int64_t> value() {
    const std::optional<std::int64_t> sum = operation(0);
    return pos_ == text_.size() ? sum : std::nullopt;
  }

 private:
  std::optional<std::int64_t> operation(int level) {
    if (level == 2) return operand();
    std::optional<std::int64_t> left = operation(level + 1);
    while (left && pos_ < text_.size() && has(level == 0 ? "+-" : "*/%", text_[pos_])) {
      const char sign = text_[pos_++];
      const std::optional<std::int64_t> right = operation(level + 1);
      std::int64_t result = 0;
      if (!right || ((sign == '/' || sign == '%') && (*right == 0 || *right == -1))) return std::nullopt;
      const bool overflows = sign == '+'   ? __builtin_add_overflow(*left, *right, &result)
                             : sign == '-' ? __builtin_sub_overflow(*left, *right, &result)
                                           : sign == '*' && __builtin_mul_overflow(*left, *right, &result);
      if (overflows) return std::nullopt;
      left = sign == '/' ? *left / *right : sign == '%' ? *left % *right : result;
    }
    return left;
  }
  std::optional<std::int64_t> operand() {
    const std::size_t begin = pos_;
    std::int64_t value = 0;
    if (pos_ < text_.size() && text_[pos_] == '(' && ++levels_ < 64) {
      ++pos_;
      const std::optional<std::int64_t> inner = operation(0);
      return pos_ < text_.size() && text_[pos_++] == ')' ? inner : std::nullopt;
    }
    while (pos_ < text_.size() && is_digit(text_[pos_]) && value < (std::int64_t{1} << 58)) value = value * 10 + (text_[pos_++] - '0');
    return pos_ > begin && (text_[begin] != '0' || pos_ == begin + 1) ? std::optional(value) : std::nullopt;
  }

  std::string text_;
  std::size_t pos_ = 0;
  int levels_ = 0;
};

// The fields that a word becomes.
class Fields {
 public:
  explicit Fields(bool splits) : splits_(splits) {}
  bool is_open() const { return is_open_; }
  void open() { is_open_ = true; }
  void close_if_empty() { is_open_ = !current_.empty(); }
  void put(Char c) { current_.push_back(c), is_open_ = true; }
  // What a variable has: blanks end fields where the word is not quoted.
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

// What the readers of a script and of the scripts in its words share.
struct Script {
  std::string_view source;
  std::span<const std::string_view> settings;
  std::vector<int> line_starts = {0};
  std::vector<Reason> reasons = {{"", false}};
  Variables variables;
  std::vector<ShellCommand> commands;
  std::size_t spent = 0;  // bytes that expansions wrote
  int levels = 0;

  std::pair<int, int> place(int at) const {
    const auto line = std::ranges::upper_bound(line_starts, at) - 1;
    return {static_cast<int>(line - line_starts.begin()) + 1, at - *line + 1};
  }
  [[noreturn]] void fail(int at, std::string_view why) const {
    const auto [line, column] = place(at);
    throw ConfigError(fmt::format("{}:{}:{}: {}", source, line, column, why));
  }
  void spend(std::size_t bytes, int at) {
    if ((spent += bytes) > std::size_t{1} << 22) fail(at, "more than 4 MiB once variables are replaced");
  }
  int reason(std::string text, bool is_parameter = false) {
    reasons.push_back({std::move(text), is_parameter});
    return static_cast<int>(reasons.size()) - 1;
  }
  ShellWord word_of(const Text& text, int at) const {
    ShellWord word;
    word.text = bytes_of(text);
    std::tie(word.line, word.column) = place(text.empty() ? at : text.front().at);
    const Reason& reason = reasons[static_cast<std::size_t>(why_of(text))];
    word.unknown = reason.text, word.is_parameter = reason.is_parameter;
    return word;
  }
};

class Level {
 public:
  Level(Script& script, int at) : script_(script) {
    if (++script_.levels > 64) script_.fail(at, "more than 64 levels");
  }
  ~Level() { --script_.levels; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Script& script_;
};

class Reader {
 public:
  // `before` are words before those of each command: of what starts this shell.
  Reader(Script& script, Text text, std::vector<ShellWord> before = {})
      : script_(script), text_(std::move(text)), before_(std::move(before)) {}
  void read(Runs runs) {
    const Level level(script_, here());
    runs_ = runs;
    blocks_.push_back({"", here(), runs, runs});
    while (!at_end()) step();
    if (blocks_.size() > 1) script_.fail(blocks_.back().begin, fmt::format("nothing closes this \"{}\"", blocks_.back().kind));
  }

 private:
  enum class Stop : std::uint8_t { kWord, kQuote, kBrace };
  struct Block {
    std::string_view kind;
    int begin;
    Runs base;  // of its commands
    Runs rest;  // of the branches to come
    bool at_pattern = false;
  };

  // ---- characters
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
    script_.fail(here(), fmt::format("{} stands here alone", in_quotes(std::string_view(&text_[pos_].c, 1))));
  }

  void skip_blanks() {
    while (true) {
      if (!at_end() && has(" \t\r", peek())) ++pos_;
      else if (takes("\\\n")) continue;
      else if (peek() == '#') while (!at_end() && peek() != '\n') ++pos_;
      else return;
    }
  }
  void skip_newline() {
    ++pos_;
    for (const auto& [end, cuts_tabs] : here_documents_) {
      while (!at_end()) {
        const std::size_t begin = pos_;
        while (!at_end() && text_[pos_].c != '\n') ++pos_;
        std::string line = typed(begin);
        pos_ += at_end() ? 0 : 1;
        if (cuts_tabs) line.erase(0, line.find_first_not_of('\t'));
        if (line == end) break;
      }
    }
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

  // ---- words
  // Puts what was typed from `begin` to here, with the reason for which it has no value.
  void put_unknown(Fields& out, std::size_t begin, int why) {
    script_.spend(pos_ - begin, at(begin));
    for (std::size_t i = begin; i < pos_; ++i) out.put({text_[i].c, text_[i].at, why});
  }
  void put_not_executed(Fields& out, std::size_t begin) {
    put_unknown(out, begin, script_.reason(fmt::format("{} in line {} would have to be executed; write its value in its place",
                                                       in_quotes(typed(begin), 40), line_of(begin))));
  }
  void scan(Fields& out, Stop stop, bool is_quoted) {
    const Level level(script_, here());
    const std::size_t begin = pos_;
    while (true) {
      const char c = peek();
      if (stop == Stop::kWord && ends_word(c)) return;
      if (at_end()) script_.fail(at(begin), stop == Stop::kQuote ? "nothing closes this quote" : "nothing closes this brace");
      if (stop != Stop::kWord && takes(stop == Stop::kQuote ? "\"" : "}")) return;
      if (takes("\\\n")) continue;
      if (c == '\\' && pos_ + 1 < text_.size() && (!is_quoted || has("$`\"\\}", peek(1)))) {
        out.put(text_[++pos_]);
        ++pos_;
      } else if (c == '\'' && !is_quoted) {
        single_quoted(out, false);
      } else if (takes("\"")) {
        const bool was_open = out.is_open();
        has_no_items_ = false;
        out.open();
        scan(out, Stop::kQuote, true);
        if (has_no_items_ && !was_open) out.close_if_empty();
      } else if (c == '$') {
        dollar(out, is_quoted);
      } else if (c == '`') {
        const std::size_t from = pos_;
        skip_quoted('`', at(from));
        put_not_executed(out, from);
      } else {
        out.put(text_[pos_++]);
      }
    }
  }
  void single_quoted(Fields& out, bool has_escapes) {
    const std::size_t begin = pos_++;
    out.open();
    for (; peek() != '\''; ++pos_) {
      pos_ += has_escapes && peek() == '\\' ? 1 : 0;
      if (at_end()) script_.fail(at(begin), "nothing closes this quote");
      out.put(text_[pos_]);
    }
    ++pos_;
  }
  // From behind "(" to behind its ")".
  void skip_parentheses(int begin) {
    const Level level(script_, begin);
    for (int open = 1; open > 0; ++pos_) {
      if (at_end()) script_.fail(begin, "nothing closes this parenthesis");
      if (peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
      else if (has("'\"", peek())) skip_quoted(peek(), begin), --pos_;
      else open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
    }
  }
  // From a quote to behind the one that closes it.
  void skip_quoted(char quote, int begin) {
    for (++pos_; peek() != quote; ++pos_) {
      if (at_end()) script_.fail(begin, "nothing closes this quote");
      if (quote != '\'' && peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
      else if (quote == '"' && takes("$(")) skip_parentheses(begin), --pos_;
    }
    ++pos_;
  }

  // ---- values
  void dollar(Fields& out, bool is_quoted) {
    const std::size_t begin = pos_++;
    if (takes("((")) {
      arithmetic(out, begin);
    } else if (takes("(")) {
      skip_parentheses(at(begin));
      put_not_executed(out, begin);
    } else if (takes("{")) {
      parameter(out, begin, is_quoted);
    } else if (peek() == '\'' && !is_quoted) {
      single_quoted(out, true);
    } else if (const std::string name = parameter_name(false); !name.empty()) {
      put_variable(out, begin, name, "", is_quoted);
    } else if (peek() != '"' || is_quoted) {
      out.put(text_[begin]);
    }
  }
  // A name, digits or a special parameter at the cursor; "": none.
  std::string parameter_name(bool is_braced) {
    const std::size_t begin = pos_;
    if (is_digit(peek())) while (is_digit(peek()) && (is_braced || pos_ == begin)) ++pos_;
    else if (is_name(peek())) while (is_name(peek())) ++pos_;
    else pos_ += !at_end() && has("@*#?$!-", peek()) ? 1 : 0;
    return typed(begin);
  }
  void arithmetic(Fields& out, std::size_t begin) {
    const std::size_t inner = pos_;
    skip_parentheses(at(begin));
    Reader reader(script_, part(inner, pos_ - 1));
    if (!takes(")")) script_.fail(at(begin), "nothing closes this parenthesis");
    Fields content(false);
    while (!reader.at_end()) {
      const std::size_t from = reader.pos_;
      if (reader.peek() == '$') reader.dollar(content, true);
      else if (!is_name(reader.peek()) || is_digit(reader.peek())) content.put(reader.text_[reader.pos_++]);
      else reader.put_variable(content, from, reader.parameter_name(false), "", true);
    }
    const Text text = content.take_one();
    if (why_of(text) != 0) return put_unknown(out, begin, why_of(text));
    const std::optional<std::int64_t> value = Arithmetic(bytes_of(text)).value();
    if (!value) return put_not_executed(out, begin);
    for (const char digit : fmt::format("{}", *value)) out.put({digit, at(begin)});
  }
  // Behind "${".
  void parameter(Fields& out, std::size_t begin, bool is_quoted) {
    const std::string name = peek() == '#' && peek(1) != '}' ? "" : parameter_name(true);
    std::string subscript;
    if (!name.empty() && takes("["))
      while (!at_end() && !takes("]")) subscript += text_[pos_++].c;
    if (!name.empty() && takes("}")) return put_variable(out, begin, name, subscript, is_quoted);
    const bool counts_empty = !name.empty() && takes(":");
    const char what = peek();
    const bool is_followed = !name.empty() && has("-=+?", what);
    pos_ += is_followed ? 1 : 0;
    Fields other(false);
    scan(other, Stop::kBrace, is_quoted);
    if (!is_followed) return put_not_executed(out, begin);
    const auto found = script_.variables.find(name);
    const bool is_there = found != script_.variables.end() &&
                          (!counts_empty || std::ranges::any_of(found->second.items, [](const Text& item) { return !item.empty(); }));
    if (what == '?' || (is_there && what != '+')) return put_variable(out, begin, name, subscript, is_quoted);
    if (is_there != (what == '+')) return;
    const Text value = other.take_one();
    script_.spend(value.size(), at(begin));
    if (what == '=') script_.variables[name] = {{value}};
    out.put_value(value, is_quoted);
  }
  void put_variable(Fields& out, std::size_t begin, const std::string& name, const std::string& subscript, bool is_quoted) {
    if (name == "@" || name == "*") return void(has_no_items_ = true);  // the script's arguments: none
    if (name == "#") return out.put({'0', at(begin)});
    const auto found = script_.variables.find(name);
    if (found == script_.variables.end()) return put_unset(out, begin, name);
    const bool is_all = subscript == "@" || subscript == "*";
    if (!is_all && (subscript.size() > 4 || !std::ranges::all_of(subscript, is_digit))) return put_not_executed(out, begin);
    const std::vector<Text>& items = found->second.items;
    has_no_items_ |= is_all && items.empty();
    const std::size_t first = is_all || subscript.empty() ? 0 : std::stoul(subscript);
    for (std::size_t i = first; i < (is_all ? items.size() : std::min(items.size(), first + 1)); ++i) {
      script_.spend(items[i].size() + 1, at(begin));
      if (i > first && out.splits() && (subscript == "@" || !is_quoted)) out.close();
      else if (i > first) out.put({' ', at(begin)});
      if (is_quoted) out.open();
      out.put_value(items[i], is_quoted);
    }
  }
  void put_unset(Fields& out, std::size_t begin, const std::string& name) {
    const bool is_argument = is_digit(name.front()) && name != "0", is_folder = is_word(name, "HOME PWD OLDPWD TMPDIR USER 0");
    if (in_test_ && !is_folder) return;
    const std::string shown = in_quotes("$" + name, 60);
    put_unknown(out, begin, is_argument ? script_.reason(fmt::format("{} is an argument of the script", shown), true)
                            : is_folder || !is_name(name.front())
                                ? script_.reason(fmt::format("{} is known where the script runs", shown), is_folder)
                                        : script_.reason(fmt::format("{} is set nowhere before line {}; write {}=... above it", shown,
                                                                     line_of(begin), name)));
  }

  // ---- assignments
  // NAME=value at the cursor: its name; "": there is none.
  std::string takes_assignment(Variables& variables, bool is_exported) {
    std::size_t end = 0;
    while (is_name(peek(end))) ++end;
    const std::string name = end == 0 || is_digit(peek()) ? "" : bytes_of(part(pos_, pos_ + end));
    const bool is_element = peek(end) == '[';
    while (is_element && peek(end) != '=' && !ends_word(peek(end))) ++end;
    const bool appends = peek(end) == '+';
    end += appends ? 1 : 0;
    if (name.empty() || peek(end) != '=') return "";
    const std::size_t begin = pos_;
    pos_ += end + 1;
    const bool is_array = takes("(");
    Fields value(is_array);
    if (!is_array) scan(value, Stop::kWord, false);
    while (is_array && (skip_lines(), !takes(")"))) {
      const std::size_t before = pos_;
      scan(value, Stop::kWord, false);
      if (pos_ == before) script_.fail(at(begin), "nothing closes this parenthesis");
      value.close();
    }
    std::vector<Text> items = is_array ? value.take() : std::vector<Text>{value.take_one()};
    if (runs_.is_never) return name;
    Variable& variable = variables[name];
    variable.is_exported |= is_exported;
    if (is_element || runs_.doubt != 0) {
      set_unknown(variable, name, at(begin), runs_.doubt != 0 ? runs_.doubt : doubt("an element", begin));
    } else if (appends && !is_array && !variable.items.empty()) {
      variable.items.front().insert(variable.items.front().end(), items[0].begin(), items[0].end());
    } else {
      if (!appends) variable.items.clear();
      std::ranges::move(items, std::back_inserter(variable.items));
    }
    return name;
  }
  void set_unknown(Variable& variable, const std::string& name, int at, int why) {
    variable.items.assign(1, {});
    for (const char c : "$" + name) variable.items[0].push_back({c, at, why});
  }

  // ---- redirections
  bool takes_redirection() {
    std::size_t digits = 0;
    while (is_digit(peek(digits))) ++digits;
    digits += peek(digits) == '&' && peek(digits + 1) == '>' ? 1 : 0;
    if ((peek(digits) != '<' && peek(digits) != '>') || peek(digits + 1) == '(') return false;
    pos_ += digits;
    const bool is_text = takes("<<<"), cuts_tabs = !is_text && takes("<<-"), is_document = cuts_tabs || (!is_text && takes("<<"));
    while (!is_text && !is_document && !at_end() && has("<>&|", peek())) ++pos_;
    skip_blanks();
    Fields where(false);
    scan(where, Stop::kWord, false);
    if (is_document) here_documents_.emplace_back(bytes_of(where.take_one()), cuts_tabs);
    return true;
  }

  // ---- commands
  int doubt(std::string_view what, std::size_t begin) {
    return script_.reason(fmt::format("it depends on {} in line {}, which import does not follow", what, line_of(begin)));
  }
  Runs doubtful(std::string_view what) {
    return runs_.is_never || runs_.doubt != 0 ? runs_ : Runs{false, doubt(what, pos_)};
  }
  Runs narrowed(Runs runs, Outcome outcome, bool wanted) {
    if (runs.is_never) return runs;
    if (outcome != Outcome::kUnknown) return (outcome != Outcome::kFalse) == wanted ? runs : Runs{true, 0};
    return runs.doubt != 0 ? runs : Runs{false, doubt("the condition", pos_)};
  }
  void open(std::string_view kind, Runs runs) {
    if (blocks_.size() > 64) script_.fail(here(), "more than 64 levels");
    blocks_.push_back({kind, here(), runs, runs, kind == "case"});
    runs_ = runs;
    pos_ += kind.size();
  }
  void close(std::string_view kind, std::string_view word) {
    if (blocks_.size() == 1 || blocks_.back().kind != kind) fail_alone();
    blocks_.pop_back();
    pos_ += word.size();
    outcome_ = Outcome::kPresumed;
    for (skip_blanks(); takes_redirection(); skip_blanks()) {}
  }
  // A command, or what stands between two.
  void step() {
    skip_blanks();
    Block& block = blocks_.back();
    const std::string word = plain_word();
    const std::size_t begin = pos_;
    if (block.at_pattern && word != "esac") return skip_pattern();
    if (block.kind == "case" && (takes(";;&") || takes(";;") || takes(";&"))) {
      block.at_pattern = true;
      skip_lines();
    } else if (takes("&&") || takes("||")) {
      runs_ = narrowed(block.base, outcome_, text_[begin].c == '&');
      skip_lines();
    } else if (peek() == '\n' || takes(";") || takes("|&") || takes("|") || (peek(1) != '>' && takes("&"))) {
      if (pos_ == begin) skip_newline();
      runs_ = block.base;
      if (text_[begin].c == '|') outcome_ = Outcome::kPresumed;
    } else if (takes("((")) {
      skip_parentheses(at(begin));
      if (!takes(")")) fail_alone();
      outcome_ = Outcome::kUnknown;
    } else if (peek() == '(' || word == "{" || word == "if") {
      open(peek() == '(' ? "(" : word == "{" ? "{" : "if", runs_);
    } else if (peek() == ')' || word == "}" || word == "fi" || word == "done" || word == "esac") {
      close(peek() == ')' ? "(" : word == "}" ? "{" : word == "fi" ? "if" : word == "done" ? "loop" : "case", word.empty() ? ")" : word);
    } else if (word == "then" && block.kind == "if") {
      pos_ += word.size();
      const Outcome outcome = outcome_ == Outcome::kPresumed ? Outcome::kUnknown : outcome_;
      runs_ = block.base = narrowed(block.rest, outcome, true);
      block.rest = narrowed(block.rest, outcome, false);
    } else if ((word == "else" || word == "elif") && block.kind == "if") {
      pos_ += word.size();
      runs_ = block.base = block.rest;
    } else if (is_word(word, "for while until select")) {
      open("loop", doubtful("the loop"));
      pos_ += word.size() - std::string_view("loop").size();
      skip_blanks();
      const std::string name = is_word(word, "for select") ? parameter_name(false) : "";
      if (!name.empty() && !runs_.is_never) set_unknown(script_.variables[name], name, at(begin), runs_.doubt);
    } else if (word == "case") {
      open("case", doubtful("the case"));
      skip_blanks();
      Fields value(false);
      scan(value, Stop::kWord, false);
      skip_lines();
      if (!takes("in")) script_.fail(at(begin), "no \"in\" follows this");
      skip_lines();
    } else if (is_word(word, "do time")) {
      pos_ += word.size();
    } else if (word == "!") {
      ++pos_;
      is_not_ = !is_not_;
    } else if (word == "[[" || word == "[") {
      pos_ += word.size();
      settle(test(word == "[[" ? "]]" : "]", begin));
    } else if (!takes_function()) {
      simple();
    }
  }
  void skip_pattern() {
    const std::size_t begin = pos_;
    while (!takes(")")) {
      skip_lines();
      if (takes("|") || takes("(")) continue;
      const std::size_t before = pos_;
      Fields pattern(false);
      scan(pattern, Stop::kWord, false);
      if (pos_ == before && peek() != ')') script_.fail(at(begin), "no \")\" ends this pattern");
    }
    blocks_.back().at_pattern = false;
    runs_ = blocks_.back().base;
  }
  void settle(Outcome outcome) {
    if (is_not_) outcome = outcome == Outcome::kTrue ? Outcome::kFalse : outcome == Outcome::kFalse ? Outcome::kTrue : Outcome::kUnknown;
    is_not_ = false;
    if (!runs_.is_never) outcome_ = runs_.doubt != 0 ? Outcome::kUnknown : outcome;
  }
  // NAME() or function NAME: its block comes next, and nobody knows who calls it.
  bool takes_function() {
    const std::size_t begin = pos_;
    const bool has_keyword = plain_word() == "function";
    if (has_keyword) pos_ += 8, skip_blanks();
    const std::size_t name = pos_;
    while (is_name(peek()) || has("-:.", peek())) ++pos_;
    const bool has_name = pos_ > name;
    skip_blanks();
    const bool has_parentheses = takes("(") && (skip_blanks(), takes(")"));
    if (has_name && (has_parentheses || has_keyword)) {
      runs_ = doubtful("the function");
      skip_lines();
      return true;
    }
    pos_ = begin;
    return false;
  }

  void simple() {
    std::vector<Text> words;
    Variables given;
    const std::size_t begin = pos_;
    const Runs runs = std::exchange(runs_, Runs{true, 0});
    while (skip_blanks(), !takes_assignment(given, false).empty()) {}
    const bool is_assignment = ends_word(peek()) && !has("<>", peek());  // else its variables are those of the command alone
    pos_ = begin;
    runs_ = runs;
    bool declares = false;
    while (skip_blanks(), takes_redirection() || !ends_word(peek()) || has("<>", peek())) {
      const bool is_exported = declares && bytes_of(words[0]) == "export";
      if ((words.empty() || declares) &&
          !takes_assignment(is_assignment || declares ? script_.variables : given, is_exported).empty())
        continue;
      const std::size_t before = pos_;
      Fields fields(true);
      if (takes("<(") || takes(">(")) {
        skip_parentheses(at(before));
        put_not_executed(fields, before);
      }
      scan(fields, Stop::kWord, false);
      std::ranges::move(fields.take(), std::back_inserter(words));
      declares = !words.empty() && is_word(bytes_of(words[0]), "export declare local readonly typeset");
    }
    if (pos_ == begin) fail_alone();
    const bool is_false = !words.empty() && bytes_of(words[0]) == "false";
    settle(words.empty() || bytes_of(words[0]) == "true" ? Outcome::kTrue : is_false ? Outcome::kFalse : Outcome::kPresumed);
    if (!words.empty() && !runs_.is_never) emit(words, given, at(begin));
  }
  void emit(const std::vector<Text>& words, const Variables& given, int begin) {
    const std::string name = bytes_of(words[0]);
    ShellCommand command{before_, {}, script_.reasons[static_cast<std::size_t>(runs_.doubt)].text};
    std::size_t bytes = 0;
    for (const ShellWord& word : before_) bytes += word.text.size() + sizeof(ShellWord);
    if (name == "eval") return nested({words.begin() + 1, words.end()}, {}, begin);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string word = bytes_of(words[i]);
      if (name == "export" && script_.variables.contains(word)) script_.variables.find(word)->second.is_exported = true;
      if (i > 0 && i + 1 < words.size() && is_word(word, "-c -lc -ec -xc") &&
          is_word(bytes_of(words[i - 1]), "bash sh zsh /bin/bash /bin/sh")) {
        command.words.pop_back();
        return nested({words[i + 1]}, std::move(command.words), begin);
      }
      command.words.push_back(script_.word_of(words[i], begin));
      bytes += word.size() + sizeof(ShellWord);
    }
    for (const std::string_view setting : script_.settings) {
      const auto own = given.find(setting);
      const auto common = std::as_const(script_.variables).find(setting);
      if (own == given.end() && (common == script_.variables.end() || !common->second.is_exported)) continue;
      const std::vector<Text>& items = own == given.end() ? common->second.items : own->second.items;
      command.settings.push_back(script_.word_of(items.empty() ? Text() : items[0], begin));
      std::string& text = command.settings.back().text;
      text = fmt::format("{}={}", setting, text);
      bytes += text.size() + sizeof(ShellWord);
    }
    script_.spend(bytes, begin);
    script_.commands.push_back(std::move(command));
  }
  // Reads what a shell is given to read.
  void nested(const std::vector<Text>& words, std::vector<ShellWord> before, int begin) {
    Text text;
    for (const Text& word : words) {
      if (!text.empty()) text.push_back({' ', begin});
      text.insert(text.end(), word.begin(), word.end());
    }
    script_.spend(text.size() * 2, begin);
    if (!text.empty()) Reader(script_, std::move(text), std::move(before)).read(runs_);
  }

  // ---- tests
  // Behind "[[": its outcome.
  Outcome test(std::string_view end, std::size_t begin) {
    std::vector<std::vector<Text>> parts(1);
    char join = 0;
    bool is_followed = true;
    in_test_ = true;
    for (skip_lines(); plain_word() != end; skip_lines()) {
      if (at_end()) script_.fail(at(begin), fmt::format("no \"{}\" closes this", end));
      const std::size_t before = pos_;
      if (takes("&&") || takes("||")) {
        is_followed &= join == 0 || join == text_[before].c;
        join = text_[before].c;
        parts.emplace_back();
      } else if (ends_word(peek())) {
        is_followed = false;
        ++pos_;
      } else {
        Fields word(false);
        scan(word, Stop::kWord, false);
        parts.back().push_back(word.take_one());
      }
    }
    in_test_ = false;
    pos_ += end.size();
    Outcome outcome = join == '|' ? Outcome::kFalse : Outcome::kTrue;
    for (std::vector<Text>& part : parts) {
      const Outcome one = is_followed ? test_part(part) : Outcome::kUnknown;
      if (one == (join == '|' ? Outcome::kTrue : Outcome::kFalse)) return one;
      if (one == Outcome::kUnknown) outcome = one;
    }
    return outcome;
  }
  static Outcome test_part(std::vector<Text>& words) {
    const bool is_not = !words.empty() && bytes_of(words[0]) == "!";
    if (is_not) words.erase(words.begin());
    std::vector<std::string> texts;
    for (const Text& word : words) {
      if (why_of(word) != 0) return Outcome::kUnknown;
      texts.push_back(bytes_of(word));
    }
    bool is_true = texts.size() == 1 && !texts[0].empty();
    if (texts.size() == 2 && is_word(texts[0], "-z -n")) is_true = texts[1].empty() == (texts[0] == "-z");
    else if (texts.size() == 3 && is_word(texts[1], "= == -eq != -ne") && texts[2].find_first_of("*?[") == std::string::npos)
      is_true = (texts[0] == texts[2]) == is_word(texts[1], "= == -eq");
    else if (texts.size() != 1) return Outcome::kUnknown;
    return is_true != is_not ? Outcome::kTrue : Outcome::kFalse;
  }

  Script& script_;
  Text text_;
  std::vector<ShellWord> before_;
  std::size_t pos_ = 0;
  std::vector<Block> blocks_;
  Runs runs_;                              // of the next command
  Outcome outcome_ = Outcome::kPresumed;   // of the last one
  bool is_not_ = false;
  bool in_test_ = false;
  bool has_no_items_ = false;  // "${A[@]}" of an empty array was replaced: its quotes make no word
  std::vector<std::pair<std::string, bool>> here_documents_;  // ends, and whether tabs go before them
};

}  // namespace

std::vector<ShellCommand> read_shell(std::string_view text, std::string_view source, std::span<const std::string_view> settings) {
  Script script;
  script.source = source;
  script.settings = settings;
  if (text.size() > std::size_t{1} << 20) script.fail(0, "more than 1 MiB");
  Text chars;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int at = static_cast<int>(i);
    chars.push_back({text[i], at});
    if (text[i] == '\n') script.line_starts.push_back(at + 1);
  }
  Reader(script, std::move(chars)).read({});
  return std::move(script.commands);
}

}  // namespace trident
