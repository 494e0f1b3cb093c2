#include "data/chat/jinja_filters.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>

#include "core/json_reader.h"
#include "core/utf8.h"

namespace trident::jinja {
namespace {

using Kind = Value::Kind;
using Sequence = List::Type;

constexpr std::int64_t kMaxIndent = 4096;

bool flag(const Value* value) { return value != nullptr && is_true(*value); }

Value list_of(std::vector<Value> items, Sequence type = Sequence::kList) { return List{.type = type, .items = std::move(items)}; }

// `text` made of `value`, which is Jinja's Markup where that was.
Value made_of(const Value& value, Text text) {
  text.marked_safe = value.is_text() && value.text().marked_safe;
  return text;
}

Text spaces(std::int64_t width) {
  if (width > kMaxIndent) throw Refusal(fmt::format("an indent of more than {} spaces", kMaxIndent));
  return Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '));
}

// An item, or what an attribute of it says.
Value part_of(Interpreter& in, const Value& item, const Value* attribute) {
  return attribute == nullptr || attribute->is_none() ? item : in.path(item, *attribute);
}

// Text that costs as much as it is long.
Text charged(Interpreter& in, const Value& value) {
  Text out = in.str(value);
  in.budget()->take(out.size() >> 5);
  return out;
}

// As part_of(), in lower case unless cases differ.
Value key_of(Interpreter& in, const Value& item, const Value* attribute, const Value* with_case) {
  Value key = part_of(in, item, attribute);
  return flag(with_case) || !key.is_text() ? key : Value(lower(charged(in, key)));
}

std::vector<Value> sorted(Interpreter& in, std::vector<Value> items, const std::vector<Value>& keys, bool reversed) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    if (is_less(keys[a], keys[b], in.budget())) return !reversed;
    return is_less(keys[b], keys[a], in.budget()) ? reversed : a < b;
  });
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(std::move(items[i]));
  return out;
}

// Returns the digits that int() or float() reads, without white space and underscores between; nothing: it is no number.
std::optional<std::string> number_in(const Text& text, bool with_fraction) {
  const Text stripped = strip(text, nullptr, Ends::kBoth);
  std::string out;
  for (std::size_t i = 0; i < stripped.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < stripped.size() && stripped.bytes[at] >= '0' && stripped.bytes[at] <= '9';
    };
    const char c = stripped.bytes[i];
    if (c == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
    } else if (digit(i) || (with_fraction && (c == '.' || c == 'e' || c == 'E')) || c == '+' || c == '-') out += c;
    else return std::nullopt;
  }
  const std::size_t first = out.find_first_not_of("+-");
  if (first == std::string::npos || first > 1) return std::nullopt;
  if (out[0] == '+') out.erase(0, 1);
  return out;
}

