#include "data/chat/value.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "core/utf8.h"
#include "data/chat/python_text.h"

namespace trident::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::size_t kFewEntries = 8;
constexpr double kTwo63 = 9223372036854775808.0;

int nesting_of(const Value& value) {
  const int nesting = value.is_list() ? value.list().nesting : value.is_dict() ? value.dict().nesting : 0;
  if (nesting >= kMaxNesting) throw Refusal(fmt::format("lists or dicts more than {} deep", kMaxNesting));
  return nesting;
}

// Two keys are one in Python if and only if their texts are equal; nothing: a key that is not known here.
std::optional<std::string> key_text(const Value& key) {
  if (key.is_text()) return fmt::format("s{}", key.text().bytes);
  if (key.is_none()) return "n";
  if (key.is_whole()) return fmt::format("i{}", key.whole());
  if (!key.is(Kind::kFloat)) return std::nullopt;
  const double number = key.number();
  if (std::trunc(number) == number && std::abs(number) < kTwo63) return fmt::format("i{}", static_cast<std::int64_t>(number));
  return fmt::format("f{}", number_text(number));
}

[[noreturn]] void refuse_operands(std::string_view operation, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) throw Refusal(*value->undefined().hint);
  throw Refusal(fmt::format("{} of {} and {}", operation, type_name(a), type_name(b)));
}

// Exact: long double has the 64 bits of both.
long double exact(const Value& value) {
  return value.is(Kind::kFloat) ? static_cast<long double>(value.number()) : static_cast<long double>(value.whole());
}

Value whole_arithmetic(std::string_view operation, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool overflows = false;
  if (operation == "+") overflows = __builtin_add_overflow(a, b, &out);
  if (operation == "-") overflows = __builtin_sub_overflow(a, b, &out);
  if (operation == "*") overflows = __builtin_mul_overflow(a, b, &out);
  if (operation == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    if (b > 0 && a >= -1 && a <= 1) return a == -1 && b % 2 == 0 ? std::int64_t{1} : a;
    for (out = 1; b > 0 && !overflows; --b) overflows = __builtin_mul_overflow(out, a, &out);
  }
  if (overflows) throw Refusal("an integer of more than 64 bits");
  if (operation.find_first_of("/%") != 0) return out;
  if (operation == "/") {
    if (std::max(std::abs(static_cast<double>(a)), std::abs(static_cast<double>(b))) > 9e15)
      throw Refusal("a quotient of numbers beyond 9e15");
    return static_cast<double>(a) / static_cast<double>(b);
  }
  if (b == -1) return operation == "%" ? Value(std::int64_t{0}) : whole_arithmetic("*", a, b);
  const bool is_below = a % b != 0 && (a < 0) != (b < 0);  // Python rounds down
  return operation == "%" ? a % b + (is_below ? b : 0) : a / b - (is_below ? 1 : 0);
}

Value real_arithmetic(std::string_view operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "/") return a / b;
  if (operation == "**") {
    const double out = std::pow(a, b);
    if (!std::isfinite(out) || (a < 0 && std::trunc(b) != b)) throw Refusal("a power that is no finite number");
    return out;
  }
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest == 0) rest = std::copysign(0.0, b);
  else if ((b < 0) != (rest < 0)) rest += b, quotient -= 1;
  if (operation == "%") return rest;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

// Jinja's Markup escapes what it is joined with.
Text escaped(const Text& text) {
  if (text.marked_safe) return text;
  Text out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes[at], mark = text.marks[at];
    out.append(c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '\'' ? "&#39;" : c == '"' ? "&#34;"
                                                                                        : std::string_view(&c, 1), mark);
  }
  return out;
}

Value repeated(const Value& value, std::int64_t times, Budget* budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.is_text()) {
    Text out;
    const std::size_t size = value.text().size();
    if (size > 0 && count > kMaxText / size) throw Refusal("a text of more than 64 MiB");
    budget->take(count);
    budget->take_bytes(count * size);
    for (std::size_t i = 0; size > 0 && i < count; ++i) out.append(value.text());
    out.marked_safe = value.text().marked_safe;
    return out;
  }
  List out;
  out.type = value.list().type;
  if (const std::size_t size = value.list().items.size(); size > 0) budget->take(std::min(count, kMaxText) * size);
  for (std::size_t i = 0; !value.list().items.empty() && i < count; ++i)
    out.items.insert(out.items.end(), value.list().items.begin(), value.list().items.end());
  return out;
}

class Writer {
 public:
  explicit Writer(Budget* budget) : budget_(budget) {}

  void str(const Value& value) {
    if (value.is_text()) add(value.text());
    else if (!value.is_undefined()) repr(value);
  }

