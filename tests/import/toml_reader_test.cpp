#include "import/toml_reader.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace trident {
namespace {

std::string toml_text(std::string_view text) { return to_json_text(read_toml(text, "f.toml")); }

std::string toml_refusal(std::string_view text) {
  try {
    return "accepted as " + toml_text(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(TomlReader, ReadsTablesInTheOrderOfTheText) {
  EXPECT_EQ(toml_text("[training]\nsteps = 1_000  # n\nlr = 8e-4\n[a.b]\nname = 'x'\nlist = [1, 2.0,\n  true]\n"),
            R"({"training":{"steps":1000,"lr":0.0008},"a":{"b":{"name":"x","list":[1,2.0,true]}}})");
  EXPECT_EQ(toml_text("z.y = \"\\u00e9\"\na = {b = 0x10}\n[[t]]\nn = 1\n[[t]]\nn = -2\n"),
            "{\"z\":{\"y\":\"\xC3\xA9\"},\"a\":{\"b\":16},\"t\":[{\"n\":1},{\"n\":-2}]}");
  for (const char* date : {"2024-01-02", "03:04:05", "2024-01-02T03:04:05Z"})
    EXPECT_EQ(toml_refusal(std::string("a = 1\nd = ") + date),
              "f.toml:2:1: a date or a time, which no configuration has; write it in quotes");
  EXPECT_EQ(toml_text(""), "{}");
}

TEST(TomlReader, GivesMembersThePlacesOfTheirKeys) {
  const JsonValue value = read_toml("[a]\n  b = 1\n\n[a.c]\nd = [\n  5]\n", "f.toml");
  EXPECT_EQ(value.find("a")->line(), 1);
  EXPECT_EQ(value.find("a")->find("b")->line(), 2);
  EXPECT_EQ(value.find("a")->find("b")->column(), 3);
  EXPECT_EQ(value.find("a")->find("c")->find("d")->line(), 5);
  EXPECT_EQ(value.find("a")->find("c")->find("d")->items()[0].line(), 6);
}

TEST(TomlReader, SaysWhereBrokenTextIsBroken) {
  const auto begins = [](std::string_view text, std::string_view place) {
    const std::string refusal = toml_refusal(text);
    EXPECT_TRUE(refusal.starts_with(place)) << refusal;
  };
  begins("a = 1\na = 2\n", "f.toml:2:5: a key or a table that is there already; leave one of the two out");
  begins("[a]\nb = 1\n[a]\nc = 2\n", "f.toml:3:");
  begins("[a\nb = 1\n", "f.toml:1:");
  for (const char* const value : {"nope", "True", "tru"})
    EXPECT_NE(toml_refusal(fmt::format("a = {}", value)).find("no value of TOML; put texts in quotes"), std::string::npos) << value;
  EXPECT_EQ(toml_refusal("a = True"),
            "f.toml:1:5: no value of TOML; put texts in quotes, and write true and false in small letters");
  begins("a = [1 2]\n", "f.toml:1:8: no TOML, in array: expected comma or closing ']', saw '2'; correct it there");
  begins("a = 1\nb = \"x\n", "f.toml:2:");
  begins("a = 99999999999999999999\n", "f.toml:1:");
}

TEST(TomlReader, LettersBeyondAsciiStandInStringsAndCommentsAlone) {
  for (const std::string letter : {"\xC3\xA9", "\xE3\x81\x82", "\xEF\xB8\x8F"}) {
    for (const std::string& text : {"a = 1" + letter, "a = true" + letter, "a = " + letter, "a = [1, " + letter + "]"})
      EXPECT_TRUE(toml_refusal(text).starts_with("f.toml:1:")) << toml_refusal(text);
    EXPECT_EQ(toml_text("a = \"\"\"x\\\n " + letter + "\"\"\"  # " + letter), "{\"a\":\"x" + letter + "\"}");
  }
}

TEST(TomlReader, AHeaderWithoutANameIsRefusedAtItsPlace) {
  const std::string lacks = ": the header of a table lacks its name";
  EXPECT_EQ(toml_refusal("[job]\nx = 1\n\n[\ny = 2\n"), "f.toml:4:1" + lacks);
  EXPECT_EQ(toml_refusal("[a]\n  [[ \t\n"), "f.toml:2:1" + lacks);
  for (const char* text : {"[.a]", "[#", "[=]", "[[,]]", "[\r\n"})
    EXPECT_NE(toml_refusal(text).find(lacks), std::string::npos) << text;
  EXPECT_EQ(toml_text("a = [ # ]\n[\n'['\n]\n]\nb = '[' # [\n[ c ]\n[['d\"']]\n"), R"({"a":[["["]],"b":"[","c":{},"d\"":[{}]})");
}

TEST(TomlReader, HoldsItsLimits) {
  EXPECT_TRUE(toml_refusal("a = " + std::string(100'000, '[')).starts_with("f.toml:1:"));
  EXPECT_EQ(toml_refusal("a = " + std::string(70, '[') + std::string(70, ']')), "f.toml:1:68: nested deeper than 64 levels");
  std::string dots = "a";
  for (int i = 0; i < 400'000; ++i) dots += ".a";
  EXPECT_EQ(toml_refusal(dots + " = 1"), "f.toml:1:1: more than 1000 dots on a line");
  EXPECT_EQ(toml_refusal(dots.substr(0, 161) + " = 1"), "f.toml:1:127: nested deeper than 64 levels");
  std::string many = "a = [";
  for (int i = 0; i < 100'001; ++i) many += "1,";
  EXPECT_EQ(toml_refusal(many + "]"), "f.toml:1:200002: more than 100000 values, counted where aliases stand");
}

}  // namespace
}  // namespace trident