std::optional<double> real_in(Interpreter& in, const Value& value) {
  if (value.is_number()) return value.number();
  if (value.is_undefined()) throw Refusal(*value.undefined().hint);
  if (value.is(Kind::kLarge)) throw Refusal("a float of an integer of more than 64 bits");
  if (!value.is_text()) return std::nullopt;
  const Text text = charged(in, value);
  for (const std::string_view word : {"inf", "nan"})
    if (find_text(lower(text).bytes, word) != std::string_view::npos) throw Refusal("a number that is not finite");
  const std::optional<std::string> digits = number_in(text, true);
  if (!digits) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(digits->c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return number;
}

Value to_int(Interpreter& in, const Value& value, const Given& given) {
  if (whole_of(given[1], 10, "int") != 10) throw Refusal("int with a base");
  if (value.is_whole()) return value.whole();
  if (value.is(Kind::kLarge)) return value;
  if (value.is_text()) {
    if (const std::optional<std::string> digits = number_in(charged(in, value), false)) {
      std::int64_t number = 0;
      const char* const end = digits->data() + digits->size();
      const auto [stop, error] = std::from_chars(digits->data(), end, number);
      if (error == std::errc::result_out_of_range) throw Refusal("an integer of more than 64 bits");
      if (error == std::errc() && stop == end) return number;
    }
  }
  const std::optional<double> number = real_in(in, value);
  if (!number) return given[0] != nullptr ? *given[0] : Value(std::int64_t{0});
  if (!(std::abs(*number) < 9e18)) throw Refusal("an integer of more than 64 bits");
  return static_cast<std::int64_t>(*number);
}

Value to_float(Interpreter& in, const Value& value, const Given& given) {
  const std::optional<double> number = real_in(in, value);
  return number ? Value(*number) : given[0] != nullptr ? *given[0] : Value(0.0);
}

template <Text (*kChange)(const Text&)>
Value changed(Interpreter& in, const Value& value, const Given&) {
  return made_of(value, kChange(charged(in, value)));
}

Value length(Interpreter& in, const Value& value, const Given&) { return in.length(value); }

Value absolute(Interpreter& in, const Value& value, const Given&) {
  if (!value.is_number()) throw Refusal(fmt::format("abs of a {}", type_name(value)));
  if (value.is(Kind::kFloat)) return std::abs(value.number());
  return value.whole() < 0 ? arithmetic("-", std::int64_t{0}, value, in.budget()) : Value(value.whole());
}

Value or_default(Interpreter&, const Value& value, const Given& given) {
  if (!value.is_undefined() && !(flag(given[1]) && !is_true(value))) return value;
  return given[0] != nullptr ? *given[0] : Value(Text());
}

Value dict_sort(Interpreter& in, const Value& value, const Given& given) {
  if (!value.is_dict()) throw Refusal(fmt::format("dictsort of a {}", type_name(value)));
  const std::string by = given[1] == nullptr ? "key" : text_of(*given[1], "dictsort").bytes;
  if (by != "key" && by != "value") throw Refusal("dictsort by what is neither key nor value");
  std::vector<Value> items, keys;
  in.budget()->take(value.dict().entries.size());
  for (const auto& entry : value.dict().entries) {
    items.push_back(tuple_of(entry));
    keys.push_back(key_of(in, by == "key" ? entry.first : entry.second, nullptr, given[0]));
  }
  return list_of(sorted(in, std::move(items), keys, flag(given[2])));
}

Value sort(Interpreter& in, const Value& value, const Given& given) {
  std::vector<Value> keys;
  std::vector<Value> items = in.items(value);
  if (given[2] != nullptr && given[2]->is_text() && given[2]->text().bytes.find(',') != std::string::npos)
    throw Refusal("sort by several attributes");
  for (const Value& item : items) keys.push_back(key_of(in, item, given[2], given[1]));
  return list_of(sorted(in, std::move(items), keys, flag(given[0])));
}

// A tuple of key and list for each key, which is spelled as the first item has it.
Value group_by(Interpreter& in, const Value& value, const Given& given) {
  if (given[1] != nullptr) throw Refusal("groupby with a default");
  std::vector<Value> items = in.items(value), keys, groups;
  for (const Value& item : items) keys.push_back(key_of(in, item, given[0], given[2]));
  items = sorted(in, std::move(items), keys, false);
  for (std::size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    const Value key = key_of(in, items[begin], given[0], given[2]);
    std::vector<Value> group;
    for (; end < items.size() && is_equal(key_of(in, items[end], given[0], given[2]), key, in.budget()); ++end)
      group.push_back(items[end]);
    groups.emplace_back(List{.type = Sequence::kTuple,
                             .items = {part_of(in, items[begin], given[0]), list_of(std::move(group))},
                             .is_group = true});
  }
  return list_of(std::move(groups));
}

template <bool kMost>
Value extreme(Interpreter& in, const Value& value, const Given& given) {
  Value best = undefined("the least or most of nothing"), best_key;
  for (const Value& item : in.items(value)) {
    Value key = key_of(in, item, given[1], given[0]);
    if (!best.is_undefined() && !(kMost ? is_less(best_key, key, in.budget()) : is_less(key, best_key, in.budget()))) continue;
    best = item, best_key = std::move(key);
  }
  return best;
}

Value sum(Interpreter& in, const Value& value, const Given& given) {
  Value total = given[1] == nullptr ? Value(std::int64_t{0}) : *given[1];
  if (total.is_text()) throw Refusal("sum of texts");
  for (const Value& item : in.items(value)) total = arithmetic("+", total, part_of(in, item, given[0]), in.budget());
  return total;
}

Value format(Interpreter& in, const Value& value, const Arguments& all) {
  if (!all.positional.empty() && !all.keywords.empty()) throw Refusal("format with values and names");
  const Value given = all.keywords.empty() ? list_of(all.positional, Sequence::kTuple) : all.as_dict("format", in.budget());
  return percent_formatted(charged(in, value), given, in.budget());
}

Value first(Interpreter& in, const Value& value, const Given&) {
  std::vector<Value> items = in.items(value);
  return items.empty() ? undefined("there is no first item") : std::move(items.front());
}

Value last(Interpreter& in, const Value& value, const Given&) {
  if (value.is_list() && value.list().type == Sequence::kIterator)
    throw Refusal("the last item of an iterator; make it a list by |list");
  std::vector<Value> items = in.items(value);
  return items.empty() ? undefined("there is no last item") : std::move(items.back());
}

Value indent(Interpreter& in, const Value& value, const Given& given) {
  Text indention, out;
  if (given[0] != nullptr && given[0]->is_text()) indention = given[0]->text();
  else indention = spaces(whole_of(given[0], 4, "indent"));
  text_of(value, "indent");
  Text text = charged(in, value);
  text.append("\n");
  const std::vector<Text> lines = split_lines(text, in.budget());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    const bool is_indented = i == 0 ? flag(given[1]) : flag(given[2]) || lines[i].size() > 0;
    if (is_indented) out.append(indention), in.budget()->take_bytes(indention.size());
    out.append(lines[i]);
  }
  return out;
}

