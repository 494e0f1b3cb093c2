#include "core/json_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/json_scanner.h"
#include "core/philox.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

std::string refusal(std::string_view text, const JsonRules& rules = {}) {
  return error_of<Error>([&] { parse_json(text, "f.json", rules); });
}

void expect_error(std::string_view text, std::string_view begins, std::string_view contains) {
  const std::string message = refusal(text);
  EXPECT_EQ(message.rfind(begins, 0), 0u) << message;
  expect_parts(message, {contains});
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(JsonReader, ReadsEveryKind) {
  const JsonValue v =
      parse_json(R"({"n": null, "b": true, "i": -3, "d": 1.5, "s": "a\u00e9\n", "l": [1, [], {}], "o": {"k": 2}})", "f");
  EXPECT_TRUE(v.find("n")->is_null());
  EXPECT_TRUE(v.find("b")->as_bool());
  EXPECT_EQ(v.find("i")->as_integer(), -3);
  EXPECT_EQ(v.find("i")->as_number(), -3.0);
  EXPECT_EQ(v.find("d")->as_number(), 1.5);
  EXPECT_EQ(v.find("s")->as_string(), "a\xc3\xa9\n");
  EXPECT_EQ(v.find("l")->items().size(), 3u);
  EXPECT_EQ(v.find("o")->find("k")->as_integer(), 2);
  EXPECT_EQ(v.find("absent"), nullptr);
  EXPECT_EQ(v.members()[0].key, "n");  // order of the text
  EXPECT_EQ(v.members()[6].key, "o");
}

TEST(JsonReader, CommentsAreReadWhereAllowed) {
  const std::string text = "// head\n{ /* in */ \"a\": 1 } // tail";
  EXPECT_EQ(parse_json(text, "f").find("a")->as_integer(), 1);
  JsonRules strict;
  strict.comments = false;
  EXPECT_NE(refusal(text, strict), "no error");
}

TEST(JsonReader, EveryValueKnowsItsLine) {
  const JsonValue v = parse_json("{\n  \"a\": 12\n,\n \"b\": [\n true,\n \"x\"\n],\n \"c\": {\n}, \"d\": 1.5}", "f");
  EXPECT_EQ(v.line(), 1);
  EXPECT_EQ(v.find("a")->line(), 2);
  EXPECT_EQ(v.find("b")->line(), 4);
  EXPECT_EQ(v.find("b")->items()[0].line(), 5);
  EXPECT_EQ(v.find("b")->items()[1].line(), 6);
  EXPECT_EQ(v.find("c")->line(), 8);
  EXPECT_EQ(v.find("d")->line(), 9);
}

TEST(JsonReader, MalformedTextNamesLineAndColumn) {
  expect_error("{\n  \"a\": 1,\n  \"b\": }", "f.json:3:8: ", "not valid JSON");
  expect_error("", "f.json:1:1: ", "not valid JSON");
  expect_error("{\"a\": 1,}", "f.json:1:8: ", "trailing comma on line 1; remove it");
  expect_error("{\"a\": 1", "f.json:1:", "the end of the text (the { of line 1 is open) where");
  expect_error("{\n \"a\": {\n  \"b\": [{}, [1]],\n  \"c\": 1\n}\n", "f.json:6:1: ",
               "the end of the text (the { of line 1 is open) where");
  expect_error("{\n \"a\": [\n  {}, 1\n", "f.json:4:1: ", "the end of the text (the [ of line 2 is open) where");
  expect_error("{} {}", "f.json:1:4: ", "not valid JSON");
  expect_error("{\"a\": \"\x01\"}", "f.json:1:", "not valid JSON");
  expect_error("{\"a\": \"\xff\"}", "f.json:1:", "not valid JSON");  // not UTF-8
  expect_error("{\"a\": NaN}", "f.json:1:", "not valid JSON");
  expect_error("{\"a\": 01}", "f.json:1:", "not valid JSON");
  expect_error("/* open", "f.json:1:", "not valid JSON");
}

TEST(JsonReader, ATrailingCommaIsNamedWithItsLine) {
  expect_error("{\"a\": 1,}", "f.json:1:8: ", "trailing comma on line 1; remove it");
  expect_error("{\n  \"a\": [1, 2\n  ,\n]}", "f.json:3:3: ", "trailing comma on line 3");
  expect_error("{\n  \"a\": \"x, \\\"\", // why, why\n /* and, so */ }", "f.json:2:15: ", "trailing comma on line 2");
  expect_error("[{},]", "f.json:1:4: ", "trailing comma");
  for (const char* text : {"{\"a\": 1 }}", "{\"a\": \",\" ]", "{\"a\": ,}"})
    EXPECT_EQ(refusal(text).find("trailing"), std::string::npos) << text;
}

TEST(JsonReader, PythonsWordsAndAMissingCommaSayWhatToWrite) {
  expect_error("{\"a\": True}", "f.json:1:7: ", "\"True\" where a value is expected; write true");
  expect_error("{\"a\": None}", "f.json:1:7: ", "; write null");
  expect_error("{\"a\": 'b'}", "f.json:1:7: ", "; texts stand in double quotes");
  expect_error("# mine\n{}", "f.json:1:1: ", "; comments begin with //");
  expect_error("{\"a\": 1\n \"b\": 2}", "f.json:2:2: ", "\",\" or \"}\" is expected; a comma is missing before it");
}

TEST(JsonReader, OtherFormatsAreNamed) {
  const std::string folder = ::testing::TempDir() + "json_formats_" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  const std::pair<const char*, const char*> files[] = {
      {"a.yaml", "# mine\ncompute_environment: LOCAL_MACHINE\n"}, {"b.yml", "---\nrun:\n  steps: 4\n"}, {"c.yaml", "- a\n"},
      {"d.toml", "[run]\nsteps = 4\n"}, {"e.toml", "\n\nsteps = 4\n"}, {"f.py", "batch_size = 12\n"},
      {"g.json", "{\"run\": 4\n"}, {"h.json", "[truth]x"}, {"i.json", ""}};
  const char* const formats[] = {"YAML", "YAML", "YAML", "TOML", "TOML", "Python", "", "", ""};
  for (std::size_t i = 0; i < std::size(files); ++i) {
    const std::string path = folder + "/" + files[i].first;
    std::ofstream(path) << files[i].second;
    try {
      read_json_file(path);
      ADD_FAILURE() << path;
    } catch (const ConfigError& error) {
      const std::string said = error.what(), format = formats[i];
      EXPECT_EQ(said.find("Trident reads JSON") != said.npos, !format.empty()) << said;
      expect_parts(said, {format.empty() ? "not valid JSON" : path + ": this is " + format});
    }
  }
}

TEST(JsonReader, DuplicateKeyIsAnError) {
  expect_error("{\"a\": 1,\n \"a\": 2}", "f.json:2:", "duplicate key \"a\"");
  EXPECT_EQ(refusal("{\"a\": {\"a\": 1}, \"b\": {\"a\": 1}}"), "no error");
}

TEST(JsonReader, TheSecondOfTwoKeysIsNamedWhereItStands) {
  expect_error("\xEF\xBB\xBF{\"a\": 1, \"a\": 2}", "f.json:1:10: ", "duplicate key \"a\"");
  expect_error("// one\n/* two\n */ {\"b\": {},\n  \"a\": [{}],\n   \"\\u0061\": 2}", "f.json:5:4: ", "duplicate key \"a\"");
}

// The text of keys decides: these two have one hash (libstdc++'s).
TEST(JsonReader, KeysOfOneHashAreTwo) {
  const std::string a = "tensor.abias.one", b = "bwqiaaaayrcra_Jl", escaped = "\\u0074ensor.abias.one";
  ASSERT_EQ(std::hash<std::string>()(a), std::hash<std::string>()(b));
  const auto text_with = [](const std::vector<std::string>& keys) {
    std::string text = "{\"first\": 0";
    for (const std::string& key : keys) text += ",\n\"" + key + "\": 1";
    return text + "}";
  };
  EXPECT_EQ(refusal(text_with({a, b})), "no error");
  EXPECT_EQ(refusal(text_with({b, a, "c"})), "no error");
  expect_error(text_with({a, b, a}), "f.json:4:1: ", "duplicate key \"" + a);
  expect_error(text_with({b, a, "c", b, "d"}), "f.json:5:1: ", "duplicate key \"" + b);
  expect_error(text_with({a, b, escaped}), "f.json:4:1: ", "duplicate key \"" + a);
}

TEST(JsonReader, DepthAndSizeAreLimited) {
  EXPECT_EQ(refusal(std::string(64, '[') + std::string(64, ']')), "no error");
  expect_error(std::string(65, '[') + std::string(65, ']'), "f.json:1:65", "deeper than 64");
  expect_error(std::string(100000, '['), "f.json:1:65", "deeper than 64");
  JsonRules small;
  small.max_bytes = 10;
  expect_parts(refusal("[1, 2, 3, 4, 5]", small), {"the limit of such a JSON file is 10; "});
}

TEST(JsonReader, ValuesAreCountedWhileTheyAreRead) {
  JsonRules rules;
  rules.max_values = 4;
  EXPECT_EQ(refusal("[1, [2], 3]", rules),
            "f.json:1:10: more values than memory is taken for begin here; the text is damaged, or not what it should be");
  EXPECT_EQ(refusal("[1, 2, 3]", rules), "no error");
}

TEST(JsonReader, ErrorsQuoteLittleOfAToken) {
  for (const std::string& text : {"[" + std::string(900000, '7') + "e99999]", "{\"a\": " + std::string(900000, 'y') + "}",
                                  "{\"" + std::string(900000, 'y')})
    EXPECT_LT(refusal(text).size(), 200u);
}

TEST(JsonScanner, SkipsWhatNobodyTakes) {
  std::string text = "{\"a\": [";
  for (int i = 0; i < 1000000; ++i) text += "0,";
  text += "{}], \"b\": \"\\ud83dx\"}";
  JsonRules rules{.max_bytes = text.size(), .max_values = 1, .replaces_surrogates = true};
  JsonScanner scanner(text, "f", rules);
  std::string found;
  scanner.members([&](const std::string& key) {
    if (key == "b") found = scanner.string();
    else scanner.skip();
  });
  scanner.end();
  EXPECT_EQ(found, "\xEF\xBF\xBDx");
  EXPECT_EQ(scanner.num_replaced(), 1);
}

TEST(JsonReader, NumbersKeepTheirKind) {
  EXPECT_EQ(parse_json("9223372036854775807", "f").as_integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_json("-9223372036854775808", "f").as_integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_FALSE(parse_json("9223372036854775808", "f").is_integer());  // would wrap
  const JsonValue large = parse_json("-123456789012345678901", "f");
  EXPECT_TRUE(large.is_number() && !large.is_integer());
  EXPECT_EQ(large.as_number(), -123456789012345678901.0);
  EXPECT_EQ(to_json_text(large), "-123456789012345678901");  // in full
  EXPECT_FALSE(parse_json("2.0", "f").is_integer());
  EXPECT_FALSE(parse_json("1e3", "f").is_integer());
  expect_error("1e400", "f.json:1:", "overflow");
}

TEST(JsonReader, AskingForAnotherKindIsABug) {
  EXPECT_THROW(JsonValue("x").as_integer(), InternalError);
  EXPECT_THROW(JsonValue(1).as_string(), InternalError);
  EXPECT_THROW(JsonValue(1.5).as_integer(), InternalError);
  EXPECT_THROW(JsonValue().as_bool(), InternalError);
  EXPECT_THROW(JsonValue("x").as_number(), InternalError);
  EXPECT_THROW(JsonValue("x").items(), InternalError);
  EXPECT_THROW(std::as_const(*std::make_unique<JsonValue>("x")).members(), InternalError);
}

TEST(JsonReader, TheBlameIsTheCallersChoice) {
  JsonRules rules;
  rules.blame = ExitCode::kData;
  EXPECT_THROW(parse_json("{", "f", rules), DataError);
  EXPECT_THROW(parse_json("{", "f"), ConfigError);
  EXPECT_THROW(read_json_file("/nonexistent/x.json", rules), DataError);
}

TEST(JsonReader, FilesThatAreNoFiles) {
  const std::string folder = ::testing::TempDir() + "json_reader_" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  EXPECT_THROW(read_json_file(folder), ConfigError);
  const std::string fifo = folder + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW(read_json_file(fifo), ConfigError);  // and does not wait for a writer
  const std::string file = folder + "/f.json";
  std::ofstream(file) << "{\"a\": 7}";
  EXPECT_EQ(read_json_file(file).find("a")->as_integer(), 7);
  JsonRules small;
  small.max_bytes = 3;
  EXPECT_THROW(read_json_file(file, small), ConfigError);
  ::unlink(file.c_str());
  ::unlink(fifo.c_str());
  ::rmdir(folder.c_str());
}

TEST(JsonWriter, RoundTripsExactly) {
  const std::string text =
      R"({"d":[0.1,1.0,1e+300,5e-324,-0.0],"e":{},"i":[-1,9223372036854775807],"s":"\"\\\n\u0001é","t":[true,null,{"x":[]}]})";
  const JsonValue v = parse_json(text, "f");
  EXPECT_EQ(parse_json(to_json_text(v), "g"), v);
  EXPECT_EQ(parse_json(to_json_text(v, 2), "g"), v);
  EXPECT_TRUE(std::signbit(parse_json(to_json_text(v), "g").find("d")->items()[4].as_number()));
  EXPECT_EQ(to_json_text(JsonValue(std::nan(""))), "null");
  EXPECT_EQ(to_json_text(JsonValue(1.0)), "1.0");
}