  void repr(const Value& value) {
    budget_->take();
    switch (value.kind()) {
      case Kind::kNone: return out.append("None");
      case Kind::kUndefined: return out.append("Undefined");
      case Kind::kBool: return out.append(value.boolean() ? "True" : "False");
      case Kind::kInteger: return out.append(fmt::format("{}", value.whole()));
      case Kind::kFloat: return out.append(number_text(value.number()));
      case Kind::kLarge: return out.append(value.digits());
      case Kind::kText: return quoted(value.text());
      case Kind::kDict:
        return members(value.dict().entries, "{", "}", [&](const auto& entry) {
          repr(entry.first);
          out.append(": ");
          repr(entry.second);
        });
      case Kind::kList:
        if (value.list().type == List::Type::kList)
          return members(value.list().items, "[", "]", [&](const Value& it) { repr(it); });
        if (value.list().type == List::Type::kTuple)
          return members(value.list().items, "(", value.list().items.size() == 1 ? ",)" : ")", [&](const Value& it) { repr(it); });
        break;
      default: break;
    }
    throw Refusal(fmt::format("the text of a {}", type_name(value)));
  }

  void json(const Value& value, const JsonStyle& style, std::size_t depth) {
    budget_->take();
    const auto line = [&](std::size_t level) {
      if (!style.lines) return;
      out.append("\n");
      for (std::size_t i = 0; i < level; ++i) add(style.indent);
    };
    const auto all = [&](const auto& them, std::string_view open, std::string_view close, auto write) {
      out.append(open);
      for (const auto& it : them) {
        if (&it != &them.front()) add(style.item_separator);
        line(depth + 1);
        write(it);
      }
      if (!them.empty()) line(depth);
      out.append(close);
    };
    switch (value.kind()) {
      case Kind::kNone: return out.append("null");
      case Kind::kBool: return out.append(value.boolean() ? "true" : "false");
      case Kind::kInteger: return out.append(fmt::format("{}", value.whole()));
      case Kind::kFloat: return out.append(json_number(value.number()));
      case Kind::kLarge: return out.append(value.digits());
      case Kind::kText: return json_string(value.text(), style.ascii);
      case Kind::kList:
        if (value.list().type != List::Type::kList && value.list().type != List::Type::kTuple) break;
        return all(value.list().items, "[", "]", [&](const Value& it) { json(it, style, depth + 1); });
      case Kind::kDict: {
        auto entries = value.dict().entries;
        if (style.sorted)
          std::ranges::sort(entries, [&](const auto& a, const auto& b) { return is_less(a.first, b.first, budget_); });
        return all(entries, "{", "}", [&](const auto& entry) {
          Writer key(budget_);
          if (!entry.first.is_text()) key.json(entry.first, style, 0);
          json_string(entry.first.is_text() ? entry.first.text() : key.out, style.ascii);
          add(style.key_separator);
          json(entry.second, style, depth + 1);
        });
      }
      default: break;
    }
    if (value.is_undefined()) throw Refusal(*value.undefined().hint);
    throw Refusal(fmt::format("a {} as JSON", type_name(value)));
  }

  Text out;

 private:
  void add(const Text& text) {
    budget_->take_bytes(text.size());
    out.append(text);
  }

  template <class Items, class Write>
  void members(const Items& items, std::string_view open, std::string_view close, Write write) {
    out.append(open);
    for (const auto& it : items) {
      if (&it != &items.front()) out.append(", ");
      write(it);
    }
    out.append(close);
  }

  static std::string json_number(double number) {
    if (std::isfinite(number)) return number_text(number);
    return std::isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity";
  }

  void quoted(const Text& text) {
    if (text.marked_safe) throw Refusal("the text of a list that holds a text of |safe");
    budget_->take(text.size() >> 5);
    const std::string_view bytes = text.bytes;
    const char quote = bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos ? '"' : '\'';
    out.append(std::string_view(&quote, 1));
    for (std::size_t at = 0; at < bytes.size();) {
      const auto [c, size] = code_point_at(bytes, at);
      const char mark = text.marks[at];
      if (c == static_cast<unsigned char>(quote) || c == '\\') out.append("\\", mark), out.append(bytes.substr(at, 1), mark);
      else if (c == '\n' || c == '\r' || c == '\t') out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", mark);
      else if (is_printable(c)) out.append(bytes.substr(at, size), mark);
      else
        out.append(fmt::format("\\{}{:0{}x}", c < 0x100 ? 'x' : c < 0x10000 ? 'u' : 'U', static_cast<std::uint32_t>(c),
                               c < 0x100 ? 2 : c < 0x10000 ? 4 : 8), mark);
      at += size;
    }
    out.append(std::string_view(&quote, 1));
  }

