#include "data/chat/python_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/json_reader.h"
#include "core/packed_numbers.h"
#include "core/utf8.h"

namespace trident::jinja {
namespace {

#include "data/chat/python_text.inc"

enum class Case : std::uint8_t { kUpper, kLower };

// Where the code point begins that ends at `end`.
std::size_t begin_of_last(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (text[end] & 0xC0) == 0x80);
  return end;
}

bool is_cased(char32_t c) {
  const bool is_usual = (c | 0x20) - 'a' < 26 || c == 0x3A3;
  return is_usual || value_in(kUpperRuns, c) != 0 || value_in(kLowerRuns, c) != 0 || !kUpperTexts.of(c).empty();
}

// Whether a capital sigma from `begin` to `end` ends a word: a letter with cases stands before it and none behind. Characters that
// may stand between are known here where they are ASCII, marks, or punctuation and kana in the ranges below.
bool ends_word(std::string_view text, std::size_t begin, std::size_t end) {
  static constexpr char32_t kBetween[] = {0xB7,   0xB8,   0x300,  0x370,  0x384,  0x385,  0x2018, 0x201A, 0x2024, 0x2025, 0x2027,
                                          0x2028, 0x202A, 0x202F, 0x3005, 0x3006, 0x302A, 0x302E, 0x3031, 0x3036, 0x303B, 0x303C,
                                          0x3099, 0x309F, 0x30FC, 0x30FF};
  const auto stands_between = [](char32_t c) {
    return c < 0x80 ? std::string_view("'.:^`").find(static_cast<char>(c)) != std::string_view::npos
                    : is_between(kBetween, c);
  };
  const auto is_letter = [&](char32_t c) {
    if (is_cased(c) || c < 0x80 || is_space(c) || (c >= 0x2010 && c < 0x2060) || (c >= 0x3000 && c < 0xA000)) return is_cased(c);
    throw Refusal("the lower case of the letter \xCE\xA3 beside a character that is not known there");
  };
  while (begin > 0 && stands_between(code_point_at(text, begin_of_last(text, begin)).value)) begin = begin_of_last(text, begin);
  while (end < text.size() && stands_between(code_point_at(text, end).value)) end += code_point_at(text, end).size;
  return begin > 0 && is_letter(code_point_at(text, begin_of_last(text, begin)).value) &&
         !(end < text.size() && is_letter(code_point_at(text, end).value));
}

Text in_case(const Text& text, std::size_t begin, std::size_t end, Case to) {
  const auto convert = [](std::span<const CodePointRun> runs, std::span<const char32_t> parts, char32_t c, std::string* out) {
    for (const char32_t part : parts) append_utf8(*out, part);
    if (parts.empty()) append_utf8(*out, static_cast<char32_t>(static_cast<std::int32_t>(c) + value_in(runs, c)));
  };
  Text out;
  std::string converted;
  for (std::size_t at = begin; at < end;) {
    const CodePoint c = code_point_at(text.bytes, at);
    converted.clear();
    if (c.value < 0x80) {
      const bool changes = to == Case::kUpper ? c.value >= 'a' && c.value <= 'z' : c.value >= 'A' && c.value <= 'Z';
      converted += static_cast<char>(changes ? c.value ^ 0x20 : c.value);
    } else if (to == Case::kUpper) convert(kUpperRuns, kUpperTexts.of(c.value), c.value, &converted);
    else if (c.value == 0x3A3) append_utf8(converted, ends_word(text.bytes, at, at + c.size) ? 0x3C2 : 0x3C3);
    else convert(kLowerRuns, kLowerTexts.of(c.value), c.value, &converted);
    out.append(converted, text.marks[at]);
    at += c.size;
  }
  return out;
}

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Where what is left of a text begins and ends.
std::pair<std::size_t, std::size_t> kept_of(std::string_view bytes, const Text* characters, Ends ends) {
  std::size_t begin = 0, end = bytes.size();
  std::vector<char32_t> wanted;
  for (std::size_t at = 0; characters != nullptr && at < characters->size(); at += code_point_at(characters->bytes, at).size)
    wanted.push_back(code_point_at(characters->bytes, at).value);
  std::ranges::sort(wanted);
  const auto goes = [&](std::size_t at) {
    const char32_t c = code_point_at(bytes, at).value;
    return characters == nullptr ? is_space(c) : std::ranges::binary_search(wanted, c);
  };
  while (ends != Ends::kRight && begin < end && goes(begin)) begin += code_point_at(bytes, begin).size;
  for (std::size_t last; ends != Ends::kLeft && begin < end && goes(last = begin_of_last(bytes, end));) end = last;
  return {begin, end};
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) { return c < 0x7F ? c >= 0x20 : !is_between(kNotPrintable, c); }

std::size_t leading_space(std::string_view text) { return kept_of(text, nullptr, Ends::kLeft).first; }
std::size_t stripped_end(std::string_view text) { return kept_of(text, nullptr, Ends::kRight).second; }

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::size_t place_of_code_point(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += code_point_at(text, at).size;
  return at;
}

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; (at = words.find(word, at)) != words.npos; ++at) {
    const std::size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return word.find(' ') == word.npos;
  }
  return false;
}

