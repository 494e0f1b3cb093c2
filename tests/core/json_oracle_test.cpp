// The scanner accepts the texts that nlohmann's library accepts, and reads the same values from them.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/json_reader.h"
#include "core/philox.h"

namespace trident {
namespace {

bool same_value(const JsonValue& ours, const nlohmann::json& theirs) {
  if (theirs.is_object()) {
    if (!ours.is_object() || ours.members().size() != theirs.size()) return false;
    for (const JsonMember& member : ours.members())
      if (!theirs.contains(member.key) || !same_value(member.value, theirs[member.key])) return false;
    return true;
  }
  if (theirs.is_array()) {
    if (!ours.is_array() || ours.items().size() != theirs.size()) return false;
    for (std::size_t i = 0; i < theirs.size(); ++i)
      if (!same_value(ours.items()[i], theirs[i])) return false;
    return true;
  }
  if (theirs.is_string()) return ours.is_string() && ours.as_string() == theirs.get<std::string>();
  if (theirs.is_boolean()) return ours.is_bool() && ours.as_bool() == theirs.get<bool>();
  if (theirs.is_number()) return ours.is_number() && ours.as_number() == theirs.get<double>();
  return ours.is_null();
}

// Nothing where the text is refused for what the library takes: a key twice, or nesting.
std::optional<bool> agree_on(std::string_view text, bool comments) {
  JsonRules rules;
  rules.comments = comments ? JsonComments::kAllowed : JsonComments::kRefused;
  const nlohmann::json theirs = nlohmann::json::parse(text, nullptr, false, comments);
  try {
    const JsonValue ours = parse_json(text, "f", rules);
    return !theirs.is_discarded() && same_value(ours, theirs);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.find("duplicate key") != what.npos || what.find("nested deeper") != what.npos) return std::nullopt;
    return theirs.is_discarded();
  }
}

TEST(JsonOracle, TheScannerAgreesWithTheLibraryOnMutatedTexts) {
  constexpr std::string_view kSeeds[] = {
      R"({"a": [1, -0, 2.5e-3, 1E+2, 9223372036854775807, 18446744073709551615, 1e308], "b": {"c": null, "d": [true, false]}})",
      R"(["\u00e9\n\t\"\\\/\b\f\r", "\ud83d\ude00", "ä€😀", "", [[], {}], {"": [0]}])",
      "// a\n{ /* b */ \"k\": 1, // c\r\n \"l\": [ ] } /* d */ ",
      "\xEF\xBB\xBF{\"bom\": -1.0}",
  };
  constexpr std::string_view kBytes = "{}[]\",:\\/*-+.eE0123456789ntfu \n\r\t\x80\xC3\xED\x01";
  std::uint32_t drawn = 0, compared = 0;
  const auto draw = [&](std::size_t below) { return philox4x32({drawn++, 0, 0, 0}, {7, 0})[0] % below; };
  for (int i = 0; i < 40'000; ++i) {
    std::string text(kSeeds[draw(std::size(kSeeds))]);
    for (std::size_t edits = draw(4); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = draw(text.size()), kind = draw(3);
      if (kind == 0) text[at] = kBytes[draw(kBytes.size())];
      else if (kind == 1) text.insert(at, 1, kBytes[draw(kBytes.size())]);
      else text.erase(at, 1 + draw(3));
    }
    const std::optional<bool> same = agree_on(text, draw(2) == 0);
    compared += same.has_value();
    ASSERT_TRUE(same.value_or(true)) << text;
  }
  EXPECT_GT(compared, 30'000U);
}

}  // namespace
}  // namespace trident