TEST(JsonWriter, SetReplacesOrAppends) {
  JsonValue v;
  v.set("a", 1);
  v.set("b", "x");
  v.set("a", true);
  EXPECT_EQ(to_json_text(v), R"({"a":true,"b":"x"})");
}

TEST(JsonWriter, QuotedIsSafeAndShort) {
  EXPECT_EQ(in_quotes("a\"\x1b[31m\n"), R"("a\"\u001b[31m\n")");
  EXPECT_EQ(in_quotes(std::string(100, 'x'), 3), "\"xxx...\"");
  EXPECT_EQ(in_quotes("\xC2\x9B" "31m\xE2\x80\xAE" "a\x9B"), "\"\\u009b31m\\u202ea\xEF\xBF\xBD\"");
  EXPECT_EQ(in_quotes("ab\xC3\xA9", 3), "\"ab...\"") << "not inside a character";
}

// Mutated and random texts: parsed or refused with one line, never a crash; what is parsed is written and read back equal.
TEST(JsonReader, FuzzedTextsAreParsedOrRefused) {
  const std::string seed =
      R"({"run": {"dir": "runs/x", "seed": 1234, "lr": 3e-4}, /* c */ )"
      R"("l": [1, 2.5, null, true, "é\u0041"], "o": {"k": [[], {}]}} // end)";
  const std::string alphabet = "{}[]\":,0123456789.eE+-truefalsn \n\\/*\xff\x01u";
  const PhiloxKey key = random_key(7, RandomPurpose::kTest, "json fuzz");
  std::uint64_t draw = 0;
  const auto below = [&](std::size_t n) {
    const std::uint64_t i = draw++;
    return philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, key)[0] % n;
  };
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = round % 4 == 0 ? std::string(below(24), ' ') : seed;
    const std::size_t edits = round % 4 == 0 ? text.size() : 1 + below(3);
    for (std::size_t e = 0; e < edits && !text.empty(); ++e) {
      const std::size_t at = round % 4 == 0 ? e : below(text.size());
      const char c = alphabet[below(alphabet.size())];
      const std::size_t what = round % 4 == 0 ? 0 : below(4);
      if (what == 0) text[at] = c;
      else if (what == 1) text.insert(at, 1, c);
      else if (what == 2) text.erase(at, 1 + below(5));
      else text.insert(at, text.substr(below(text.size()), below(20)));
    }
    try {
      const JsonValue value = parse_json(text, "fuzz");
      ++accepted;
      ASSERT_EQ(parse_json(to_json_text(value), "again"), value) << text;
      ASSERT_EQ(parse_json(to_json_text(value, 2), "again"), value) << text;
    } catch (const ConfigError& error) {
      ASSERT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 19000);
}

// The scanner accepts the texts that nlohmann's library accepts, and reads the same values from them.

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
  rules.comments = comments;
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