std::size_t find_text(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  const void* const found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

Text strip(const Text& text, const Text* characters, Ends ends) {
  const auto [begin, end] = kept_of(text.bytes, characters, ends);
  return text.part(begin, end);
}

std::vector<Text> split(const Text& text, const Text* separator, std::int64_t max_splits, Budget* budget) {
  std::vector<Text> parts;
  const auto add = [&](std::size_t from, std::size_t to) { budget->take(), parts.push_back(text.part(from, to)); };
  std::size_t begin = 0;
  const auto may_split = [&] { return max_splits < 0 || std::ssize(parts) < max_splits; };
  if (separator != nullptr) {
    if (separator->size() == 0) throw Refusal("split by an empty text");
    while (may_split()) {
      const std::size_t at = find_text(text.bytes, separator->bytes, begin);
      if (at == std::string_view::npos) break;
      add(begin, at);
      begin = at + separator->size();
    }
    add(begin, text.size());
    return parts;
  }
  const std::string_view bytes = text.bytes;
  for (;;) {
    begin += leading_space(bytes.substr(begin));
    if (begin == bytes.size()) return parts;
    if (!may_split()) break;
    std::size_t end = begin;
    while (end < bytes.size() && !is_space(code_point_at(bytes, end).value)) end += code_point_at(bytes, end).size;
    add(begin, end);
    begin = end;
  }
  add(begin, text.size());
  return parts;
}

std::vector<Text> split_lines(const Text& text, Budget* budget) {
  std::vector<Text> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text.bytes, at);
    if (ends_line(c.value)) {
      budget->take();
      lines.push_back(text.part(begin, at));
      begin = at + c.size;
      if (c.value == '\r' && begin < text.size() && text.bytes[begin] == '\n') ++begin;
      at = begin;
    } else at += c.size;
  }
  if (begin < text.size()) lines.push_back(text.part(begin, text.size()));
  return lines;
}

Text replace(const Text& text, const Text& old, const Text& by, std::int64_t count) {
  Text out;
  std::size_t at = 0;
  if (old.size() == 0) {  // between all characters, before and behind
    for (; count != 0; --count) {
      out.append(by);
      if (at == text.size()) return out;
      const std::size_t size = code_point_at(text.bytes, at).size;
      out.append(text, at, at + size);
      at += size;
    }
  }
  for (; count != 0; --count) {
    const std::size_t found = find_text(text.bytes, old.bytes, at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    out.append(by);
    at = found + old.size();
  }
  out.append(text, at, text.size());
  return out;
}

SliceBounds slice_bounds(std::size_t size, std::optional<std::int64_t> begin, std::optional<std::int64_t> end, std::int64_t step) {
  if (step == 0) throw Refusal("a slice with step 0");
  const auto length = static_cast<std::int64_t>(size);
  const std::int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  const auto clipped = [&](std::int64_t at) {
    return at < 0 ? (at < -length ? low : std::max(at + length, low)) : std::min(at, high);
  };
  const std::int64_t first = begin ? clipped(*begin) : step < 0 ? high : low, last = end ? clipped(*end) : step < 0 ? low : high;
  const std::int64_t bounded = std::clamp(step, -length - 1, length + 1);  // so that no sum overflows
  const std::int64_t span = step < 0 ? first - last : last - first;
  return {first, bounded, span <= 0 ? 0 : (span - 1) / std::abs(bounded) + 1};
}

Text slice(const Text& text, std::optional<std::int64_t> begin, std::optional<std::int64_t> end, std::int64_t step) {
  const SliceBounds bounds = slice_bounds(count_code_points(text.bytes), begin, end, step);
  if (bounds.count == 0) return {};
  if (step == 1) {
    const std::size_t first = place_of_code_point(text.bytes, static_cast<std::size_t>(bounds.first));
    const std::string_view rest = std::string_view(text.bytes).substr(first);
    return text.part(first, first + place_of_code_point(rest, static_cast<std::size_t>(bounds.count)));
  }
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < text.size(); at += code_point_at(text.bytes, at).size) places.push_back(at);
  places.push_back(text.size());
  Text out;
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const auto at = static_cast<std::size_t>(bounds.first + i * bounds.step);
    out.append(text, places[at], places[at + 1]);
  }
  return out;
}

Text upper(const Text& text) { return in_case(text, 0, text.size(), Case::kUpper); }
Text lower(const Text& text) { return in_case(text, 0, text.size(), Case::kLower); }

Text capitalize(const Text& text) {
  if (text.size() == 0) return text;
  const CodePoint first = code_point_at(text.bytes, 0);
  if (is_between(kOtherTitle, first.value)) throw Refusal("a capital of a letter whose title case is not its upper case");
  Text out = in_case(text, 0, first.size, Case::kUpper);
  out.append(in_case(text, first.size, text.size(), Case::kLower));
  return out;
}

Text title(const Text& text) {
  Text out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes[at];
    if (static_cast<unsigned char>(c) >= 0x80) throw Refusal("title() of a text that is not ASCII");
    out.append(in_case(text, at, at + 1, in_word ? Case::kLower : Case::kUpper));
    in_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
  return out;
}

