// How text is cut, against Hugging Face's tokenizers (scripts/oracle/piece_goldens.py) and of the two ways against each other.
#include "data/tokenizer/piece_scanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file_io.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/piece_rules.h"
#include "tests/data/drawn_texts.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

using Ends = std::vector<std::int64_t>;  // in bytes; negative where a gap ends

Ends ends_of(const PieceScanner& scanner, std::string_view text) {
  Ends ends;
  scanner.cut(text, [&](std::span<const PieceScanner::Piece> pieces) {
    for (const auto& piece : pieces) ends.push_back(static_cast<std::int64_t>(piece.end) * (piece.matched ? 1 : -1));
  });
  return ends;
}

// As pieces, gaps between slashes.
std::string shown(std::string_view pattern, std::string_view text, PatternDialect dialect = PatternDialect::kOniguruma) {
  std::string all;
  std::size_t begin = 0;
  for (const std::int64_t end : ends_of(*piece_scanner(pattern, "t.json", dialect), text)) {
    const auto place = static_cast<std::size_t>(std::abs(end));
    const std::string_view piece = text.substr(begin, place - begin);
    all += end > 0 ? fmt::format("[{}]", piece) : fmt::format("/{}/", piece);
    begin = place;
  }
  return all;
}

struct Goldens {
  nlohmann::json json = nlohmann::json::parse(read_file(TRIDENT_GOLDENS "/pieces.json"));
  std::vector<std::string> texts = json["texts"], drawn = test::drawn_texts(json["atoms"], json["count"]);
};

PatternDialect dialect_of(const nlohmann::json& row) {
  return row.contains("left_out") ? PatternDialect::kFancyRegex : PatternDialect::kOniguruma;
}

const Goldens& goldens() {
  static const Goldens all;
  return all;
}

TEST(PieceScanner, CutsAsHuggingFaceAndTiktokenDo) {
  std::size_t in_full = 0;
  for (const auto& row : goldens().json["rows"]) {
    const std::string pattern = row["pattern"];
    const auto scanner = piece_scanner(pattern, "goldens", dialect_of(row));
    if (row.contains("ends")) {
      ++in_full;
      for (std::size_t i = 0; i < goldens().texts.size(); ++i)
        EXPECT_EQ(ends_of(*scanner, goldens().texts[i]), row["ends"][i].get<Ends>())
            << pattern << " on " << nlohmann::json(goldens().texts[i]).dump();
    }
    const auto left_out = row.value("left_out", std::vector<std::size_t>());
    test::Fnv hash;
    for (std::size_t i = 0; i < goldens().drawn.size(); ++i) {
      if (std::ranges::find(left_out, i) != left_out.end()) continue;
      for (const std::int64_t end : ends_of(*scanner, goldens().drawn[i])) hash.add(static_cast<std::uint64_t>(end));
    }
    EXPECT_EQ(hash.text(), row["drawn"].get<std::string>()) << pattern;
  }
  EXPECT_EQ(in_full, 13u);
  EXPECT_GE(goldens().drawn.size(), 2000u);
}

// A group around a pattern makes it another text, so that the matcher takes it.
TEST(PieceScanner, ScannersByHandCutAsTheMatcherDoes) {
  for (const auto& row : goldens().json["rows"]) {
    if (!row.contains("ends")) continue;
    const std::string pattern = row["pattern"];
    const auto by_hand = piece_scanner(pattern, "t", dialect_of(row));
    const auto matcher = piece_scanner("(?:" + pattern + ")", "t", dialect_of(row));
    EXPECT_EQ(typeid(*matcher), typeid(*piece_scanner("a", "t")));
    EXPECT_NE(typeid(*by_hand), typeid(*matcher)) << pattern;
    for (const auto* texts : {&goldens().texts, &goldens().drawn})
      for (const std::string& text : *texts)
        ASSERT_EQ(ends_of(*by_hand, text), ends_of(*matcher, text)) << pattern << " on " << nlohmann::json(text).dump();
  }
}

