#include "train/import/shell_words.h"

#include <cstdint>
#include <optional>
#include <tuple>

namespace trident::shell {

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

namespace {

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
    while (pos_ < text_.size() && is_digit(text_[pos_]) && value < (std::int64_t{1} << 58))
      value = value * 10 + (text_[pos_++] - '0');
    return pos_ > begin && (text_[begin] != '0' || pos_ == begin + 1) ? std::optional(value) : std::nullopt;
  }

  std::string text_;
  std::size_t pos_ = 0;
  int levels_ = 0;
};

}  // namespace

ShellWord Script::word_of(const Text& text, int at) const {
  ShellWord word;
  word.text = bytes_of(text);
  std::tie(word.line, word.column) = place(text.empty() ? at : text.front().at);
  const Reason& reason = reasons[static_cast<std::size_t>(why_of(text))];
  word.unknown = reason.text, word.is_parameter = reason.is_parameter;
  return word;
}

std::pair<int, int> Script::place(int at) const {
  const auto line = std::ranges::upper_bound(line_starts, at) - 1;
  return {static_cast<int>(line - line_starts.begin()) + 1, at - *line + 1};
}

void Scanner::skip_blanks() {
  while (true) {
    if (!at_end() && has(" \t\r", peek())) ++pos_;
    else if (takes("\\\n")) continue;
    else if (peek() == '#') while (!at_end() && peek() != '\n') ++pos_;
    else return;
  }
}

void Scanner::skip_newline() {
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

void Scanner::scan(Fields& out, Stop stop, bool is_quoted) {
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

void Scanner::single_quoted(Fields& out, bool has_escapes) {
  const std::size_t begin = pos_++;
  out.open();
  int why = 0;
  for (; peek() != '\''; ++pos_) {
    const bool is_escape = has_escapes && peek() == '\\';
    pos_ += is_escape ? 1 : 0;
    if (at_end()) script_.fail(at(begin), "nothing closes this quote");
    if (is_escape && !has("\\'\"", peek()) && why == 0)
      why = script_.reason(fmt::format("{} in line {} stands for another character; write that in its place",
                                       in_quotes(bytes_of(part(pos_ - 1, pos_ + 1))), line_of(pos_)));
    out.put({text_[pos_].c, text_[pos_].at, is_escape ? why : text_[pos_].why});
  }
  ++pos_;
}

void Scanner::skip_parentheses(int begin) {
  const Level level(script_, begin);
  for (int open = 1; open > 0; ++pos_) {
    if (at_end()) script_.fail(begin, "nothing closes this parenthesis");
    if (peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
    else if (has("'\"", peek())) skip_quoted(peek(), begin), --pos_;
    else open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
  }
}

void Scanner::skip_quoted(char quote, int begin) {
  for (++pos_; peek() != quote; ++pos_) {
    if (at_end()) script_.fail(begin, "nothing closes this quote");
    if (quote != '\'' && peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
    else if (quote == '"' && takes("$(")) skip_parentheses(begin), --pos_;
  }
  ++pos_;
}

void Scanner::dollar(Fields& out, bool is_quoted) {
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

std::string Scanner::parameter_name(bool is_braced) {
  const std::size_t begin = pos_;
  if (is_digit(peek())) while (is_digit(peek()) && (is_braced || pos_ == begin)) ++pos_;
  else if (is_name(peek())) while (is_name(peek())) ++pos_;
  else pos_ += !at_end() && has("@*#?$!-", peek()) ? 1 : 0;
  return typed(begin);
}

void Scanner::arithmetic(Fields& out, std::size_t begin) {
  const std::size_t inner = pos_;
  skip_parentheses(at(begin));
  Scanner reader(script_, part(inner, pos_ - 1));
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

void Scanner::parameter(Fields& out, std::size_t begin, bool is_quoted) {
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

void Scanner::put_variable(Fields& out, std::size_t begin, const std::string& name, const std::string& subscript, bool is_quoted) {
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

void Scanner::put_unset(Fields& out, std::size_t begin, const std::string& name) {
  const bool is_argument = is_digit(name.front()) && name != "0", is_folder = is_word(name, "HOME PWD OLDPWD TMPDIR USER 0");
  if (in_test_ && !is_folder) return;
  const std::string shown = in_quotes("$" + name, 60);
  put_unknown(out, begin, is_argument ? script_.reason(fmt::format("{} is an argument of the script", shown), true)
                          : is_folder || !is_name(name.front())
                              ? script_.reason(fmt::format("{} is known where the script runs", shown), is_folder)
                                      : script_.reason(fmt::format("{} is set nowhere before line {}; write {}=... above it", shown,
                                                                   line_of(begin), name)));
}

}  // namespace trident::shell