namespace {

constexpr std::size_t kMaxWidth = 4096;

// `spec`: flags, width and precision, of which each is at most kMaxWidth.
std::string number_in_format(const std::string& spec, char letter, const Value& value) {
  const bool is_real = std::string_view("eEfFgG").find(letter) != std::string_view::npos;
  const double limit = is_real ? std::numeric_limits<double>::max() : 9e18;
  if (!value.is_whole() && !(value.is(Value::Kind::kFloat) && std::abs(value.number()) <= limit))
    throw Refusal(fmt::format("%{} of a {}", letter, type_name(value)));
  std::string out(3 * kMaxWidth, '\0');
  const long long whole = value.is_whole() ? value.whole() : is_real ? 0 : static_cast<long long>(value.number());
  const int size = is_real ? std::snprintf(out.data(), out.size(), fmt::format("%{}{}", spec, letter).c_str(), value.number())
                           : std::snprintf(out.data(), out.size(), fmt::format("%{}lld", spec).c_str(), whole);
  TRIDENT_CHECK(size >= 0 && static_cast<std::size_t>(size) < out.size(), "%{}{} wrote {} bytes", spec, letter, size);
  out.resize(static_cast<std::size_t>(size));
  return out;
}

}  // namespace

Text percent_formatted(const Text& format, const Value& value, Budget* budget) {
  const std::string_view bytes = format.bytes;
  const bool is_tuple = value.is_list() && value.list().type == List::Type::kTuple;
  const std::span<const Value> all = is_tuple ? std::span(value.list().items) : std::span(&value, 1);
  const auto wrong = [](std::string_view what) { return Refusal(fmt::format("a text formatted by %: {}", what)); };
  if (format.marked_safe) throw wrong("it is one of |safe");
  budget->take_bytes(format.size());
  Text out;
  std::size_t at = 0, next = 0;
  const auto take = [&](std::string_view characters) {
    const std::size_t begin = at;
    at = std::min(bytes.find_first_not_of(characters, begin), bytes.size());
    return bytes.substr(begin, at - begin);
  };
  const auto number = [&](std::string_view digits) {
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    const std::size_t width = std::stoul("0" + std::string(digits.substr(0, 5)));
    if (width > kMaxWidth) throw wrong(fmt::format("a width beyond {}", kMaxWidth));
    return width;
  };
  for (std::size_t percent; (percent = bytes.find('%', at)) != std::string_view::npos;) {
    out.append(format, at, percent);
    budget->take();
    at = percent + 1;
    const Value* given = nullptr;
    if (bytes.substr(at).starts_with('(')) {
      const std::size_t end = bytes.find_first_of("()", at + 1);
      if (end == bytes.npos || bytes[end] == '(') throw wrong("it ends inside a field");
      const std::string name(bytes.substr(at + 1, end - at - 1));
      given = value.is_dict() ? value.dict().named(name) : nullptr;
      if (given == nullptr) throw wrong(fmt::format("no value {}", in_quotes(name)));
      at = end + 1;
      next = all.size();
    }
    const std::size_t begin = at;
    const std::string flags(take("-+0 "));
    const std::size_t places = number(take("0123456789"));
    const bool is_cut = bytes.substr(at).starts_with('.');
    if (is_cut) ++at;
    const std::size_t most = is_cut ? number(take("0123456789")) : 0;
    if (at == bytes.size()) throw wrong("it ends inside a field");
    const std::size_t end = at + code_point_at(bytes, at).size;
    const char letter = bytes[at++];
    if (letter == '%' && at == percent + 2) {
      out.append(format, percent, at - 1);
      continue;
    }
    if (given == nullptr && next == all.size()) throw wrong("too few values");
    if (given == nullptr) given = &all[next++];
    if (std::string_view(is_cut ? "sreEfFgG" : "srdiueEfFgG").find(letter) == bytes.npos)
      throw wrong(fmt::format("%{}; known are s, r, d, i, u, e, E, f, F, g and G", bytes.substr(begin, end - begin)));
    const bool is_text = letter == 's' || letter == 'r';
    const std::string spec = flags + (places > 0 ? fmt::format("{}", places) : "") + (is_cut ? fmt::format(".{}", most) : "");
    Text text = letter == 's' ? str(*given, budget) : is_text ? repr(*given, budget) : Text(number_in_format(spec, letter, *given));
    if (text.marked_safe) throw wrong("with one of |safe");
    if (is_text && is_cut) text = text.part(0, place_of_code_point(text.bytes, most));
    const Text fill(std::string(places - std::min(places, count_code_points(text.bytes)), ' '));
    const bool is_left = flags.find('-') != flags.npos;
    out.append(is_left ? text : fill);
    out.append(is_left ? fill : text);
    budget->take_bytes(text.size() + fill.size());
  }
  out.append(format, at, format.size());
  const bool is_map = value.is_dict() || value.is_undefined() || (value.is_list() && value.list().type <= List::Type::kRange);
  if (next < all.size() && (is_tuple || !is_map)) throw wrong("too many values");
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);  // the shortest digits that give the number again, as Python has them
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace trident::jinja
