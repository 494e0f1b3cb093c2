#include "data/chat/jinja_lexer.h"

#include <array>
#include <charconv>
#include <optional>

#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/chat/python_text.h"

namespace trident::jinja {
namespace {

constexpr std::size_t kMaxName = 255;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string with_plain_line_ends(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r') out += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n') out += '\n';
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(with_plain_line_ends(source)), view_(text_) {}

  std::vector<Token> run() {
    while (at_ < view_.size()) {
      const std::size_t tag = next_tag();
      const bool is_tag = tag < view_.size();
      const char kind = is_tag ? view_[tag + 1] : '\0';
      char sign = '\0';
      if (is_tag && tag + 2 < view_.size() && (view_[tag + 2] == '-' || view_[tag + 2] == '+')) sign = view_[tag + 2];
      add_data(view_.substr(at_, tag - at_), is_tag, kind, sign);
      if (!is_tag) break;
      const Position begin = place(tag);
      at_ = tag + (sign == '\0' ? 2 : 3);
      const std::optional<WordTag> raw = kind == '%' ? word_tag(at_, "raw", "-") : std::nullopt;
      if (kind == '#') skip_comment(begin);
      else if (raw) raw_data(begin, *raw);
      else tag_tokens(begin, kind == '%');
    }
    tokens_.push_back({Token::Type::kEnd, place(view_.size()), ""});
    return std::move(tokens_);
  }

 private:
  // Called with growing offsets.
  Position place(std::size_t at) {
    for (; counted_ < at; ++counted_)
      if (view_[counted_] == '\n') ++line_, line_begin_ = counted_ + 1;
    return {line_, static_cast<int>(at - line_begin_) + 1};
  }
  [[noreturn]] void refuse(std::size_t at, const std::string& what) { throw SyntaxRefusal(place(at), what); }

  std::size_t next_tag() const {
    for (std::size_t at = at_; (at = view_.find('{', at)) != std::string_view::npos; ++at)
      if (at + 1 < view_.size() && (view_[at + 1] == '%' || view_[at + 1] == '{' || view_[at + 1] == '#')) return at;
    return view_.size();
  }

  void add_data(std::string_view data, bool is_tag, char kind, char sign) {
    const Position begin = place(at_);
    if (is_tag && sign == '-') data = data.substr(0, stripped_end(data));
    else if (is_tag && sign != '+' && kind != '{') {
      const std::size_t line = data.rfind('\n') + 1;
      if ((line > 0 || at_line_begin_) && stripped_end(data.substr(line)) == 0) data = data.substr(0, line);
    }
    if (!data.empty()) tokens_.push_back({Token::Type::kData, begin, std::string(data)});
  }

  // Behind a tag that ends with `sign` before its end: white space, or the line end that trim_blocks takes.
  void end_tag(char sign, bool trims) {
    const std::size_t begin = at_;
    if (sign == '-') at_ += leading_space(view_.substr(at_));
    else if (sign != '+' && trims && at_ < view_.size() && view_[at_] == '\n') ++at_;
    at_line_begin_ = at_ > begin && view_[at_ - 1] == '\n';
  }

  void skip_comment(Position begin) {
    const std::size_t end = view_.find("#}", at_);
    if (end == std::string_view::npos) throw SyntaxRefusal(begin, "a comment that does not end");
    const char sign = end > at_ && (view_[end - 1] == '-' || view_[end - 1] == '+') ? view_[end - 1] : '\0';
    at_ = end + 2;
    end_tag(sign, true);
  }

