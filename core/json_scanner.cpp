#include "core/json_scanner.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <utility>

#include "core/utf8.h"

namespace trident {
namespace {

constexpr std::size_t kShownToken = 80;

[[noreturn]] void refuse_text(ExitCode blame, const std::string& message) {
  if (blame == ExitCode::kConfig) throw ConfigError(message);
  throw DataError(message);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '+' || c == '.';
}
bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

// A key is half of its hash, and in the lower half where its text begins: keys that may be one are neighbours when they are sorted.
constexpr int kPlaceBits = 32;
constexpr std::size_t kLastPlace = std::numeric_limits<std::uint32_t>::max();

bool have_one_hash(std::uint64_t a, std::uint64_t b) { return a >> kPlaceBits == b >> kPlaceBits; }

}  // namespace

JsonScanner::JsonScanner(std::string_view text, std::string_view source, const JsonRules& rules)
    : text_(text), source_(source), rules_(rules) {
  if (const std::size_t limit = std::min(rules.max_bytes, kLastPlace); text.size() > limit)
    refuse_text(rules.blame, fmt::format("{}: {} bytes, the limit of such a JSON file is {}; name the file that was meant",
                                         source, text.size(), limit));
  here_.line = rules.first_line;
  if (text.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
}

void JsonScanner::refuse_here(const std::string& what) const {
  refuse_text(rules_.blame, fmt::format("{}:{}:{}: {}", source_, here_.line, here_.at - here_.line_begin + 1, what));
}

void JsonScanner::refuse_syntax(const std::string& what) const { refuse_here("not valid JSON: " + what); }

// The word, character or byte that comes next.
std::string JsonScanner::found() const {
  const std::string_view rest = text_.substr(here_.at);
  if (rest.empty())
    return depth_ == 0 ? "the end of the text"
                       : fmt::format("the end of the text (the {} of line {} is open)", text_[open_.at], open_.line);
  const auto word = std::find_if_not(rest.begin(), rest.end(), is_word_char) - rest.begin();
  if (word > 0) return in_quotes(rest.substr(0, static_cast<std::size_t>(word)), kShownToken);
  if (valid_prefix(rest.substr(0, 4)) == 0) return fmt::format("the byte 0x{:02X}", static_cast<unsigned char>(rest[0]));
  return in_quotes(rest.substr(0, code_point_at(rest, 0).size));
}

void JsonScanner::refuse_value() const {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {{"\"True\"", "; write true"},
                                                                       {"\"False\"", "; write false"},
                                                                       {"\"None\"", "; write null"},
                                                                       {"\"'\"", "; texts stand in double quotes"},
                                                                       {"\"#\"", "; comments begin with //"}};
  std::string what = fmt::format("{} where a value is expected", found());
  for (const auto& [word, remedy] : kOthers)
    if (what.starts_with(word) && (word != "\"#\"" || rules_.comments)) what += remedy;
  refuse_syntax(what);
}

bool JsonScanner::take(char c) {
  if (next() != c) return false;
  ++here_.at;
  return true;
}

void JsonScanner::skip_space() {
  for (;; ++here_.at) {
    const char c = next();
    if (c == '\n') here_.line_begin = here_.at + 1, ++here_.line;
    else if (c == '/' && rules_.comments) skip_comment();
    else if (c != ' ' && c != '\t' && c != '\r') return;
  }
}

// Ends before the comment's last character.
void JsonScanner::skip_comment() {
  const char kind = here_.at + 1 < text_.size() ? text_[here_.at + 1] : '\0';
  if (kind != '/' && kind != '*') refuse_value();
  const std::size_t end =
      kind == '/' ? std::min(text_.find_first_of("\r\n", here_.at), text_.size()) : text_.find("*/", here_.at + 2);
  if (end == std::string_view::npos) refuse_syntax("a comment that does not end");
  for (const std::size_t last = kind == '/' ? end - 1 : end + 1; here_.at < last; ++here_.at)
    if (text_[here_.at] == '\n') here_.line_begin = here_.at + 1, ++here_.line;
}

JsonValue::Kind JsonScanner::kind() {
  skip_space();
  switch (const char c = next()) {
    case '{': return JsonValue::Kind::kObject;
    case '[': return JsonValue::Kind::kArray;
    case '"': return JsonValue::Kind::kString;
    case 't':
    case 'f': return JsonValue::Kind::kBool;
    case 'n': return JsonValue::Kind::kNull;
    default:
      if (is_digit(c) || c == '-') return JsonValue::Kind::kNumber;
      refuse_value();
  }
}

void JsonScanner::enter() {
  if (depth_ >= rules_.max_depth) refuse_here(fmt::format("nested deeper than {} levels", rules_.max_depth));
  ++depth_;
  open_ = here_;
  ++here_.at;
  skip_space();
}

// Whether another item follows the one that was read.
bool JsonScanner::another(char close) {
  skip_space();
  if (take(close)) return false;
  const Place comma = here_;
  if (!take(','))
    refuse_syntax(fmt::format("{} where \",\" or \"{}\" is expected{}", found(), close,
                              next() == '"' ? "; a comma is missing before it" : ""));
  skip_space();
  if (next() != close) return true;
  here_ = comma;
  refuse_syntax(fmt::format("trailing comma on line {}; remove it", comma.line));
}

void JsonScanner::members(FunctionRef<void(const std::string&)> member) {
  const std::size_t first_key = keys_.size();
  const Place outer = open_;
  enter();
  std::string key;
  for (bool more = !take('}'); more; more = another('}')) {
    if (next() != '"') refuse_syntax(fmt::format("{} where a key in double quotes is expected", found()));
    const std::size_t place = here_.at;
    key.clear();
    read_string(&key);
    keys_.push_back(std::hash<std::string>()(key) << kPlaceBits | place);
    skip_space();
    if (!take(':')) refuse_syntax(fmt::format("{} where \":\" is expected", found()));
    member(key);
  }
  check_keys(first_key);
  --depth_;
  open_ = outer;
}

void JsonScanner::check_keys(std::size_t first_key) {
  const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(first_key), end = keys_.end();
  const auto are_one = [&](std::uint64_t a, std::uint64_t b) { return have_one_hash(a, b) && text_of_key(a) == text_of_key(b); };
  std::sort(begin, end);
  if (const auto twice = std::adjacent_find(begin, end, are_one); twice != end) refuse_duplicate(twice[1]);
  // Another key of the same hash may stand between two that are one.
  for (auto first = begin; (first = std::adjacent_find(first, end, have_one_hash)) != end;) {
    const auto last = std::find_if(first, end, [&](std::uint64_t key) { return !have_one_hash(*first, key); });
    const auto text_then_place = [&](std::uint64_t key) { return std::pair(text_of_key(key), key); };
    std::ranges::sort(first, last, {}, text_then_place);
    if (const auto twice = std::adjacent_find(first, last, are_one); twice != last) refuse_duplicate(twice[1]);
    first = last;
  }
  keys_.erase(begin, end);
}

std::string JsonScanner::text_of_key(std::uint64_t key) {
  const Place back = std::exchange(here_, {.at = key & kLastPlace});
  const std::int64_t num_replaced = num_replaced_;
  std::string text;
  read_string(&text);
  here_ = back;
  num_replaced_ = num_replaced;
  return text;
}

void JsonScanner::refuse_duplicate(std::uint64_t key) {
  const std::string text = text_of_key(key);
  const std::string_view before = text_.substr(0, key & kLastPlace);
  here_ = {before.size(), before.rfind('\n') + 1, rules_.first_line + std::ranges::count(before, '\n')};
  refuse_here("duplicate key " + in_quotes(text) + "; keep one of them");
}

void JsonScanner::items(FunctionRef<void()> item) {
  const Place outer = open_;
  enter();
  for (bool more = !take(']'); more; more = another(']')) item();
  --depth_;
  open_ = outer;
}

std::string JsonScanner::string() {
  TRIDENT_CHECK(kind() == JsonValue::Kind::kString, "JSON value is {}", describe(kind()));
  std::string text;
  read_string(&text);
  return text;
}

// Appends to *out unless it is nullptr.
void JsonScanner::read_string(std::string* out) {
  const Place quote = here_;
  for (++here_.at;;) {
    const std::size_t begin = here_.at;
    bool is_ascii = true;
    unsigned char c = 0;
    for (; here_.at < text_.size(); ++here_.at) {
      c = static_cast<unsigned char>(text_[here_.at]);
      if (c == '"' || c == '\\' || c < 0x20) break;
      is_ascii = is_ascii && c < 0x80;
    }
    const std::string_view run = text_.substr(begin, here_.at - begin);
    if (const std::size_t valid = is_ascii ? run.size() : valid_prefix(run); valid < run.size()) {
      here_.at = begin + valid;
      refuse_syntax(fmt::format("{} in a string is not UTF-8", found()));
    }
    if (out != nullptr) out->append(run);
    if (here_.at == text_.size()) {
      here_ = quote;
      refuse_syntax("the text ends inside the string that begins here");
    }
    if (c < 0x20) refuse_syntax(fmt::format("the control character 0x{:02X} in a string; write \\u{:04x}", c, c));
    if (c == '"') break;
    const Place backslash = here_;
    char32_t escaped = escape();
    if (is_surrogate(escaped)) {
      if (!rules_.replaces_surrogates) {
        here_ = backslash;
        refuse_syntax(fmt::format("the surrogate \\u{:04x} without its other half", static_cast<std::uint32_t>(escaped)));
      }
      escaped = 0xFFFD;
      num_replaced_ += out != nullptr;
    }
    if (out != nullptr) append_utf8(*out, escaped);
  }
  ++here_.at;
}

// The code point of the escape that comes next; a surrogate where it has no other half.
char32_t JsonScanner::escape() {
  ++here_.at;
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (!take('u')) {
    const std::size_t letter = here_.at < text_.size() ? kLetters.find(next()) : std::string_view::npos;
    if (letter == std::string_view::npos) refuse_syntax(fmt::format("{} after \"\\\" in a string", found()));
    ++here_.at;
    return static_cast<unsigned char>(kMeanings[letter]);
  }
  const char32_t first = hex4();
  if (!is_surrogate(first) || first >= 0xDC00 || text_.substr(here_.at, 2) != "\\u") return first;
  const Place behind = here_;
  here_.at += 2;
  if (const char32_t second = hex4(); second >= 0xDC00 && second < 0xE000)
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  here_ = behind;
  return first;
}

char32_t JsonScanner::hex4() {
  std::uint32_t value = 0;
  const std::string_view digits = text_.substr(here_.at, 4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || end != digits.data() + 4) refuse_syntax("\"\\u\" without four hexadecimal digits in a string");
  here_.at += 4;
  return value;
}

void JsonScanner::digits(std::string_view part) {
  if (!is_digit(next())) refuse_syntax(fmt::format("{} where a digit of a number's {} is expected", found(), part));
  while (is_digit(next())) ++here_.at;
}

std::string_view JsonScanner::number_text() {
  const std::size_t begin = here_.at;
  take('-');
  if (!take('0')) digits("whole part");
  else if (is_digit(next())) refuse_syntax("a number with a leading 0");
  if (take('.')) digits("fraction");
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    digits("exponent");
  }
  return text_.substr(begin, here_.at - begin);
}

JsonValue JsonScanner::number() {
  const Place begin = here_;
  const std::string_view text = number_text();
  std::int64_t integer = 0;
  const bool is_integer = text.find_first_of(".eE") == std::string_view::npos;
  if (is_integer && std::from_chars(text.data(), text.data() + text.size(), integer).ec == std::errc{}) return integer;
  double value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{})
    value = std::strtod(std::string(text).c_str(), nullptr);  // tells what is too large from what is next to 0
  // A reader of integers refuses one beyond int64 instead of wrapping it.
  if (std::isfinite(value)) return is_integer ? JsonValue(JsonValue::LargeInteger{std::string(text)}) : JsonValue(value);
  here_ = begin;
  refuse_syntax(fmt::format("number overflow: {} is too large", in_quotes(text, kShownToken)));
}

