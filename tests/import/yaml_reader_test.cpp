// YAML typed as the loaders of PyYAML 6.0.4 and OmegaConf 2.4.0 type it: the expected values are what they answered.
#include "import/yaml_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "import/text_limits.h"

namespace trident {
namespace {

JsonValue yaml_of(std::string_view text, YamlTyping typing = YamlTyping::kPyYaml) { return read_yaml(text, "f.yaml", typing); }

std::string yaml_text(std::string_view text, YamlTyping typing = YamlTyping::kPyYaml) {
  return to_json_text(yaml_of(text, typing));
}

std::string yaml_refusal(std::string_view text) {
  try {
    return "accepted as " + yaml_text(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// A scalar in JSON; numbers that JSON has none of by their names.
std::string scalar_text(const JsonValue& value) {
  if (!value.is_number() || std::isfinite(value.as_number())) return to_json_text(value);
  return std::isnan(value.as_number()) ? "nan" : value.as_number() > 0 ? "inf" : "-inf";
}

struct ScalarGolden {
  std::vector<std::string_view> texts;
  std::string_view py_yaml, omega_conf = {};  // as JSON; the first is left out of what stays a text, the last where both agree
};

const ScalarGolden kScalars[] = {
    {{"-.5", ".5e3", "_1", "oN", "y", "n", "tRUE", "nULL", "none", "None", "08", "0o10", "0x", "0xg", "0b2", "1:30", "1:30.5",
      "1:75", "0:30", "-.nan", "inf", "1.2.3", "3.2e", "1e", "e3", "+", "1,000", "2e12T", "bf16"}, ""},
    {{"on", "On", "yes", "True"}, "true"},
    {{"OFF", "no", "NO", "False"}, "false"},
    {{"~", "Null"}, "null"},
    {{"1e-5"}, R"("1e-5")", "1e-05"},
    {{"1.0e-5"}, "1e-05"},
    {{"1.0e5"}, R"("1.0e5")", "100000.0"},
    {{"1.5e+3"}, "1500.0"},
    {{"1E-3"}, R"("1E-3")", "0.001"},
    {{"1.E-3"}, "0.001"},
    {{"5.e-5"}, "5e-05"},
    {{"-1e4"}, R"("-1e4")", "-10000.0"},
    {{"+1.5"}, "1.5"},
    {{".5", "00.5"}, "0.5"},
    {{".5e-3"}, "0.0005"},
    {{"1.", "!!float 1"}, "1.0"},
    {{"12e03"}, R"("12e03")", "12000.0"},
    {{"3e+4"}, R"("3e+4")", "30000.0"},
    {{"4.0e-4"}, "0.0004"},
    {{"6.8523015e+5", "685_230.15"}, "685230.15"},
    {{"0.1_5"}, "0.15"},
    {{"1_000"}, "1000"},
    {{"739_328"}, "739328"},
    {{"1__0"}, "10"},
    {{"1_"}, "1"},
    {{"010"}, "8"},
    {{"0_7", "+7"}, "7"},
    {{"00", "-0"}, "0"},
    {{"0x1F", "0x_1f"}, "31"},
    {{"-0xff"}, "-255"},
    {{"0b101"}, "5"},
    {{"-0b1_1"}, "-3"},
    {{"9223372036854775807"}, "9223372036854775807"},
    {{".inf", "+.INF"}, "inf"},
    {{"-.inf"}, "-inf"},
    {{".nan"}, "nan"},
    {{"'no'"}, R"("no")"},
    {{"\"1\"", "!!str 1"}, R"("1")"},
    {{"!!int '3'"}, "3"},
};

TEST(YamlScalars, AreTypedAsTheirLoadersDo) {
  for (const ScalarGolden& golden : kScalars)
    for (const std::string_view text : golden.texts) {
      SCOPED_TRACE(text);
      const std::string file = fmt::format("a: {}\n", text);
      const std::string plain = golden.py_yaml.empty() ? in_quotes(text) : std::string(golden.py_yaml);
      EXPECT_EQ(scalar_text(*yaml_of(file).find("a")), plain);
      EXPECT_EQ(scalar_text(*yaml_of(file, YamlTyping::kOmegaConf).find("a")),
                golden.omega_conf.empty() ? plain : golden.omega_conf);
    }
}

// PyYAML makes a date of it, and of 1:30 ninety: a configuration has neither.
TEST(YamlScalars, DatesAreTexts) { EXPECT_EQ(yaml_text("a: 2024-01-02"), R"({"a":"2024-01-02"})"); }

TEST(YamlScalars, BeyondSixtyFourBitsAreRefused) {
  EXPECT_EQ(yaml_refusal("a: 9223372036854775808"), "f.yaml:1:4: \"9223372036854775808\" is no number of 64 bits");
  EXPECT_EQ(yaml_refusal("a: 1.0e+999"), "f.yaml:1:4: \"1.0e+999\" is no number of 64 bits");
}

TEST(YamlReader, ReadsListsMappingsAndBlocksOfText) {
  EXPECT_EQ(yaml_text("# first\na:\n- 1\n- b: x\n  c: [2, 'y']  # behind\nd: {e: , f}\ng: |\n  1\n   2\nh: >-\n  u\n  v\n"),
            R"({"a":[1,{"b":"x","c":[2,"y"]}],"d":{"e":null,"f":null},"g":"1\n 2\n","h":"u v"})");
  EXPECT_EQ(yaml_text("%YAML 1.1\n---\na: 1\n...\n"), R"({"a":1})");
  EXPECT_EQ(yaml_text("a: \"\\u00e9\\n\"\r\nb: 2\r\n"), "{\"a\":\"\xC3\xA9\\n\",\"b\":2}");
  EXPECT_EQ(yaml_text(""), "null");
  EXPECT_EQ(yaml_text("# nothing\n"), "null");
}

TEST(YamlReader, GivesMembersThePlacesOfTheirKeys) {
  const JsonValue value = yaml_of("a:\n  b: 1\nlist:\n- x\nnothing:\nlast: 2\n");
  const auto place = [](const JsonValue& v) { return std::pair(v.line(), v.column()); };
  EXPECT_EQ(place(*value.find("a")), std::pair(1, 1));
  EXPECT_EQ(place(*value.find("a")->find("b")), std::pair(2, 3));
  EXPECT_EQ(place(*value.find("list")), std::pair(3, 1));
  EXPECT_EQ(place(value.find("list")->items()[0]), std::pair(4, 3));
  EXPECT_EQ(place(*value.find("nothing")), std::pair(5, 1));
}

TEST(YamlReader, FollowsAliasesAndMergeKeys) {
  EXPECT_EQ(yaml_text("a: &x {k: 1, m: 2}\nb: *x\nc: {<<: *x, m: 3}\n"),
            R"({"a":{"k":1,"m":2},"b":{"k":1,"m":2},"c":{"k":1,"m":3}})");
  EXPECT_EQ(yaml_text("a: &x {k: 1}\nb: &y {k: 2, n: 3}\nc:\n  <<: [*x, *y]\n"),
            R"({"a":{"k":1},"b":{"k":2,"n":3},"c":{"k":1,"n":3}})");
  EXPECT_EQ(yaml_text("a: {'<<': 1}"), R"({"a":{"<<":1}})");
  EXPECT_EQ(yaml_refusal("a: 1\nb:\n  <<: 2\n"), "f.yaml:3:3: << takes a mapping or a list of mappings");
  EXPECT_EQ(yaml_refusal("a: &x [*x]\n"), "f.yaml:1:4: nested deeper than 64 levels") << "it stands inside what it stands for";
  EXPECT_EQ(yaml_text("a: &x b\n*x : 1\n"), R"({"a":"b","b":1})");
  EXPECT_EQ(yaml_refusal("a: *x\n"),
            "f.yaml:1:4: * names an anchor that is not before it; put a text that begins with * in quotes");
}

TEST(YamlReader, ResolvesReferencesOfOmegaConfAlone) {
  constexpr std::string_view kText = "n: 3\na: {b: '${n}'}\nc: ${a.b}\nd: x/${n}\ne: ${oc.env:HOME}\nf: ${f}\n";
  EXPECT_EQ(yaml_text(kText, YamlTyping::kOmegaConf), R"({"n":3,"a":{"b":3},"c":3,"d":"x/${n}","e":"${oc.env:HOME}","f":"${f}"})");
  EXPECT_EQ(yaml_text("n: 3\nc: ${n}\n"), R"({"n":3,"c":"${n}"})");
  EXPECT_EQ(yaml_text("c: ${b}\nb: ${a}\na: 3\nd: ${e}\ne: ${d}\n", YamlTyping::kOmegaConf),
            R"({"c":3,"b":3,"a":3,"d":"${e}","e":"${d}"})")
      << "one may name another, but not itself";
}

TEST(YamlReader, SaysWhereBrokenTextIsBroken) {
  EXPECT_TRUE(yaml_refusal(", a").ends_with("a second document begins; give a file of one document")) << "and no end of them";
  constexpr std::string_view kBroken[][2] = {
      {"a: 1\nb: {c: 2, c: 3}\n", "2:11: duplicate key \"c\""},
      {"a: 1\na: 1\n", "2:1: duplicate key \"a\""},
      {"a: 1\n---\nb: 2\n", "2:1: a second document begins; give a file of one document"},
      {"a: !!python/object:os.system x\n",
       "1:4: the tag \"tag:yaml.org,2002:python/object:os.system\" stands for no value of a configuration"},
      {"a: !mine [1]\n", "1:4: the tag \"!mine\" stands for no value of a configuration"},
      {"a: !!int x\n", "1:4: \"x\" has the tag \"tag:yaml.org,2002:int\", which it does not fit"},
      {"? [a]\n: 1\n", "1:3: a key is a list or a mapping, or a bracket is not closed; keys are texts"},
      {"~: 1\n", "1:1: a key is empty"},
      {"a: 1\nb\n", "2:1: there is no colon behind \"b\""},
      {"%a: 1\nb: 2\n", "1:1: an unknown directive"},
      {"a: b: c\n", "1:5: a second colon in one value, a tab, or a key deeper than those before it; put a text that has a colon in "
                    "quotes, and begin the keys of one block with as many spaces"},
      {"a: [1, 2\n", "2:1: [ is not closed, or a comma is missing within it; write ]"},
      {"a: \"x\" y\n", "1:8: words behind a quote that ends, or a line that is of no block; put the whole text in quotes, and "
                        "begin the keys of one block with as many spaces"},
      {"a: 'x\nb: 2\n", "1:4: a quote is not closed"},
      {"a:\n  b: &x \"y\\\"\n", "2:6: a quote is not closed"},
      {"a: [, b]\n", "1:5: nothing stands before the comma"},
      {"a: @x\n", "1:4: no text begins with this character; put it in quotes"},
      {"a: !<x\n", "1:7: end of verbatim tag not found; correct the YAML there"},
  };
  for (const auto& [text, why] : kBroken) EXPECT_EQ(yaml_refusal(text), fmt::format("f.yaml:{}", why)) << text;
}

TEST(YamlReader, ExpandsNothingBeyondItsLimits) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n", texts = "a: &a '" + std::string(500'000, 'x') + "'\nb: [";
  for (int i = 1; i < 20; ++i) {
    bomb += fmt::format("a{0}: &a{0} [", i);
    for (int k = 0; k < 9; ++k) bomb += fmt::format("*a{}{}", i - 1, k < 8 ? ", " : "]\n");
  }
  for (int i = 0; i < 1000; ++i) texts += i < 999 ? "*a, " : "*a]";
  std::string deep = "a: &a0 [1]\n";
  for (int i = 1; i < 70; ++i) deep += fmt::format("b{0}: &a{0} [*a{1}]\n", i, i - 1);
  std::string keys = "a0: 1\n";
  for (int i = 1; keys.size() < kMaxForeignBytes - 100; ++i) keys += fmt::format("a{}: {{}}\n", i);
  EXPECT_TRUE(yaml_refusal(bomb).ends_with("more than 100000 values, counted where aliases stand")) << yaml_refusal(bomb);
  EXPECT_TRUE(yaml_refusal(texts).ends_with("more than 1048576 bytes of text, counted where aliases stand")) << yaml_refusal(texts);
  EXPECT_EQ(yaml_refusal(deep), "f.yaml:1:4: nested deeper than 64 levels");
  for (const std::string& text : {std::string(100'000, '['), "a: " + std::string(100'000, '{')})
    EXPECT_TRUE(yaml_refusal(text).ends_with(": nested deeper than 500 levels")) << yaml_refusal(text);
  EXPECT_EQ(yaml_refusal(std::string(65, '[') + std::string(65, ']')), "f.yaml:1:65: nested deeper than 64 levels");
  std::string dashes;
  for (int i = 0; i < 100'000; ++i) dashes += "- ";
  EXPECT_EQ(yaml_refusal(dashes), "f.yaml:1:1000: nested deeper than 500 levels");
  EXPECT_GT(yaml_text(keys).size(), 1'000'000u);
  EXPECT_EQ(yaml_text(std::string(64, '[') + std::string(64, ']')), std::string(64, '[') + std::string(64, ']'));
}

}  // namespace
}  // namespace trident