  struct WordTag {
    std::size_t end;
    char sign;  // before its end
  };
  // A tag that has this word alone, whose inside begins at `at`.
  std::optional<WordTag> word_tag(std::size_t at, std::string_view word, std::string_view signs) const {
    at += leading_space(view_.substr(at));
    if (!view_.substr(at).starts_with(word)) return std::nullopt;
    at += word.size();
    at += leading_space(view_.substr(at));
    const bool is_signed = at < view_.size() && signs.find(view_[at]) != std::string_view::npos;
    const char sign = is_signed ? view_[at++] : '\0';
    return view_.substr(at).starts_with("%}") ? std::optional(WordTag{at + 2, sign}) : std::nullopt;
  }
  // Up to {% endraw %} all is data. Behind {% raw %} no line end is taken away.
  void raw_data(Position begin, const WordTag& raw) {
    at_ = raw.end;
    end_tag(raw.sign, false);
    for (std::size_t tag = at_; (tag = view_.find("{%", tag)) != std::string_view::npos; ++tag) {
      const char sign = tag + 2 < view_.size() && (view_[tag + 2] == '-' || view_[tag + 2] == '+') ? view_[tag + 2] : '\0';
      const std::optional<WordTag> end = word_tag(tag + (sign == '\0' ? 2 : 3), "endraw", "-+");
      if (!end) continue;
      add_data(view_.substr(at_, tag - at_), true, '%', sign);
      at_ = end->end;
      return end_tag(end->sign, true);
    }
    throw SyntaxRefusal(begin, "{% raw %} without {% endraw %}");
  }

  void tag_tokens(Position begin, bool is_block) {
    tokens_.push_back({is_block ? Token::Type::kBlockBegin : Token::Type::kVariableBegin, begin, ""});
    const std::string_view end = is_block ? "%}" : "}}";
    for (std::string open;;) {
      at_ += leading_space(view_.substr(at_));
      const std::string_view rest = view_.substr(at_);
      if (rest.empty()) throw SyntaxRefusal(begin, "a tag that does not end");
      const bool is_signed = (rest[0] == '-' || (is_block && rest[0] == '+')) && rest.substr(1).starts_with(end);
      if (open.empty() && (is_signed || rest.starts_with(end))) {
        tokens_.push_back({is_block ? Token::Type::kBlockEnd : Token::Type::kVariableEnd, place(at_), ""});
        at_ += is_signed ? 3 : 2;
        return end_tag(is_signed ? rest[0] : '\0', is_block);
      }
      if (is_digit(rest[0])) number();
      else if (begins_name(rest[0])) name();
      else if (rest[0] == '\'' || rest[0] == '"') string();
      else operation(&open);
    }
  }

  void add(Token::Type type, std::size_t size) {
    tokens_.push_back({type, place(at_), std::string(view_.substr(at_, size))});
    at_ += size;
  }

  void name() {
    std::size_t size = 1;
    while (at_ + size < view_.size() && (begins_name(view_[at_ + size]) || is_digit(view_[at_ + size]))) ++size;
    if (at_ + size < view_.size() && static_cast<unsigned char>(view_[at_ + size]) >= 0x80)
      refuse(at_ + size, "a name with a letter that is not ASCII");
    if (size > kMaxName) refuse(at_, fmt::format("a name of more than {} characters", kMaxName));
    add(Token::Type::kName, size);
  }

  // Digits, single underscores between them; 0: none.
  std::size_t digits(std::size_t from) const {
    std::size_t at = from;
    while (at < view_.size() && (is_digit(view_[at]) || (view_[at] == '_' && at > from && at + 1 < view_.size() &&
                                                         is_digit(view_[at + 1]) && is_digit(view_[at - 1]))))
      ++at;
    return at - from;
  }

  void number() {
    const std::size_t whole = digits(at_);
    std::size_t size = whole;
    const auto next = [&](std::size_t i) { return at_ + i < view_.size() ? view_[at_ + i] : '\0'; };
    if (at_ == 0 || view_[at_ - 1] != '.') {
      if (next(size) == '.' && digits(at_ + size + 1) > 0) size += 1 + digits(at_ + size + 1);
      const std::size_t sign = next(size + 1) == '+' || next(size + 1) == '-' ? 2 : 1;
      if ((next(size) == 'e' || next(size) == 'E') && digits(at_ + size + sign) > 0) size += sign + digits(at_ + size + sign);
    }
    const bool is_integer = size == whole;
    if (is_integer && (begins_name(next(size)) || (view_[at_] == '0' && std::string_view(view_).substr(at_, size).find_first_not_of(
                                                                            "0_") != std::string_view::npos)))
      refuse(at_, "a number that is not decimal");
    add(is_integer ? Token::Type::kInteger : Token::Type::kFloat, size);
    std::erase(tokens_.back().text, '_');
  }