void JsonScanner::word(std::string_view expected) {
  if (text_.substr(here_.at, expected.size()) != expected) refuse_value();
  here_.at += expected.size();
}

JsonValue JsonScanner::value(std::size_t& values_left) {
  const JsonValue::Kind coming = kind();
  const Place begin = here_;
  if (values_left == 0)
    refuse_here("more values than memory is taken for begin here; the text is damaged, or not what it should be");
  --values_left;
  const auto read = [&]() -> JsonValue {
    switch (coming) {
      case JsonValue::Kind::kObject: {
        JsonValue::Object object;
        members([&](const std::string& key) {
          object.push_back({key, {}});
          object.back().value = value(values_left);
        });
        return object;
      }
      case JsonValue::Kind::kArray: {
        JsonValue::Array list;
        items([&] { list.push_back(value(values_left)); });
        return list;
      }
      case JsonValue::Kind::kString: return string();
      case JsonValue::Kind::kBool: {
        const bool is_true = next() == 't';
        word(is_true ? "true" : "false");
        return is_true;
      }
      case JsonValue::Kind::kNull: word("null"); return nullptr;
      case JsonValue::Kind::kInteger:
      case JsonValue::Kind::kNumber: return number();
    }
    return nullptr;
  };
  JsonValue result = read();
  result.set_position(static_cast<int>(begin.line), static_cast<int>(begin.at - begin.line_begin + 1));
  return result;
}

std::string_view JsonScanner::skip() {
  const JsonValue::Kind coming = kind();
  const std::size_t begin = here_.at;
  switch (coming) {
    case JsonValue::Kind::kObject: members([&](const std::string&) { skip(); }); break;
    case JsonValue::Kind::kArray: items([&] { skip(); }); break;
    case JsonValue::Kind::kString: read_string(nullptr); break;
    case JsonValue::Kind::kBool: word(next() == 't' ? "true" : "false"); break;
    case JsonValue::Kind::kNull: word("null"); break;
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kNumber: number_text(); break;
  }
  return text_.substr(begin, here_.at - begin);
}

void JsonScanner::end() {
  skip_space();
  if (here_.at < text_.size()) refuse_syntax(fmt::format("{} after the value", found()));
}

}  // namespace trident
