// Methods of texts, dicts and loops, and what filters share with them.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

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
constexpr std::string_view kTextMethods[] = {
    "capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "format", "format_map", "index",
    "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace",
    "istitle", "isupper", "join", "ljust", "lower", "lstrip", "maketrans", "partition", "removeprefix", "removesuffix", "replace",
    "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title",
    "translate", "upper", "zfill"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kNumberMethods[] = {"as_integer_ratio", "bit_count",    "bit_length", "conjugate", "denominator",
                                               "from_bytes",       "fromhex",      "hex",        "imag",      "is_integer",
                                               "numerator",        "real",         "to_bytes"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
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
  if (name == "split") {
    const auto given = all.bind(name, {"sep", "maxsplit"});
    const Text* const separator = given[0] == nullptr || given[0]->is_none() ? nullptr : &text_of(*given[0], name);
    return texts(split(text, separator, whole_of(given[1], -1, name), in.budget()));
  }
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
  if (name == "find") {
    const std::size_t at = find_text(text.bytes, text_of(*all.bind(name, {""}, 1)[0], name).bytes);
    return at == std::string_view::npos ? Value(std::int64_t{-1}) : Value(count_code_points(text.bytes.substr(0, at)));
  }
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
  if (value.is_text()) return is_one_of(kTextMethods, name);
  if (value.is_dict()) return is_one_of(kDictMethods, name);
  if (value.is_number()) return is_one_of(kNumberMethods, name);
  return value.is_list() && value.list().type <= List::Type::kRange && is_one_of(kListMethods, name);
}

bool changes_its_object(const Value& value, std::string_view name) {
  return value.is_dict() ? is_one_of(kDictChanges, name)
                         : value.is_list() && value.list().type == List::Type::kList && is_one_of(kListChanges, name);
}

Value call_method(Interpreter& in, const Method& method, const Arguments& all) {
  const Value& receiver = method.receiver;
  if (receiver.is_text()) return text_method(in, receiver.text(), method.name, all);
  if (receiver.is_dict()) return dict_method(in, receiver.dict(), method.name, all);
  if (receiver.is(Value::Kind::kLoop) && !all.positional.empty() && all.keywords.empty())
    return all.positional[static_cast<std::size_t>(receiver.loop().index0) % all.positional.size()];
  throw Refusal(fmt::format("the method {}() of a {}", method.name, type_name(receiver)));
}

}  // namespace trident::jinja
