// Files of ranks: tiktoken's, and Mistral's tekken.json.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

std::string ranks_of_bytes() {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  for (unsigned b = 0; b < 256; ++b) lines += fmt::format("{}{}== {}\n", kDigits[b >> 2], kDigits[(b & 3) << 4], b);
  return lines;
}

// Their content says what files are, and what ranks lack is asked for.
TEST(RankFiles, RanksNeedAPatternAndControlTokens) {
  const TemporaryFolder folder;
  const std::string model = folder / "tiktoken.model", special = folder / "special.json";
  write_file(model, ranks_of_bytes() + "YWI= 256\nYWJj 300\n");  // ab, abc
  write_file(special, R"({"<|end|>": 400})");
  const auto load = [&](std::optional<std::string> pattern, std::optional<std::string> file, const std::string& name) {
    return load_tokenizer(
        {.name_or_path = name, .key = "--tokenizer", .pattern = std::move(pattern), .special_file = std::move(file)});
  };
  for (const std::string& name : {model, folder.path()}) {
    const auto tokenizer = load("cl100k", special, name);
    EXPECT_EQ(tokenizer->encode("abc ab<|end|>"), (std::vector<std::int32_t>{300, 32, 256, 400}));
    EXPECT_EQ(tokenizer->vocab_size(), 401);
    EXPECT_EQ(tokenizer->find("<|end|>"), 400);
    EXPECT_TRUE(tokenizer->is_control(400));
    EXPECT_EQ(load("[a-z]", special, name)->encode("abc"), (std::vector<std::int32_t>{97, 98, 99}));
  }
  expect_error<DataError>([&] { load({}, {}, model); }, {model, "--pattern NAME|TEXT", "--special FILE"});
  expect_error<DataError>([&] { load("cl100k", {}, model); }, {model, "which control tokens", "give --special FILE"});
  expect_error<DataError>([&] { load({}, special, model); }, {model, "how text is split", "give --pattern"});
  expect_error<DataError>([&] { load("(", special, model); }, {"--pattern"});
  expect_error<ConfigError>([&] { load("cl10k", special, model); }, {"--pattern = \"cl10k\"", "no pattern of this name", "cl100k"});
  write_file(folder / "tokenizer_config.json",
             R"({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|end|>", "added_tokens_decoder":
      {"400": {"content": "<|end|>", "special": true}}})");
  const auto qwen = load({}, {}, folder.path());
  EXPECT_EQ(qwen->encode("e\u0301<|end|>"), (std::vector<std::int32_t>{0xC3, 0xA9, 400}));
  EXPECT_EQ(qwen->special_ids().eod, 400);
  std::vector<std::size_t> ends;  // what NFC joined ends together
  qwen->encode("ae\u0301b<|end|>c", {.ends = &ends});
  EXPECT_EQ(ends, (std::vector<std::size_t>{1, 4, 4, 5, 12, 13}));
  for (const auto& [line, said] : {std::pair{"YWI= 301", "occurs twice"},
                                   {"YWJjZA== 300", "id 300 occurs twice"},
                                   {"YWJjZA=", "is not base64"},
                                   {"YWJjZA== 1048576", "is not base64"},
                                   {"!WJj 301", "is not base64"},
                                   {"YWJj  301", "is not base64"}}) {
    write_file(model, ranks_of_bytes() + "YWI= 256\nYWJj 300\n" + line);
    expect_error<DataError>([&] { load("cl100k", special, model); }, {model + ":259", said});
  }
  write_file(model, ranks_of_bytes().substr(7));
  expect_error<DataError>([&] { load("cl100k", special, model); }, {model, "byte 0x00"});
  expect_error<ConfigError>([&] { load("cl100k", {}, "gpt2"); }, {"--pattern", "gpt2"});
}

// Control tokens first, then as many as there is room for.
TEST(RankFiles, TekkenIsRead) {
  const TemporaryFolder folder;
  nlohmann::json json = {{"config", {{"pattern", "[a-z]+|[^a-z]"}, {"num_vocab_tokens", 259}, {"default_vocab_size", 262},
                                     {"default_num_special_tokens", 4}, {"version", "v3"}}}};
  const std::string lines = ranks_of_bytes() + "YWI= 256\nYWJj 257\nYmM= 258\n";
  for (std::size_t at = 0, rank = 0; at < lines.size(); at = lines.find('\n', at) + 1, ++rank)
    json["vocab"].push_back({{"rank", rank}, {"token_bytes", lines.substr(at, lines.find(' ', at) - at)}, {"token_str", nullptr}});
  write_file(folder / "tekken.json", json.dump());
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), 262);
  EXPECT_EQ(tokenizer->encode("abc bc"),
            (std::vector<std::int32_t>{1, 261, 4 + 32, 4 + 98, 4 + 99}));  // "bc" is the first without room
  EXPECT_EQ(tokenizer->special_ids().eod, 2);
  EXPECT_EQ(tokenizer->find("[INST]"), 3);
  json["special_tokens"] = nlohmann::json::parse(
      R"([{"rank": 2, "token_str": "<s>"}, {"rank": 0, "token_str": "</s>"}, {"rank": 1, "token_str": "<pad>"}])");
  write_file(folder / "tekken.json", json.dump());
  EXPECT_EQ(load_tokenizer(folder.path())->encode("a"), (std::vector<std::int32_t>{2, 4 + 97}));
  EXPECT_EQ(load_tokenizer(folder.path())->special_ids().eod, 0);
  EXPECT_EQ(load_tokenizer(folder.path())->find("<SPECIAL_3>"), 3);
  for (const int rank : {4, 0}) {
    json["special_tokens"][2]["rank"] = rank;
    write_file(folder / "tekken.json", json.dump());
    expect_error<DataError>([&] { load_tokenizer(folder.path()); }, {fmt::format("special_tokens[2].rank is \"{}\"", rank)});
  }
  json.erase("special_tokens");
  json["config"]["default_vocab_size"] = 264;
  write_file(folder / "tekken.json", json.dump());
  expect_error<DataError>([&] { load_tokenizer(folder.path()); }, {"tekken.json:1:", "config.default_vocab_size is \"264\""});
  json["config"]["default_vocab_size"] = 262;
  json["vocab"][7]["token_bytes"] = "?";
  write_file(folder / "tekken.json", json.dump());
  expect_error<DataError>([&] { load_tokenizer(folder.path()); }, {"vocab[7]", "base64"});
}

}  // namespace
}  // namespace trident