// Counts the bytes that a rule looks at.
class CountingCursor {
 public:
  CountingCursor(std::string_view text, std::uint64_t* read) : text_(text), read_(read) {}
  std::size_t size() const { return text_.size(); }
  bool is(std::size_t at, char c) const { return ++*read_, text_.is(at, c); }
  char32_t value(std::size_t at) const { return ++*read_, text_.value(at); }
  rules::TextCursor::At at(std::size_t at) const { return ++*read_, text_.at(at); }
  std::size_t ascii_end(std::size_t at) const { return counted(at, text_.ascii_end(at)); }
  std::size_t run_end(std::size_t at, CategorySet set) const { return counted(at, text_.run_end(at, set)); }
  template <bool kBothCases>
  std::size_t ascii_letters_end(std::size_t at) const {
    return counted(at, text_.ascii_letters_end<kBothCases>(at));
  }
  template <bool kBothCases>
  std::size_t letters_end(std::size_t at, CategorySet set) const {
    return counted(at, text_.letters_end<kBothCases>(at, set));
  }

 private:
  std::size_t counted(std::size_t begin, std::size_t end) const { return *read_ += 1 + end - begin, end; }
  rules::TextCursor text_;
  std::uint64_t* read_;
};

template <class Rule>
void expect_linear(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    std::uint64_t read = 0;
    const CountingCursor cursor(text, &read);
    for (std::size_t begin = 0; begin < text.size();) begin = Rule::next(cursor, begin).end;
    EXPECT_LE(read, 16 * text.size()) << text.substr(0, 8);
  }
}

TEST(PieceScanner, LongRunsTakeLinearSteps) {
  std::vector<std::string> texts;
  for (const char* unit : {"a", "ab", " ", "\u0301", "\u3042A", "!\n", "1", "\u200d"}) {
    const std::size_t size = texts.size() < 4 ? 1'000'000 : 100'000;
    std::string text = "a ";
    while (text.size() < size) text += unit;
    texts.push_back(text + " x");
  }
  expect_linear<rules::Gpt2>(texts);
  expect_linear<rules::Cl100k<kLetters, 3>>(texts);
  expect_linear<rules::Cl100k<kLetters | kMarks, 1>>(texts);
  expect_linear<rules::O200k<true, 3>>(texts);
  expect_linear<rules::O200k<false, 1>>(texts);
  expect_linear<rules::WithGaps<rules::DeepSeekNumbers>>(texts);
  expect_linear<rules::WithGaps<rules::DeepSeekIdeographs>>(texts);
  expect_linear<rules::WithGaps<rules::DeepSeekWords>>(texts);
  for (const auto& row : goldens().json["rows"]) {
    if (!row.contains("ends")) continue;
    const std::string pattern = row["pattern"];
    const PatternProgram program(parse_pattern(pattern, "t", dialect_of(row)), pattern, "t");
    for (const std::string& text : texts) {
      PatternProgram::Matcher matcher(program, text);
      for (std::size_t at = 0; at < text.size();) {
        const auto end = matcher.match_at(at);
        at = end && *end > at ? *end : at + code_point_at(text, at).size;
      }
      EXPECT_LE(matcher.num_steps(), 24 * text.size()) << pattern << " on " << text.substr(0, 8);
    }
  }
}

