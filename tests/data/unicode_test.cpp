// Properties of code points and normal forms, the latter against Hugging Face's tokenizers (scripts/oracle/piece_goldens.py).
#include "data/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/utf8.h"
#include "tests/data/drawn_texts.h"

namespace trident {
namespace {

TEST(Unicode, CategoriesAreThoseOfVersion16) {
  int letters = 0, marks = 0, numbers = 0, punctuation = 0, symbols = 0, spaces = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    letters += is_in(c, kLetters), marks += is_in(c, kMarks), numbers += is_in(c, kNumbers);
    punctuation += is_in(c, kPunctuation), symbols += is_in(c, kSymbols), spaces += is_white_space(c);
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(marks, 2501);
  EXPECT_EQ(numbers, 1911);
  EXPECT_EQ(punctuation, 855);
  EXPECT_EQ(symbols, 8514);
  EXPECT_EQ(spaces, 25);
  EXPECT_EQ(category_of(U'\u01C5'), Category::kLt);
  EXPECT_EQ(category_of(U'\n'), Category::kLineEnd);
  EXPECT_EQ(category_of(U'\u0085'), Category::kControlSpace);
  EXPECT_EQ(category_of(U'\x1C'), Category::kCc);
  EXPECT_FALSE(is_white_space(0x180E));
}

TEST(Unicode, WordsAndScriptsAreKnown) {
  EXPECT_TRUE(is_word_character(U'_'));
  EXPECT_TRUE(is_word_character(U'\u200D'));
  EXPECT_TRUE(is_word_character(U'\u24B6'));
  EXPECT_FALSE(is_word_character(U'\u00BD'));
  EXPECT_EQ(script_bounds("Han").size(), 44u);
  EXPECT_EQ(script_bounds("hAN").data(), script_bounds("Han").data());
  EXPECT_TRUE(script_bounds("Hanx").empty());
}

std::string_view without_accents(std::string_view text, std::string* buffer) {
  buffer->clear();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_accent(c.value)) buffer->append(text.substr(at, c.size));
    at += c.size;
  }
  return *buffer;
}

TEST(Unicode, NormalFormsAreThoseOfHuggingFace) {
  const auto pieces = nlohmann::json::parse(read_file(TRIDENT_GOLDENS "/pieces.json"));
  const auto goldens = nlohmann::json::parse(read_file(TRIDENT_GOLDENS "/normal_forms.json"));
  const auto drawn = test::drawn_texts(pieces["atoms"], pieces["count"]);
  for (const std::string name : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}) {
    std::string buffer;
    const auto formed = [&](std::string_view text) {
      if (name == "Lowercase") return lowercased(text, &buffer);
      if (name == "StripAccents") return without_accents(text, &buffer);
      return normalized(text, name == "NFC"    ? NormalForm::kNfc
                              : name == "NFD"  ? NormalForm::kNfd
                              : name == "NFKC" ? NormalForm::kNfkc
                                               : NormalForm::kNfkd, &buffer);
    };
    const auto& golden = goldens["forms"][name];
    for (std::size_t i = 0; i < golden["texts"].size(); ++i)
      EXPECT_EQ(formed(goldens["texts"][i].get<std::string>()), golden["texts"][i].get<std::string>()) << name << " " << i;
    test::Fnv hash;
    const auto add = [&](const std::string& text) {
      for (const char c : formed(text)) hash.add(static_cast<unsigned char>(c));
    };
    for (const bool around : {false, true})
      for (char32_t c = 0; c < 0x30000; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        const std::string s = test::utf8(c);
        add(around ? "a" + s + "\u0327\u0301" + s : s);
      }
    for (const std::string& text : drawn) add(text);
    EXPECT_EQ(hash.text(), golden["hash"].get<std::string>()) << name;
  }
}

TEST(Unicode, NormalTextStaysWhereItIs) {
  std::string buffer = "before";
  const std::string ascii(1000, 'x'), chinese = "\u4e2d\u6587 \u00e9", small = "a \u4e2d1";
  for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfkc})
    for (const std::string& text : {ascii, chinese}) EXPECT_EQ(normalized(text, form, &buffer).data(), text.data());
  EXPECT_EQ(normalized(ascii, NormalForm::kNfkd, &buffer).data(), ascii.data());
  EXPECT_EQ(lowercased(small, &buffer).data(), small.data());
  EXPECT_EQ(buffer, "before");
  EXPECT_EQ(normalized("A\u030A", NormalForm::kNfc, &buffer), "\u00C5");
  EXPECT_EQ(normalized("\uAC01\u11A8\uAC00\u11A8", NormalForm::kNfc, &buffer), "\uAC01\u11A8\uAC01");  // one final each
  EXPECT_EQ(normalized("", NormalForm::kNfd, &buffer), "");
}

}  // namespace
}  // namespace trident
