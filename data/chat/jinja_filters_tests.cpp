// Tests of chat templates: what `is` and select() ask of a value.
#include <cstdint>

#include "core/json_reader.h"
#include "data/chat/jinja_filters.h"

namespace trident::jinja {
namespace {

using Kind = Value::Kind;
using Sequence = List::Type;

const Value& only(const Arguments& all) { return *all.bind("a test", {""}, 1)[0]; }
bool equal_to(Interpreter& in, const Value& v, const Arguments& a) { return is_equal(v, only(a), in.budget()); }
bool unequal_to(Interpreter& in, const Value& v, const Arguments& a) { return !is_equal(v, only(a), in.budget()); }
bool less_than(Interpreter& in, const Value& v, const Arguments& a) { return is_less(v, only(a), in.budget()); }
bool greater_than(Interpreter& in, const Value& v, const Arguments& a) { return is_less(only(a), v, in.budget()); }
bool at_most(Interpreter& in, const Value& v, const Arguments& a) { return less_than(in, v, a) || equal_to(in, v, a); }
bool at_least(Interpreter& in, const Value& v, const Arguments& a) { return greater_than(in, v, a) || equal_to(in, v, a); }

// Tests without arguments.
template <bool (*kIs)(const Value&)>
bool plain(Interpreter&, const Value& value, const Arguments& all) {
  all.bind("a test", {});
  return kIs(value);
}
bool is_iterable(const Value& v) { return v.is_text() || v.is_list() || v.is_dict() || v.is_undefined() || v.is(Kind::kLoop); }
bool is_sequence(const Value& v) {
  return is_iterable(v) && !v.is(Kind::kLoop) && !(v.is_list() && v.list().type > Sequence::kRange);
}
bool is_callable(const Value& v) { return v.is_undefined() || v.kind() >= Kind::kMacro; }
bool has_rest(Interpreter& in, const Value& value, const Value& divisor, std::int64_t rest) {
  return is_equal(arithmetic("%", value, divisor, in.budget()), rest, in.budget());
}

bool is_same(Interpreter&, const Value& value, const Arguments& all) {
  const Value& other = only(all);
  if (value.kind() != other.kind()) return false;
  if (value.is_none()) return true;
  if (!value.is(Kind::kBool)) throw Refusal(fmt::format("sameas of two values of {}", type_name(value)));
  return value.boolean() == other.boolean();
}

struct NamedTest {
  std::string_view name;
  Test test;
};
// The first are operators, too.
constexpr NamedTest kTests[] = {
    {"== eq equalto", equal_to},
    {"!= ne", unequal_to},
    {"< lt lessthan", less_than},
    {"<= le", at_most},
    {"> gt greaterthan", greater_than},
    {">= ge", at_least},
    {"in", [](Interpreter& in, const Value& v, const Arguments& a) { return in.contains(only(a), v); }},
    {"boolean", plain<[](const Value& v) { return v.is(Kind::kBool); }>},
    {"callable", plain<is_callable>},
    {"defined", plain<[](const Value& v) { return !v.is_undefined(); }>},
    {"divisibleby", [](Interpreter& in, const Value& v, const Arguments& a) { return has_rest(in, v, only(a), 0); }},
    {"even",
     [](Interpreter& in, const Value& v, const Arguments& a) { return a.bind("even", {}), has_rest(in, v, std::int64_t{2}, 0); }},
    {"false", plain<[](const Value& v) { return v.is(Kind::kBool) && !v.boolean(); }>},
    {"float", plain<[](const Value& v) { return v.is(Kind::kFloat); }>},
    {"integer", plain<[](const Value& v) { return v.is(Kind::kInteger) || v.is(Kind::kLarge); }>},
    {"iterable", plain<is_iterable>},
    {"mapping", plain<[](const Value& v) { return v.is_dict(); }>},
    {"none", plain<[](const Value& v) { return v.is_none(); }>},
    {"number", plain<[](const Value& v) { return v.is_number() || v.is(Kind::kLarge); }>},
    {"odd",
     [](Interpreter& in, const Value& v, const Arguments& a) { return a.bind("odd", {}), has_rest(in, v, std::int64_t{2}, 1); }},
    {"sameas", is_same},
    {"sequence", plain<is_sequence>},
    {"string", plain<[](const Value& v) { return v.is_text(); }>},
    {"true", plain<[](const Value& v) { return v.is(Kind::kBool) && v.boolean(); }>},
    {"undefined", plain<[](const Value& v) { return v.is_undefined(); }>},
};

}  // namespace

Test find_test(std::string_view name) {
  const NamedTest* const found = row_of(kTests, name);
  return found == nullptr ? nullptr : found->test;
}
void refuse_test(std::string_view name) {
  throw Refusal(fmt::format("the test {}; known are {}", in_quotes(name), names_of(kTests)));
}

}  // namespace trident::jinja
