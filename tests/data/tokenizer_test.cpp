// GPT-2's ids against vectors of Hugging Face's tokenizers library (scripts/oracle/tokenizer_goldens.py).
#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/clock.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/tokenizer/merge_table.h"
#include "data/tokenizer/token_ids.h"
#include "data/tokenizer/token_texts.h"
#include "tests/data/drawn_texts.h"
#include "tests/data/gpt2_style.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using Ids = std::vector<std::int32_t>;

const Tokenizer& gpt2() {
  static const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer("gpt2");
  return *tokenizer;
}

std::string bytes_from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(Gpt2Tokenizer, PublishedVectorsAreEncoded) {
  EXPECT_EQ(gpt2().encode("Hello, World! How are you today? \U0001F30D"),
            (Ids{15496, 11, 2159, 0, 1374, 389, 345, 1909, 30, 12520, 234, 235}));
  EXPECT_EQ(gpt2().encode("  two  spaces\n\n tab\t x"), (Ids{220, 734, 220, 9029, 628, 7400, 197, 2124}));
  EXPECT_EQ(gpt2().encode("<|endoftext|>abc"), (Ids{50256, 39305}));
  EXPECT_EQ(gpt2().encode("\t\tif (x):\r\n    y=1"), (Ids{197, 197, 361, 357, 87, 2599, 201, 198, 220, 220, 220, 331, 28, 16}));
  EXPECT_EQ(gpt2().vocab_size(), 50257);
  EXPECT_EQ(gpt2().special_ids().eod, 50256);
  EXPECT_EQ(gpt2().name(), "gpt2");
}

TEST(Gpt2Tokenizer, GoldensOfHuggingFaceAreEncoded) {
  std::ifstream file(std::string(TRIDENT_GOLDENS) + "/gpt2.jsonl");
  ASSERT_TRUE(file.good());
  const auto encoder = gpt2().new_encoder();  // one encoder for all, so that its cache is in play
  std::string line, all_code_points_hash;
  int rows = 0, ill_formed = 0;
  while (std::getline(file, line)) {
    const auto row = nlohmann::json::parse(line);
    if (row[0] == "all code points") {
      all_code_points_hash = row[1];
      continue;
    }
    const bool is_hex = row.size() == 3;
    const std::string text = is_hex ? bytes_from_hex(row[2]) : row[0].get<std::string>();
    Ids ids;
    encoder->encode(text, &ids);
    ASSERT_EQ(ids, row[1].get<Ids>()) << line;
    std::string readable = text;
    if (is_hex) replace_ill_formed(text, &readable);
    EXPECT_EQ(gpt2().decode(ids), readable) << line;
    ++rows;
    ill_formed += readable != text;
  }
  EXPECT_GE(rows, 2000);
  EXPECT_GE(ill_formed, 200);

  std::uint64_t hash = 0xCBF29CE484222325u;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string s = test::utf8(c);
    Ids ids;
    encoder->encode("a" + s + " " + s + "1" + s + "  " + s + "\n", &ids);
    for (const std::int32_t id : ids) hash = (hash ^ static_cast<std::uint64_t>(id)) * 0x100000001B3u;
  }
  EXPECT_EQ(fmt::format("{:016x}", hash), all_code_points_hash);
}

// Each line with added tokens is followed by texts of the tokenizer that has them.
TEST(Gpt2Tokenizer, AddedTokensAreCutOutAsHuggingFaceDoes) {
  const std::string vocab = read_file(TRIDENT_GPT2_FOLDER "/vocab.json"), merges = read_file(TRIDENT_GPT2_FOLDER "/merges.txt");
  std::ifstream file(std::string(TRIDENT_GOLDENS) + "/added_tokens.jsonl");
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Encoder> encoder;
  int rows = 0;
  for (std::string line, added; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row[0].is_object()) {
      encoder.reset();
      std::vector<AddedToken> tokens;
      for (const auto& t : row)
        tokens.push_back({t["content"], t["id"], t["single_word"], t["lstrip"], t["rstrip"], t["normalized"]});
      tokenizer = make_gpt2_style("added", {vocab, merges, "v", "m"}, tokens);
      encoder = tokenizer->new_encoder();
      EXPECT_NE(tokenizer->fingerprint(), gpt2().fingerprint());
      added = line;
      continue;
    }
    Ids ids;
    encoder->encode(row[0].get<std::string>(), &ids);
    ASSERT_EQ(ids, row[1].get<Ids>()) << line << " with " << added;
    std::string readable = tokenizer->decode(ids);
    if (valid_prefix(readable) != readable.size()) replace_ill_formed(tokenizer->decode(ids), &readable);
    EXPECT_EQ(readable, row[2].get<std::string>()) << line << " with " << added;
    ++rows;
  }
  EXPECT_GE(rows, 200);
}