  void json_string(const Text& text, bool ascii) {
    budget_->take(text.size() >> 5);
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const auto escape = [&](std::uint32_t unit, char mark) { out.append(fmt::format("\\u{:04x}", unit), mark); };
    out.append("\"");
    for (std::size_t at = 0; at < text.size();) {
      const auto [c, size] = code_point_at(text.bytes, at);
      const char mark = text.marks[at];
      const std::size_t letter = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
      if (letter != std::string_view::npos) out.append("\\", mark), out.append(kLetters.substr(letter, 1), mark);
      else if (c >= 0x20 && (!ascii || c < 0x7F)) out.append(text, at, at + size);
      else if (c < 0x10000) escape(c, mark);
      else escape(0xD800 + ((c - 0x10000) >> 10), mark), escape(0xDC00 + (c & 0x3FF), mark);
      at += size;
    }
    out.append("\"");
  }

  Budget* budget_;
};

}  // namespace

Value::Value(JsonValue::LargeInteger value) : data_(std::make_shared<const JsonValue::LargeInteger>(std::move(value))) {}
Value::Value(List value) {
  for (const Value& item : value.items) value.nesting = std::max(value.nesting, nesting_of(item) + 1);
  data_ = std::make_shared<const List>(std::move(value));
}
Value::Value(Dict value) : data_(std::make_shared<const Dict>(std::move(value))) {}
Value::Value(Method value) : data_(std::make_shared<const Method>(std::move(value))) {}

const Value* Dict::find(const Value& key, Budget* budget) const {
  if (key.is_text()) return budget->take_bytes(key.text().size()), named(key.text().bytes);
  const std::optional<std::string> text = key_text(key);
  const auto place = text ? places_.find(*text) : places_.end();
  return place == places_.end() ? nullptr : &entries[place->second].second;
}

const Value* Dict::named(std::string_view key) const {
  if (entries.size() > kFewEntries) {
    const auto place = places_.find(fmt::format("s{}", key));
    return place == places_.end() ? nullptr : &entries[place->second].second;
  }
  for (const auto& [name, value] : entries)
    if (name.is_text() && name.text().bytes == key) return &value;
  return nullptr;
}

void Dict::set(Value key, Value value, Budget* budget) {
  if (budget != nullptr && key.is_text()) budget->take_bytes(key.text().size());
  const std::optional<std::string> text = key_text(key);
  if (!text) throw Refusal(fmt::format("a {} as the key of a dict", type_name(key)));
  nesting = std::max(nesting, nesting_of(value) + 1);
  const auto [place, is_new] = places_.try_emplace(*text, entries.size());
  if (is_new) entries.emplace_back(std::move(key), std::move(value));
  else entries[place->second].second = std::move(value);
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined: return false;
    case Kind::kBool:
    case Kind::kInteger: return value.whole() != 0;
    case Kind::kFloat: return value.number() != 0;
    case Kind::kText: return value.text().size() > 0;
    case Kind::kList: return value.list().type == List::Type::kIterator || !value.list().items.empty();
    case Kind::kDict: return !value.dict().entries.empty();
    default: return true;
  }
}

bool is_equal(const Value& a, const Value& b, Budget* budget) {
  budget->take();
  if (a.is_number() && b.is_number()) return exact(a) == exact(b);
  if ((a.is(Kind::kLarge) && b.is(Kind::kFloat)) || (a.is(Kind::kFloat) && b.is(Kind::kLarge)))
    throw Refusal("a comparison of a float and an integer of more than 64 bits");
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kLarge: return a.digits() == b.digits();
    case Kind::kNone:
    case Kind::kUndefined: return true;
    case Kind::kText: budget->take_bytes(a.text().size()); return a.text().bytes == b.text().bytes;
    case Kind::kList: {
      if (&a.list() == &b.list()) return true;
      if (a.list().type != b.list().type || a.list().type == List::Type::kIterator) return false;
      if (a.list().type == List::Type::kView) throw Refusal("a comparison of views of dicts");
      return std::ranges::equal(a.list().items, b.list().items,
                                [&](const Value& x, const Value& y) { return is_equal(x, y, budget); });
    }
    case Kind::kDict: {
      if (&a.dict() == &b.dict()) return true;
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      return std::ranges::all_of(a.dict().entries, [&](const auto& entry) {
        const Value* const other = b.dict().find(entry.first, budget);
        return other != nullptr && is_equal(entry.second, *other, budget);
      });
    }
    case Kind::kNamespace: return &a.name_space() == &b.name_space();
    case Kind::kMacro: return &a.macro() == &b.macro();
    case Kind::kLoop: return &a.loop() == &b.loop();
    case Kind::kFunction: return a.function() == b.function();
    default: throw Refusal(fmt::format("a comparison of two values of {}", type_name(a)));
  }
}