TEST(PatternMatcher, DialectsDifferWhereTheirLibrariesDo) {
  const auto fancy = PatternDialect::kFancyRegex;
  EXPECT_EQ(shown("a$|b", "a\nba"), "[a]/\n/[b][a]");
  EXPECT_EQ(shown("a$|b", "a\nba", fancy), "/a\n/[b][a]");
  EXPECT_EQ(shown("^a|b", "a\na"), "[a]/\n/[a]");
  EXPECT_EQ(shown("^a|b", "a\na", fancy), "[a]/\na/");
  EXPECT_EQ(shown(R"(\b\w)", "ab_d e", fancy), "[a]/b_d /[e]");
  EXPECT_EQ(shown(R"(\B\w)", "ab c"), "/a/[b]/ c/");
  EXPECT_EQ(shown("\\n^", "a\nb\n"), "/a/[\n]/b\n/");  // no line begins at the end of a text
  EXPECT_EQ(shown(R"(\p{N}{1,3}+)", "12345"), "[12345]");
  EXPECT_EQ(shown(R"(\p{N}{1,3}+)", "12345", fancy), "[123][45]");
  const auto cl100k = *std::ranges::find(known_patterns(), "cl100k", &KnownPattern::name);
  EXPECT_EQ(shown(cl100k.text, "12345 a\n  "), "[12345][ a][\n  ]");
  EXPECT_EQ(shown(cl100k.text, "12345 a\n  ", cl100k.dialect), "[123][45][ a][\n  ]");
}

TEST(PatternMatcher, AMatchOfNothingEndsAGap) {
  EXPECT_EQ(shown("(?=[A-Z])", "abCdE"), "/ab//Cd//E/");
  EXPECT_EQ(shown("x*", "axxb"), "/a/[xx]/b/");
  EXPECT_EQ(shown("x", ""), "");
}

