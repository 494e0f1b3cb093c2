// Methods of texts, dicts and loops, and what filters share with them.
#include <algorithm>
#include <cstdint>

#include "core/json_reader.h"
#include "data/chat/jinja_filters.h"
#include "data/chat/python_text.h"

namespace trident::jinja {
namespace {

Value texts(std::vector<Text> parts) {
  List out;
  for (Text& part : parts) out.items.emplace_back(std::move(part));
  return out;
}

// All that Python's types have: a template may ask for the others, too, and gets no attribute, or an item of a dict.
constexpr std::string_view kTextMethods =
    "capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii isdecimal "
    "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans partition "
    "removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase "
    "title translate upper zfill";
constexpr std::string_view kDictMethods = "copy fromkeys get items keys values";
constexpr std::string_view kDictChanges = "clear pop popitem setdefault update";
constexpr std::string_view kListMethods = "copy count index";
constexpr std::string_view kListChanges = "append clear extend insert pop remove reverse sort";
constexpr std::string_view kNumberMethods =
    "as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag is_integer numerator real to_bytes";

// Fields are {}, or {0} and {name}, without conversions and formats.
Text formatted(Interpreter& in, const Text& text, const Arguments& all) {
  Text out;
  std::size_t at = 0, next = 0;
  bool counts = false;
  for (std::size_t open; (open = text.bytes.find_first_of("{}", at)) != std::string::npos;) {
    in.budget()->take();
    out.append(text, at, open);
    at = open + 2;
    if (at <= text.size() && text.bytes[open + 1] == text.bytes[open]) {
      out.append(text, open, open + 1);
      continue;
    }
    const std::size_t close = text.bytes.find('}', open);
    at = close + 1;
    const std::string field = text.bytes.substr(open + 1, close == std::string::npos ? close : close - open - 1);
    const auto named = std::ranges::find(all.keywords, field, &std::pair<std::string, Value>::first);
    const bool is_number = field.size() < 4 && field.find_first_not_of("0123456789") == field.npos;
    const std::size_t place = !is_number ? all.positional.size() : field.empty() ? next++ : std::stoul(field);
    counts = counts || (is_number && !field.empty());
    if (close <= open || close == std::string::npos || (counts && next > 0) ||
        (place >= all.positional.size() && named == all.keywords.end()))
      throw Refusal(fmt::format("the field {} of format()", in_quotes(field)));
    out.append(in.str(place < all.positional.size() ? all.positional[place] : named->second));
  }
  out.append(text, at, text.size());
  in.budget()->take_bytes(out.size());
  return out;
}

// Classes of characters beyond ASCII are refused, because they are not built in; all white space is known.
bool is_of_class(const Text& text, const std::string& name) {
  if (name == "isspace") return text.size() > 0 && leading_space(text.bytes) == text.size();
  if (std::ranges::any_of(text.bytes, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    throw Refusal(fmt::format("{}() of a text that is not ASCII", name));
  if (name == "isupper" || name == "islower")
    return lower(text).bytes != upper(text).bytes && text.bytes == (name == "isupper" ? upper(text) : lower(text)).bytes;
  const bool digits = name != "isalpha", letters = name == "isalpha" || name == "isalnum";
  return text.size() > 0 && std::ranges::all_of(text.bytes, [&](char c) {
    return (digits && c >= '0' && c <= '9') || (letters && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')));
  });
}

Value text_method(Interpreter& in, const Text& text, const std::string& name, const Arguments& all) {
  if (text.marked_safe) throw Refusal(fmt::format("{}() of a text of |safe", name));
  in.budget()->take(text.size() >> 6);
  const auto ends = [&](auto test) {
    const Value& what = *all.bind(name, {""}, 1)[0];
    if (what.is_list() && what.list().type == List::Type::kTuple)
      return std::ranges::any_of(in.items(what), [&](const Value& it) { return test(text_of(it, name).bytes); });
    return test(text_of(what, name).bytes);
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return strip(text, characters_of(in, all.bind(name, {""})[0], name),
                 name == "strip" ? Ends::kBoth : name == "lstrip" ? Ends::kLeft : Ends::kRight);
  if (name == "split" || name == "rsplit") {
    const auto given = all.bind(name, {"sep", "maxsplit"});
    const Text* const separator = given[0] == nullptr || given[0]->is_none() ? nullptr : &text_of(*given[0], name);
    std::int64_t most = whole_of(given[1], -1, name);
    if (name == "split") return texts(split(text, separator, most, in.budget()));
    if (separator == nullptr || separator->size() == 0) throw Refusal("rsplit() without a separator");
    std::vector<Text> parts;
    std::size_t end = text.size();
    in.budget()->take(text.size() * separator->size() >> 8);
    for (std::size_t at; most != 0 && end >= separator->size() &&
                         (at = text.bytes.rfind(separator->bytes, end - separator->size())) != std::string::npos; --most)
      in.budget()->take(), parts.push_back(text.part(at + separator->size(), end)), end = at;
    parts.push_back(text.part(0, end));
    std::ranges::reverse(parts);
    return texts(std::move(parts));
  }
  if (name == "format") return formatted(in, text, all);
  if (name == "startswith") return ends([&](const std::string& it) { return text.bytes.starts_with(it); });
  if (name == "endswith") return ends([&](const std::string& it) { return text.bytes.ends_with(it); });
  if (name == "replace") {
    const auto given = all.bind(name, {"", "", ""}, 2);
    Text out = replace(text, text_of(*given[0], name), text_of(*given[1], name), whole_of(given[2], -1, name));
    in.budget()->take_bytes(out.size());
    return out;
  }
  if (name == "join") {
    const std::vector<Value> items = in.items(*all.bind(name, {""}, 1)[0]);
    for (const Value& item : items) text_of(item, name);
    return join_items(in, items, text);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Text& what = text_of(*all.bind(name, {""}, 1)[0], name);
    if (name == "removeprefix") return text.part(text.bytes.starts_with(what.bytes) ? what.size() : 0, text.size());
    return text.part(0, text.size() - (text.bytes.ends_with(what.bytes) ? what.size() : 0));
  }
  if (name == "count") return split(text, &text_of(*all.bind(name, {""}, 1)[0], name), -1, in.budget()).size() - 1;
  if (name == "find" || name == "index" || name == "rfind" || name == "rindex") {
    const std::string& what = text_of(*all.bind(name, {""}, 1)[0], name).bytes;
    if (name[0] == 'r') in.budget()->take(text.size() * what.size() >> 8);
    const std::size_t at = name[0] == 'r' ? text.bytes.rfind(what) : find_text(text.bytes, what);
    if (at != std::string_view::npos) return count_code_points(text.bytes.substr(0, at));
    if (name.ends_with("index")) throw Refusal(fmt::format("{}() of what is not in the text", name));
    return std::int64_t{-1};
  }
  if (has_word("isalnum isalpha isdecimal isdigit islower isnumeric isspace isupper", name))
    return all.bind(name, {}), is_of_class(text, name);
  if (name == "splitlines") return all.bind(name, {}), texts(split_lines(text, in.budget()));
  if (name == "upper") return all.bind(name, {}), upper(text);
  if (name == "lower") return all.bind(name, {}), lower(text);
  if (name == "capitalize") return all.bind(name, {}), capitalize(text);
  if (name == "title") return all.bind(name, {}), title(text);
  throw Refusal(fmt::format("the method {}() of texts", name));
}

Value dict_method(Interpreter& in, const Dict& dict, const std::string& name, const Arguments& all) {
  if (name == "get") {
    const auto given = all.bind(name, {"", ""}, 1);
    if (given[0]->is_list() || given[0]->is_dict()) throw Refusal(fmt::format("a {} as the key of a dict", type_name(*given[0])));
    const Value* const found = dict.find(*given[0], in.budget());
    return found != nullptr ? *found : given[1] != nullptr ? *given[1] : Value();
  }
  if (name == "copy" || name == "fromkeys") throw Refusal(fmt::format("the method {}() of dicts", name));
  all.bind(name, {});
  in.budget()->take(dict.entries.size());
  List out{.type = List::Type::kView};
  for (const auto& entry : dict.entries)
    out.items.push_back(name == "items" ? tuple_of(entry) : name == "keys" ? entry.first : entry.second);
  return out;
}

}  // namespace

const Text& text_of(const Value& value, std::string_view function) {
  if (value.is_undefined()) throw Refusal(*value.undefined().hint);
  if (!value.is_text()) throw Refusal(fmt::format("{} with a {} in the place of a str", function, type_name(value)));
  return value.text();
}
const Text* characters_of(Interpreter& in, const Value* value, std::string_view function) {
  if (value == nullptr || value->is_none()) return nullptr;
  const Text& text = text_of(*value, function);
  in.budget()->take(text.size());
  return &text;
}
std::int64_t whole_of(const Value* value, std::int64_t otherwise, std::string_view function) {
  if (value == nullptr) return otherwise;
  if (!value->is_whole()) throw Refusal(fmt::format("{} with a {} in the place of an int", function, type_name(*value)));
  return value->whole();
}
Value tuple_of(const std::pair<Value, Value>& entry) {
  return List{.type = List::Type::kTuple, .items = {entry.first, entry.second}};
}

Value join_items(Interpreter& in, const std::vector<Value>& items, const Text& separator) {
  Text out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(in.str(items[i]));
  }
  in.budget()->take(items.size());
  in.budget()->take_bytes(out.size());
  return out;
}

bool has_method(const Value& value, std::string_view name) {
  if (value.is_text()) return has_word(kTextMethods, name);
  if (value.is_dict()) return has_word(kDictMethods, name);
  if (value.is_number()) return has_word(kNumberMethods, name);
  return value.is_list() && value.list().type <= List::Type::kRange && has_word(kListMethods, name);
}

bool changes_its_object(const Value& value, std::string_view name) {
  return value.is_dict() ? has_word(kDictChanges, name)
                         : value.is_list() && value.list().type == List::Type::kList && has_word(kListChanges, name);
}

Value call_method(Interpreter& in, const Method& method, const Arguments& all) {
  const Value& receiver = method.receiver;
  if (receiver.is_text()) return text_method(in, receiver.text(), method.name, all);
  if (receiver.is_dict()) return dict_method(in, receiver.dict(), method.name, all);
  if (receiver.is_list() && (method.name == "index" || method.name == "count")) {
    const Value& what = *all.bind(method.name, {""}, 1)[0];
    const std::vector<Value> items = in.items(receiver);
    const auto is_it = [&](const Value& item) { return is_equal(item, what, in.budget()); };
    if (method.name == "count") return static_cast<std::int64_t>(std::ranges::count_if(items, is_it));
    const auto place = std::ranges::find_if(items, is_it);
    if (place == items.end()) throw Refusal("index() of what is not in the list");
    return static_cast<std::int64_t>(place - items.begin());
  }
  if (receiver.is(Value::Kind::kLoop) && !all.positional.empty() && all.keywords.empty())
    return all.positional[static_cast<std::size_t>(receiver.loop().index0) % all.positional.size()];
  throw Refusal(fmt::format("the method {}() of a {}", method.name, type_name(receiver)));
}

}  // namespace trident::jinja