Value items_of(Interpreter& in, const Value& value, const Given&) {
  List out{.type = Sequence::kIterator};
  if (value.is_undefined()) return out;
  if (!value.is_dict()) throw Refusal(fmt::format("items of a {}", type_name(value)));
  in.budget()->take(value.dict().entries.size());
  for (const auto& entry : value.dict().entries) out.items.push_back(tuple_of(entry));
  return out;
}

Value join(Interpreter& in, const Value& value, const Given& given) {
  std::vector<Value> items = in.items(value);
  for (Value& item : items) item = part_of(in, item, given[1]);
  return join_items(in, std::move(items), given[0] == nullptr ? Text() : in.str(*given[0]));
}

Value map(Interpreter& in, const Value& value, const Arguments& all) {
  List out{.type = Sequence::kIterator};
  if (!is_true(value)) return out;
  std::vector<Value> items = in.items(value);
  if (all.positional.empty()) {
    const auto given = all.bind("map", {"", "attribute", "default"});
    if (given[1] == nullptr) throw Refusal("map without a filter or an attribute");
    for (Value& item : items) {
      Value found = in.path(item, *given[1]);
      const bool is_missing = found.is_undefined() && given[2] != nullptr && !given[2]->is_none();
      out.items.push_back(is_missing ? *given[2] : std::move(found));
    }
    return out;
  }
  const Text& name = text_of(all.positional[0], "map");
  const Filter filter = find_filter(name.bytes);
  if (filter == nullptr) refuse_filter(name.bytes);
  Arguments rest = all;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) in.budget()->take(), out.items.push_back((*filter)(in, item, rest));
  return out;
}

// select, reject and by attribute: the attribute, then the name of a test with its arguments, or Python's bool().
template <bool kByAttribute, bool kWanted>
Value select(Interpreter& in, const Value& value, const Arguments& all) {
  List out{.type = Sequence::kIterator};
  if (!is_true(value)) return out;
  Arguments rest = all;
  Value attribute;
  Test test = nullptr;
  if (kByAttribute) {
    if (rest.positional.empty()) throw Refusal("selectattr or rejectattr without an attribute");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  if (!rest.positional.empty()) {
    const std::string name = text_of(rest.positional[0], "select").bytes;
    if ((test = find_test(name)) == nullptr) refuse_test(name);
    rest.positional.erase(rest.positional.begin());
  }
  for (const Value& item : in.items(value)) {
    in.budget()->take();
    const Value asked = kByAttribute ? in.path(item, attribute) : item;
    if ((test == nullptr ? is_true(asked) : test(in, asked, rest)) == kWanted) out.items.push_back(item);
  }
  return out;
}

Value replace_all(Interpreter& in, const Value& value, const Given& given) {
  const std::int64_t count = given[2] == nullptr || given[2]->is_none() ? -1 : whole_of(given[2], -1, "replace");
  Text out = replace(charged(in, value), in.str(*given[0]), in.str(*given[1]), count);
  in.budget()->take_bytes(out.size());
  return out;
}

Value reverse(Interpreter& in, const Value& value, const Given&) {
  if (value.is_text())
    return in.budget()->take(value.text().size()), made_of(value, slice(value.text(), std::nullopt, std::nullopt, -1));
  const bool is_iterator = value.is_list() && value.list().type == Sequence::kIterator;
  std::vector<Value> items = in.items(value);
  std::ranges::reverse(items);
  return list_of(std::move(items), is_iterator ? Sequence::kList : Sequence::kIterator);
}

Value safe(Interpreter& in, const Value& value, const Given&) {
  Text out = in.str(value);
  out.marked_safe = true;
  return out;
}

// Jinja's, which is not Python's.
Value title_words(Interpreter& in, const Value& value, const Given&) {
  const Text text = charged(in, value);
  Text out;
  const auto ends = [](char32_t c) { return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; };
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    const auto [first, size] = code_point_at(text.bytes, at);
    end = at + size;
    for (char32_t c = first; !ends(c) && end < text.size();) {
      const CodePoint next = code_point_at(text.bytes, end);
      end += next.size, c = next.value;
    }
    out.append(upper(text.part(at, at + size)));
    out.append(lower(text.part(at + size, end)));
  }
  in.budget()->take(text.size() >> 3);
  return out;
}