bool is_less(const Value& a, const Value& b, Budget* budget) {
  budget->take();
  if (a.is_number() && b.is_number()) {
    if (std::isnan(a.number()) || std::isnan(b.number())) throw Refusal("the order of a NaN");  // sorting needs an order
    return exact(a) < exact(b);
  }
  if (a.is_text() && b.is_text()) {
    budget->take_bytes(std::min(a.text().size(), b.text().size()));
    return a.text().bytes < b.text().bytes;
  }
  const bool are_lists = a.is_list() && b.is_list() && a.list().type == b.list().type && a.list().type <= List::Type::kTuple;
  if (!are_lists) refuse_operands("the order", a, b);
  const std::vector<Value>&x = a.list().items, &y = b.list().items;
  std::size_t i = 0;
  while (i < x.size() && i < y.size() && is_equal(x[i], y[i], budget)) ++i;
  return i < x.size() && i < y.size() ? is_less(x[i], y[i], budget) : x.size() < y.size();
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone: return "None";
    case Kind::kUndefined: return "value that is undefined";
    case Kind::kBool: return "bool";
    case Kind::kInteger: return "int";
    case Kind::kFloat: return "float";
    case Kind::kLarge: return "int of more than 64 bits";
    case Kind::kText: return "str";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "namespace";
    case Kind::kMacro: return "macro";
    case Kind::kLoop: return "loop";
    case Kind::kFunction: return "function";
    case Kind::kMethod: return "method";
    case Kind::kList: break;
  }
  constexpr std::string_view kLists[] = {"list", "tuple", "range", "view of a dict", "iterator"};
  return kLists[static_cast<std::size_t>(value.list().type)];
}

Text str(const Value& value, Budget* budget) {
  Writer writer(budget);
  writer.str(value);
  return std::move(writer.out);
}

Text repr(const Value& value, Budget* budget) {
  Writer writer(budget);
  writer.repr(value);
  return std::move(writer.out);
}

Text json_text(const Value& value, const JsonStyle& style, Budget* budget) {
  Writer writer(budget);
  writer.json(value, style, 0);
  return std::move(writer.out);
}

Value arithmetic(std::string_view operation, const Value& a, const Value& b, Budget* budget) {
  if (a.is_number() && b.is_number()) {
    if (operation != "**" && operation.find_first_of("/%") == 0 && b.number() == 0) throw Refusal("a division by zero");
    if (operation == "**" && a.number() == 0 && b.number() < 0) throw Refusal("a power of 0 that is a division by zero");
    return a.is_whole() && b.is_whole() ? whole_arithmetic(operation, a.whole(), b.whole())
                                        : real_arithmetic(operation, a.number(), b.number());
  }
  const auto is_series = [](const Value& it) { return it.is_list() && it.list().type <= List::Type::kTuple; };
  const bool is_safe = (a.is_text() && a.text().marked_safe) || (b.is_text() && b.text().marked_safe);
  if (operation == "+" && a.is_text() && b.is_text()) {
    constexpr std::size_t kEscapedBytes = 8;  // at most five of one, which are written one by one
    budget->take_bytes((a.text().size() + b.text().size()) * (is_safe ? kEscapedBytes : 1));
    Text out = is_safe ? escaped(a.text()) : a.text();
    out.append(is_safe ? escaped(b.text()) : b.text());
    out.marked_safe = is_safe;
    return out;
  }
  if (operation == "+" && is_series(a) && is_series(b) && a.list().type == b.list().type) {
    budget->take(a.list().items.size() + b.list().items.size());
    List out{.type = a.list().type, .items = a.list().items};
    out.items.insert(out.items.end(), b.list().items.begin(), b.list().items.end());
    return out;
  }
  if (operation == "*" && (a.is_text() || is_series(a)) && b.is_whole()) return repeated(a, b.whole(), budget);
  if (operation == "*" && (b.is_text() || is_series(b)) && a.is_whole()) return repeated(b, a.whole(), budget);
  if (operation == "%" && a.is_text()) return percent_formatted(a.text(), b, budget);
  refuse_operands(operation, a, b);
}

Value from_json(const JsonValue& value, char mark) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull: return {};
    case JsonValue::Kind::kBool: return value.as_bool();
    case JsonValue::Kind::kInteger: return value.as_integer();
    case JsonValue::Kind::kNumber:
      return value.large_integer() != nullptr ? Value(*value.large_integer()) : Value(value.as_number());
    case JsonValue::Kind::kString: return Text(value.as_string(), mark);
    case JsonValue::Kind::kArray: {
      List list;
      for (const JsonValue& item : value.items()) list.items.push_back(from_json(item, mark));
      return list;
    }
    case JsonValue::Kind::kObject: {
      Dict dict;
      for (const JsonMember& member : value.members()) dict.set(Text(member.key, mark), from_json(member.value, mark));
      return dict;
    }
  }
  return {};
}

}  // namespace trident::jinja