  void operation(std::string* open) {
    static constexpr std::array<std::string_view, 6> kTwo{"//", "**", "==", "!=", ">=", "<="};
    const std::string_view rest = view_.substr(at_);
    if (std::ranges::any_of(kTwo, [&](std::string_view two) { return rest.starts_with(two); }))
      return add(Token::Type::kOperator, 2);
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,";
    if (kOne.find(rest[0]) == std::string_view::npos)
      refuse(at_, fmt::format("the character {}", in_quotes(rest.substr(0, code_point_at(rest, 0).size))));
    if (rest[0] == '{' || rest[0] == '(' || rest[0] == '[') *open += rest[0] == '{' ? '}' : rest[0] == '(' ? ')' : ']';
    if (rest[0] == '}' || rest[0] == ')' || rest[0] == ']') {
      if (open->empty() || open->back() != rest[0]) refuse(at_, fmt::format("\"{}\" closes nothing", rest[0]));
      open->pop_back();
    }
    add(Token::Type::kOperator, 1);
  }

  void string() {
    const std::size_t begin = at_;
    const char quote = view_[at_++];
    std::string out;
    for (;; ++at_) {
      if (at_ >= view_.size()) refuse(begin, "a text that does not end");
      if (view_[at_] == quote) break;
      if (view_[at_] == '\\') escape(begin, &out);
      else out += view_[at_];
    }
    tokens_.push_back({Token::Type::kString, place(begin), std::move(out)});
    ++at_;
  }

  // Python's; ends on the last character.
  void escape(std::size_t begin, std::string* out) {
    const char c = ++at_ < view_.size() ? view_[at_] : '\0';
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (at_ >= view_.size()) refuse(begin, "a text that does not end");
    if (const std::size_t i = kLetters.find(c); i != std::string_view::npos) *out += kMeanings[i];
    else if (c == 'x' || c == 'u' || c == 'U')
      append_digits(at_ + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, out), at_ += c == 'x' ? 2 : c == 'u' ? 4 : 8;
    else if (c >= '0' && c <= '7') {
      std::size_t size = 1;
      while (size < 3 && at_ + size < view_.size() && view_[at_ + size] >= '0' && view_[at_ + size] <= '7') ++size;
      append_digits(at_, size, 8, out);
      at_ += size - 1;
    } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) refuse(at_ - 1, "this escape in a text");
    else if (c != '\n') (*out += '\\') += c;
  }

  void append_digits(std::size_t from, std::size_t size, int base, std::string* out) {
    const std::string_view written = view_.substr(std::min(from, view_.size()), size);
    std::uint32_t value = 0;
    const char* const end = std::from_chars(written.data(), written.data() + written.size(), value, base).ptr;
    if (end != written.data() + size) refuse(at_ - 1, "an escape in a text with too few digits");
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) refuse(at_ - 1, "an escape in a text for what is no character");
    append_utf8(*out, value);
  }

  const std::string text_;
  const std::string_view view_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0, counted_ = 0, line_begin_ = 0;
  int line_ = 1;
  bool at_line_begin_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

void TokenReader::refuse_token(std::string_view wanted) const {
  switch (token().type) {
    case Token::Type::kEnd: refuse(fmt::format("the end of the template where {} is expected", wanted));
    case Token::Type::kVariableEnd:
    case Token::Type::kBlockEnd: refuse(fmt::format("the end of the tag where {} is expected", wanted));
    default: refuse(fmt::format("{} where {} is expected", in_quotes(token().text), wanted));
  }
}

bool TokenReader::is(std::string_view text, std::size_t ahead) const {
  const Token& it = token(ahead);
  return (it.type == Token::Type::kName || it.type == Token::Type::kOperator) && it.text == text;
}

bool TokenReader::take(std::string_view text) {
  if (!is(text)) return false;
  ++next_;
  return true;
}

void TokenReader::expect(std::string_view text) {
  if (!take(text)) refuse_token(in_quotes(text));
}

void TokenReader::expect(Token::Type type, std::string_view wanted) {
  if (token().type != type) refuse_token(wanted);
  ++next_;
}

std::string TokenReader::name() {
  if (token().type != Token::Type::kName) refuse_token("a name");
  return tokens_[next_++].text;
}

}  // namespace trident::jinja