Value to_json(Interpreter& in, const Value& value, const Given& given) {
  JsonStyle style{.ascii = flag(given[0]), .sorted = flag(given[3]), .lines = given[1] != nullptr && !given[1]->is_none()};
  if (style.lines) {
    if (given[1]->is_text()) style.indent = given[1]->text();
    else style.indent = spaces(whole_of(given[1], 0, "tojson"));
    style.item_separator = Text(",");
  }
  if (given[2] != nullptr && !given[2]->is_none()) {
    const std::vector<Value> both = in.items(*given[2]);
    if (both.size() != 2) throw Refusal("tojson with separators that are not two");
    style.item_separator = text_of(both[0], "tojson"), style.key_separator = text_of(both[1], "tojson");
  }
  Text out = json_text(value, style, in.budget());
  in.budget()->take_bytes(out.size());
  return out;
}

Value unique(Interpreter& in, const Value& value, const Given& given) {
  List out{.type = Sequence::kIterator};
  Dict seen;
  for (const Value& item : in.items(value)) {
    Value key = key_of(in, item, given[1], given[0]);
    if (seen.find(key, in.budget()) != nullptr) continue;
    seen.set(std::move(key), true, in.budget());
    out.items.push_back(item);
  }
  return out;
}

Value trim(Interpreter& in, const Value& value, const Given& given) {
  return made_of(value, strip(in.str(value), characters_of(in, given[0], "trim"), Ends::kBoth));
}

constexpr NamedFilter kFilters[] = {
    {"abs", absolute},
    {"capitalize", changed<capitalize>},
    {"count length", length},
    {"d default", or_default, {"default_value", "boolean"}},
    {"dictsort", dict_sort, {"case_sensitive", "by", "reverse"}},
    {"first", first},
    {"float", to_float, {"default"}},
    {.name = "format", .apply_to_all = format},
    {"groupby", group_by, {"attribute", "default", "case_sensitive"}, 1},
    {"indent", indent, {"width", "first", "blank"}},
    {"int", to_int, {"default", "base"}},
    {"items", items_of},
    {"join", join, {"d", "attribute"}},
    {"last", last},
    {"list", [](Interpreter& in, const Value& v, const Given&) -> Value { return list_of(in.items(v)); }},
    {"lower", changed<lower>},
    {.name = "map", .apply_to_all = map},
    {.name = "reject", .apply_to_all = select<false, false>},
    {.name = "rejectattr", .apply_to_all = select<true, false>},
    {"max", extreme<true>, {"case_sensitive", "attribute"}},
    {"min", extreme<false>, {"case_sensitive", "attribute"}},
    {"replace", replace_all, {"old", "new", "count"}, 2},
    {"reverse", reverse},
    {"safe", safe},
    {.name = "select", .apply_to_all = select<false, true>},
    {.name = "selectattr", .apply_to_all = select<true, true>},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"string", [](Interpreter& in, const Value& v, const Given&) -> Value { return v.is_text() ? v : in.str(v); }},
    {"sum", sum, {"attribute", "start"}},
    {"title", title_words},
    {"tojson", to_json, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", trim, {"chars"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
    {"upper", changed<upper>},
};

}  // namespace

Value NamedFilter::operator()(Interpreter& in, const Value& value, const Arguments& all) const {
  if (apply_to_all != nullptr) return apply_to_all(in, value, all);
  const auto count = static_cast<std::size_t>(std::ranges::find(parameters, std::string_view()) - parameters.begin());
  return apply(in, value, all.bind(name.substr(name.rfind(' ') + 1), std::span(parameters).first(count), num_required));
}

Filter find_filter(std::string_view name) { return row_of(kFilters, name); }
void refuse_filter(std::string_view name) {
  throw Refusal(fmt::format("the filter {}; known are {}", in_quotes(name), names_of(kFilters)));
}

}  // namespace trident::jinja