TEST(Gpt2Tokenizer, CountsEachIllFormedSequenceOnce) {
  const auto encoder = gpt2().new_encoder();
  Ids ids;
  encoder->encode("plain", &ids);
  EXPECT_EQ(encoder->num_replaced(), 0);
  encoder->encode("\xF0\x9F\x98", &ids);  // a truncated emoji: one maximal subsequence
  EXPECT_EQ(encoder->num_replaced(), 1);
  encoder->encode("\xED\xA0\x80 \xFF", &ids);  // a surrogate: three; a byte that never occurs: one
  EXPECT_EQ(encoder->num_replaced(), 5);
}

// Pieces of any length and of any number of ids, kept in this cache or in that, are encoded as a new encoder does.
TEST(Gpt2Tokenizer, PiecesThatComeAgainGetTheSameIds) {
  const auto encoder = gpt2().new_encoder();
  for (int round = 0; round < 3; ++round)
    for (std::size_t size = 1; size <= 40; ++size)
      for (const std::string_view unit : {"a", "zq", "\x01\x02", "Qxj"}) {
        std::string text;
        while (text.size() < size) text += unit;
        Ids ids;
        encoder->encode(text, &ids);
        EXPECT_EQ(ids, gpt2().encode(text)) << in_quotes(text) << " in round " << round;
      }
}

TEST(Gpt2Tokenizer, AppendsToWhatIsThere) {
  const auto encoder = gpt2().new_encoder();
  Ids ids{7};
  encoder->encode("", &ids);
  EXPECT_EQ(ids, Ids{7});
  encoder->encode(" the", &ids);
  EXPECT_EQ(ids, (Ids{7, 262}));
}

TEST(Gpt2Tokenizer, EncodersOfOneTokenizerWorkInParallel) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format("word{} and more text, {}\n", i * 7919, i);
  const Ids expected = gpt2().encode(text);
  std::vector<Ids> got(3);
  std::vector<std::thread> threads;
  for (Ids& ids : got) threads.emplace_back([&] { ids = gpt2().encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, expected);
}

TEST(Gpt2Tokenizer, DecodesEveryTokenAndRefusesOthers) {
  for (std::int32_t id = 0; id < gpt2().vocab_size(); ++id) ASSERT_FALSE(gpt2().decode(Ids{id}).empty()) << id;
  EXPECT_EQ(gpt2().decode({}), "");
  expect_error<DataError>([] { gpt2().decode(Ids{50257}); }, {"50257", "gpt2", "50256"});
  expect_error<DataError>([] { gpt2().decode(Ids{-1}); }, {"-1", "vocabulary"});
}

TEST(Utf8, ValidPrefixEndsBeforeTheFirstIllFormedByte) {
  EXPECT_EQ(valid_prefix(""), 0u);
  EXPECT_EQ(valid_prefix("12345678\xC3\xA9"), 10u);
  EXPECT_EQ(valid_prefix("1234567\xC3"), 7u);
  EXPECT_EQ(valid_prefix("\xC0\x80"), 0u);
  EXPECT_EQ(valid_prefix("\xF4\x90\x80\x80"), 0u);
  EXPECT_EQ(valid_prefix("\xF4\x8F\xBF\xBF"), 4u);
}

