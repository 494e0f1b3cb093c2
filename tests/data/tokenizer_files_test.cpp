// Vocabularies from folders: good ones, and every way they can be damaged.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

// 256 bytes, "ab", "abc", end of text; bytes spelled as the format wants.
nlohmann::json small_vocab() {
  nlohmann::json vocab;
  std::int32_t id = 0;
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const char32_t c = printable ? b : next++;
    const std::string spelling = c < 0x80 ? std::string(1, static_cast<char>(c))
                                          : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    vocab[spelling] = id++;
  }
  vocab["ab"] = id++;
  vocab["abc"] = id++;
  vocab["<|endoftext|>"] = id++;
  return vocab;
}

std::unique_ptr<Tokenizer> make(const std::string& vocab, const std::string& merges) {
  return make_byte_level_bpe(
      {.name = "small", .vocab_json = vocab, .merges_txt = merges, .vocab_source = "v.json", .merges_source = "m.txt"});
}

TEST(TokenizerFiles, AFolderEqualsTheBuiltInVocabulary) {
  const auto folder = load_tokenizer(TRIDENT_GPT2_FOLDER);
  const auto built_in = load_tokenizer("gpt2");
  EXPECT_EQ(folder->name(), TRIDENT_GPT2_FOLDER);
  EXPECT_EQ(folder->vocab_size(), built_in->vocab_size());
  const std::string text = "In the beginning God created the heaven and the earth.";
  EXPECT_EQ(folder->encode(text), built_in->encode(text));
}

TEST(TokenizerFiles, SmallVocabulary) {
  const auto tokenizer = make(small_vocab().dump(), "#version: 0.2\r\na b\r\nab c\r\n");
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->eod(), 258);
  EXPECT_EQ(tokenizer->encode("abc"), std::vector<std::int32_t>{257});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xabcab \n\xC3\xA9")), "xabcab \n\xC3\xA9");
}

TEST(TokenizerFiles, UnknownNameOrFolder) {
  expect_error<ConfigError>([] { load_tokenizer("gpt3"); }, {"tokenizer", "gpt3", "\"gpt2\""});
  const TemporaryFolder folder;
  write_file(folder / "vocab.json", "{}");
  expect_error<ConfigError>([&] { load_tokenizer(folder.path()); }, {folder.path(), "merges.txt"});
}

TEST(TokenizerFiles, DamagedVocabulary) {
  const auto with = [](auto change) {
    nlohmann::json vocab = small_vocab();
    change(vocab);
    return vocab.dump();
  };
  expect_error<DataError>([] { make("{\"a\": 1", ""); }, {"v.json", "not a JSON object"});
  expect_error<DataError>([] { make("[1]", ""); }, {"v.json", "not a JSON object"});
  expect_error<DataError>([] { make("", ""); }, {"v.json", "not a JSON object"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = "x"; }), ""); }, {"v.json", "\"ab\"", "id \"x\""});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = 259; }), ""); }, {"v.json", "259", "0 .. 258"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = -1; }), ""); }, {"v.json", "-1"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = 1.5; }), ""); }, {"v.json", "1.5"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = 3; }), ""); }, {"v.json", "id 3 occurs twice"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["zz"] = v["a"]; v.erase("a"); }), ""); }, {"v.json", "byte 0x61"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["zz"] = 258; v.erase("<|endoftext|>"); }), ""); }, {"<|endoftext|>"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["\u4e2d"] = 259; }), ""); }, {"v.json", "stands for no byte"});
}

TEST(TokenizerFiles, DamagedMerges) {
  const std::string vocab = small_vocab().dump();
  expect_error<DataError>([&] { make(vocab, "#version\na b\na  b\n"); }, {"m.txt", "line 3", "left right"});
  expect_error<DataError>([&] { make(vocab, "ab\n"); }, {"m.txt", "line 1"});
  expect_error<DataError>([&] { make(vocab, "a z\n"); }, {"m.txt", "line 1", "a z", "v.json"});
  expect_error<DataError>([&] { make(vocab, "a bcd"); }, {"m.txt", "not in v.json"});
}

// Garbage may be refused, but only by a DataError.
TEST(TokenizerFiles, MutatedFilesAreReadOrRefused) {
  const std::string vocab = small_vocab().dump();
  const std::string merges = "a b\nab c\n";
  std::uint64_t state = 5;
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>((state = state * 6364136223846793005u + 1) >> 33) % n; };
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string v = vocab, m = merges;
    std::string& victim = round % 2 == 0 ? v : m;
    for (std::size_t k = 0; k <= draw(3); ++k) victim[draw(victim.size())] = static_cast<char>(draw(256));
    if (draw(4) == 0) victim.resize(draw(victim.size()));
    try {
      make(v, m)->encode("abcab\xFF");
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace trident