TEST(PatternMatcher, WhatIsNotKnownIsRefusedWithItsPlace) {
  struct Case {
    std::string_view pattern, what;
    int character;
  };
  for (const Case& c : std::initializer_list<Case>{
           {R"(a\K)", R"(the escape \K)", 2},
           {R"(é(a)\1)", R"(the escape \1)", 5},
           {R"(\X)", R"(the escape \X)", 1},
           {R"(\p{Foo})", R"(the property "\\p{Foo}")", 1},
           {R"(\pL)", R"(a \p without {..})", 1},
           {R"([[:alpha:]])", "a class [:..:]", 2},
           {R"([])", "an empty class", 1},
           {R"([a)", "a [ without its ]", 1},
           {R"([z-a])", "a range from the higher to the lower", 2},
           {R"([a-\d])", "a range that ends with what is no single character", 2},
           {R"([\d-x])", "a - behind what is no single character", 4},
           {R"([a&&])", "an empty class", 1},
           {R"((a)", "a ( without its )", 1},
           {R"(a))", "a ) without its (", 2},
           {R"((?<n>a))", R"(the group "(?<n")", 1},
           {R"((?s:.))", R"(the group "(?s:")", 1},
           {R"(a(?i)b)", "a (?i) that does not begin a group", 2},
           {R"((?i:é))", "a character beyond ASCII inside (?i)", 5},
           {R"((?i:\p{L}))", R"(\p{..} inside (?i))", 5},
           {R"((?i:\w))", R"(\w inside (?i))", 5},
           {R"((?i:as(?:S)))", R"("ss" inside (?i), which is also one character)", 10},
           {R"((?<=a*)b)", "a look-behind of no fixed length", 1},
           {R"(*a)", "a * that repeats nothing", 1},
           {R"(a|+)", "a + that repeats nothing", 3},
           {R"(a{x})", "a { that begins no count", 2},
           {R"(a{2,1})", "counts in the wrong order", 2},
           {R"(a{1001})", "a count above 1000", 3},
           {R"(a{2}?)", "a ? behind one count", 5},
           {R"(a+*)", "a repeat of a repeat", 3},
           {R"((?:a*)*)", "a repeat of what may be empty", 1},
           {R"((?=a)+)", "a repeat of a place", 6},
           {R"(\x{110000})", "an escape that is no code point", 1},
           {R"(\x80)", "an escape that is no code point", 1},
           {R"(a\)", R"(a \ at the end)", 2},
       }) {
    SCOPED_TRACE(c.pattern);
    expect_error<DataError>([&] { piece_scanner(c.pattern, "t.json: pre_tokenizer.pattern"); },
                            {"t.json: pre_tokenizer.pattern: pattern \"", std::string(c.what),
                             fmt::format(" at character {};", c.character)});
  }
  expect_error<DataError>([] { piece_scanner(std::string(20000, 'a'), "t"); }, {"a pattern of 20000 bytes, at most 16384"});
  expect_error<DataError>([] { piece_scanner("a\xFF", "t"); }, {"bytes that are no UTF-8 at character 2"});
  expect_error<DataError>([] { piece_scanner("(?:(?:ab){1000}){1000}", "t"); }, {"too long with its repeats written out"});
  const std::string deep(100, '('), classes(100, '[');
  expect_error<DataError>([&] { piece_scanner(deep, "t"); }, {"groups more than 64 deep"});
  expect_error<DataError>([&] { piece_scanner(classes, "t"); }, {"classes more than 64 deep"});
}

TEST(PatternMatcher, StepsAreLimited) {
  const auto scanner = piece_scanner("(?:a|b|ab)+c|(?:a+)+d", "t.json");
  EXPECT_EQ(shown("(?:a|b|ab)+c", "ababc"), "[ababc]");
  const std::string hostile(3000, 'a');
  expect_error<DataError>([&] { ends_of(*scanner, hostile); },
                          {"t.json: pattern \"(?:a|b|ab)+c|(?:a+)+d\"", "more than 64 steps a byte", "\"aaaa", "do not contain"});
  // It is given up early in a long text, not when 64 steps a byte of the whole are spent.
  const std::string long_text(std::size_t{50} << 20, 'a');
  PatternProgram program(parse_pattern("a+b|a", "t", PatternDialect::kOniguruma), "a+b|a", "t");
  PatternProgram::Matcher matcher(program, long_text);
  expect_error<DataError>([&] { matcher.match_at(0); }, {"steps"});
  EXPECT_LT(matcher.num_steps(), std::uint64_t{1} << 27);
  // Looks that fail at once, choices that are never gone back to, runs of nothing, and places.
  for (const std::string_view part : {"(?!x)", "(?:|b)", "(?>|b)", "b*", "^"}) {
    std::string pattern;
    for (int i = 0; i < 2000; ++i) pattern += part;
    expect_error<DataError>([&] { ends_of(*piece_scanner(pattern + "a", "t"), std::string(3000, '\n')); },
                            {"more than 64 steps a byte"});
  }
}

TEST(PatternMatcher, ChoicesAreKeptWhileTheyMayBeGoneBackTo) {
  std::string text;
  while (text.size() < (std::size_t{10} << 20)) text += "ab";
  for (const char* const pattern : {"(?:ab|b)+", "(?:ab|b)++|x", "x|(?:(?:ab|b)+|y)"})
    EXPECT_EQ(ends_of(*piece_scanner(pattern, "t"), text), std::vector<std::int64_t>{std::ssize(text)}) << pattern;
  text.resize(std::size_t{5} << 20);
  expect_error<DataError>([&] { ends_of(*piece_scanner("(?:ab|b)+c", "t"), text); }, {"keeps more than 4194304 choices open"});
}

// Many alternatives, where each byte of a text is a piece that the last of them finds.
TEST(PatternMatcher, PatternsOfTokenizersHaveStepsEnough) {
  std::string many = "[^z]";
  for (int i = 0; i < 63; ++i) many = fmt::format("y{}|", i) + many;
  const std::string cased = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", small = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])",
                    contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|";
  const std::string kPatterns[] = {
      many,
      cased + "*" + small + "+" + contraction + cased + "+" + small + "*" + contraction +
          R"(\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
  for (const std::string& pattern : kPatterns)
    for (const std::string_view unit : {"a", "x", " ", "a1", "A1", "A ", "a'", "'", "\n!", " \n", "\t\r", "1.", "! ",
                                        "!\n ", "\xC3\xA9'"}) {
      std::string text;
      while (text.size() < 3000) text += unit;
      EXPECT_EQ(ends_of(*piece_scanner(pattern, "t"), text).back(), std::ssize(text)) << pattern << " on " << unit;
    }
}

}  // namespace
}  // namespace trident