// Both loops against the definition: rescan for the lowest rank, leftmost, until nothing merges.
TEST(Merger, EqualsTheRescanDefinition) {
  std::uint64_t state = 1;
  const auto draw = [&](std::int32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 300; ++round) {
    MergeTable table(40);  // rule r makes token 4 + r out of older tokens, as training does
    for (std::int32_t rank = 0; rank < 40; ++rank) table.insert(draw(4 + rank), draw(4 + rank), {rank, 4 + rank});
    Ids symbols;
    for (int i = draw(60); i >= 0; --i) symbols.push_back(draw(4));
    Ids slow = symbols;
    while (true) {
      std::size_t best = slow.size();
      for (std::size_t i = 0; i + 1 < slow.size(); ++i) {
        const MergeRule rule = table.find(slow[i], slow[i + 1]);
        if (rule.rank >= 0 && (best == slow.size() || rule.rank < table.find(slow[best], slow[best + 1]).rank)) best = i;
      }
      if (best == slow.size()) break;
      slow[best] = table.find(slow[best], slow[best + 1]).result;
      slow.erase(slow.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    Merger merger;
    merger.merge(table, &symbols);
    EXPECT_EQ(symbols, slow) << "round " << round;
  }
}

// Files whose entries all have one hash of a function that is known, as that of the standard library is.
TEST(Tables, CraftedEntriesDoNotMeet) {
  const double begin = thread_cpu_seconds();
  constexpr std::uint64_t kFibonacci = 0x9E3779B97F4A7C15u, kMurmur = 0xC6A4A7935BD1E995u;
  const auto inverse = [](std::uint64_t odd) {
    std::uint64_t x = odd;
    for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
    return x;
  };
  MergeTable table(100'000);
  std::int32_t inserted = 0;
  for (std::uint64_t small = 1; inserted < 100'000; ++small) {  // the products are small, so that their top bits are 0
    const std::uint64_t pair = small * inverse(kFibonacci);
    if ((pair & 0x8000000080000000u) != 0) continue;
    table.insert(static_cast<std::int32_t>(pair >> 32), static_cast<std::int32_t>(pair & 0xFFFFFFFF), {inserted++, 1});
  }
  TokenTexts texts;
  std::size_t hash_before = 0;
  const auto folded = [](std::uint64_t x) { return x ^ x >> 47; };
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const std::uint64_t state = (0xC70F6907u ^ 16 * kMurmur ^ folded(i * kMurmur) * kMurmur) * kMurmur;
    const std::uint64_t words[] = {i, folded(state * inverse(kMurmur)) * inverse(kMurmur)};
    const std::string_view text(reinterpret_cast<const char*>(words), sizeof words);
    const std::size_t hash = std::hash<std::string_view>()(text);
    EXPECT_EQ(hash, i == 0 ? hash : hash_before);
    hash_before = hash;
    EXPECT_TRUE(texts.add(text, i));
    EXPECT_EQ(texts.find(text), static_cast<std::int32_t>(i));
  }
  EXPECT_LT(thread_cpu_seconds() - begin, 5);  // a minute where they all meet
}

// One reader of ids for prompts, samples and evaluations.
TEST(TokenIds, AreReadWithSpacesOrCommas) {
  for (const char* text : {"5 17 2", "5,17,2", " 5, 17 ,2,", "5\n17\t2"})
    EXPECT_EQ(parse_token_ids(text, "--ids"), (Ids{5, 17, 2})) << text;
  EXPECT_EQ(parse_token_ids("", "--ids"), Ids());
  EXPECT_EQ(parse_token_ids("2147483647", "--ids"), Ids{2147483647});
  for (const char* word : {"x", "5x", "0x5", "1.5", "2147483648", "+5", "5;6"}) {
    try {
      parse_token_ids(std::string("7 ") + word, "--ids");
      ADD_FAILURE() << word;
    } catch (const ConfigError& error) {
      expect_parts(error.what(), {"\"" + std::string(word) + "\" is no token id"});
      EXPECT_EQ(std::string(error.what()).find("--ids = "), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace trident
