// Chains of components against vectors of Hugging Face's tokenizers library and of tiktoken (scripts/oracle/chain_goldens.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/utf8.h"
#include "data/byte_stream.h"
#include "data/input_file.h"
#include "data/line_reader.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary_files.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(TokenizerChains, GoldensOfHuggingFaceAndTiktokenAreEncoded) {
  const TemporaryFolder folder;
  const std::string path = std::string(TRIDENT_GOLDENS) + "/chains.jsonl.gz";
  LineReader lines(open_byte_stream(identify_input(path)), path, {std::int64_t{1} << 26, std::int64_t{1} << 26});
  std::map<std::string, nlohmann::json> vocabularies;
  std::vector<std::string> texts;
  int chains = 0;
  for (std::string_view line = lines.next(); !line.empty(); line = lines.next()) {
    nlohmann::json row = nlohmann::json::parse(line);
    if (row.contains("texts")) texts = row["texts"].get<std::vector<std::string>>();
    if (!row.contains("chain")) {
      if (row.contains("vocabulary")) vocabularies[row["vocabulary"]] = row;
      continue;
    }
    const std::string name = row["chain"];
    SCOPED_TRACE(name);
    ++chains;
    std::unique_ptr<Tokenizer> tokenizer;
    if (row.contains("json")) {
      nlohmann::json& json = row["json"];
      for (const char* part : {"vocab", "merges"}) json["model"][part] = vocabularies[row["vocabulary"]][part];
      write_file(folder / "tokenizer.json", json.dump());
      tokenizer = load_tokenizer(folder.path());
    } else tokenizer = load_tokenizer(name);
    const auto encoder = tokenizer->new_encoder();
    const TextRule rule{.specials = row.value("plain", false) ? Specials::kPlain : Specials::kParsed};
    int failures = 0;
    for (std::size_t i = 0; i < texts.size() && failures < 5; ++i) {
      if (row["ids"][i].is_null()) continue;
      Ids ids;
      encoder->encode(texts[i], &ids, rule);
      const Ids wanted = row["ids"][i].get<Ids>();
      failures += ids != wanted;
      EXPECT_EQ(ids, wanted) << "text " << i << ": " << nlohmann::json(texts[i]).dump();
      if (!row.contains("decoded")) continue;
      std::string decoded;
      replace_ill_formed(tokenizer->decode(ids), &decoded);
      EXPECT_EQ(decoded, row["decoded"][i].get<std::string>()) << "text " << i;
    }
  }
  EXPECT_GE(chains, 19);
  EXPECT_GE(texts.size(), 2000u);
}

// Bytes that are not UTF-8 among them: what is read for them comes back.
TEST(TokenizerChains, RandomBytesAreDecodedAgain) {
  std::uint64_t state = 3;
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>((state = state * 6364136223846793005u + 1) >> 33) % n; };
  for (const char* name : {"gpt2", "cl100k", "bytes"}) {
    const auto tokenizer = load_tokenizer(name);
    const auto encoder = tokenizer->new_encoder();
    for (int round = 0; round < 2000; ++round) {
      std::string text, read;
      for (std::size_t i = draw(60); i > 0; --i) text += static_cast<char>(draw(3) == 0 ? draw(256) : 32 + draw(95));
      replace_ill_formed(text, &read);
      for (const Specials specials : {Specials::kParsed, Specials::kPlain}) {
        Ids ids;
        std::vector<std::size_t> ends;
        encoder->encode(text, &ids, {.specials = specials, .ends = &ends});
        ASSERT_EQ(tokenizer->decode(ids), read) << name;
        std::size_t at = 0;
        for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ends[i], at += tokenizer->token_text(ids[i]).size()) << name;
      }
    }
  }
}

TEST(TokenizerChains, ControlTextsAreCountedAndMayBePlain) {
  const auto tokenizer = load_tokenizer("cl100k");
  const auto encoder = tokenizer->new_encoder();
  const std::string text = "a<|endoftext|>b<|fim_prefix|>";
  Ids parsed, plain, some;
  encoder->encode(text, &parsed);
  EXPECT_EQ(parsed, (Ids{64, 100257, 65, 100258}));
  EXPECT_EQ(encoder->num_controls(), 2);
  ASSERT_TRUE(encoder->first_control());
  EXPECT_EQ(encoder->first_control()->at, 1u);
  EXPECT_EQ(encoder->first_control()->id, 100257);
  encoder->encode(text, &plain, {.specials = Specials::kPlain});
  EXPECT_EQ(encoder->num_controls(), 2);
  EXPECT_FALSE(encoder->first_control());
  EXPECT_EQ(tokenizer->decode(plain), text);
  for (const std::int32_t id : plain) EXPECT_LT(id, 100257);
  // A range that holds one byte of a control text keeps it from being one.
  const std::vector<ByteRange> ranges{{13, 14}};
  encoder->encode(text, &some, {.plain = ranges});
  EXPECT_EQ(some.front(), 64);
  EXPECT_EQ(some.back(), 100258);
  EXPECT_EQ(std::ranges::count(some, 100257), 0);
}

// A merge loop that scans its piece again for each merge takes a million times a million steps.
TEST(TokenizerChains, LongPiecesTakeFewSteps) {
  TokenTexts tokens;
  for (int b = 0; b < 256; ++b) tokens.add(std::string(1, static_cast<char>(b)), static_cast<std::size_t>(b));
  std::size_t next = 256;
  for (const std::string unit : {"a", "ab", "\xCC\x81", " "})
    for (std::size_t size = unit.size(); size <= 64; size *= 2) {
      std::string token;
      while (token.size() < size) token += unit;
      if (tokens.find(token) < 0) tokens.add(token, next++);
    }
  const BpeModel model(std::move(tokens), {});
  for (const std::string unit : {"a", "ab", "\xCC\x81", " "}) {
    BpeModel::Worker worker(model);
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    Ids ids;
    const PieceScanner::Piece all{text.size(), true};
    EXPECT_EQ(worker.encode(text, 0, {&all, 1}, &ids), 0);
    EXPECT_LT(ids.size(), text.size() / 16);
    const double n = static_cast<double>(text.size());
    EXPECT_LE(static_cast<double>(worker.steps()), 40 * n * std::log2(n));
  }
}

// Every byte of a hundred equal letters begins a token that nearly matches.
TEST(TokenizerChains, AddedTokensAreCutInLinearTime) {
  std::vector<AddedToken> tokens;
  for (int i = 1; i < 400; ++i) tokens.push_back({.content = std::string(static_cast<std::size_t>(i), 'a') + "b", .id = i});
  tokens.push_back({.content = std::string(20000, 'a') + "c", .id = 1000});
  const AddedTokens added(tokens);
  const std::string text(2'000'000, 'a');
  std::int64_t between = 0;
  added.cut(text + "b", [](const AddedToken&, std::string_view) { return true; },
            [](const AddedToken& token, std::string_view) { EXPECT_EQ(token.id, 399); },
            [&](std::string_view part) { between += std::ssize(part); });
  EXPECT_EQ(between, 2'000'000 - 399);
  // Each takes all the white space behind it along, and the next one begins in it.
  std::size_t taken = 0, last = 0;
  AddedTokens({{.content = " ", .rstrip = true}})
      .cut(std::string(1'000'000, ' '), [](const AddedToken&, std::string_view) { return true; },
           [&](const AddedToken&, std::string_view covers) { ++taken, last = covers.size(); }, [](std::string_view) {});
  EXPECT_EQ(taken, 1'000'000u);
  EXPECT_EQ(last, 1u);
}

}  // namespace
}  // namespace trident
