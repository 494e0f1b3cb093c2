// Vocabularies from folders: good ones, and every way they can be damaged.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/json_reader.h"
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

TEST(TokenizerFiles, ASmallVocabularyIsRead) {
  const auto tokenizer = make(small_vocab().dump(), "#version: 0.2\r\na b\r\nab c\r\n");
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->eod(), 258);
  EXPECT_EQ(tokenizer->encode("abc"), std::vector<std::int32_t>{257});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xabcab \n\xC3\xA9")), "xabcab \n\xC3\xA9");
}

// Files beside vocab.json and merges.txt that say there is more to it, as Qwen's older folders have.
TEST(TokenizerFiles, OtherTokenizersAreRefused) {
  const TemporaryFolder folder;
  write_file(folder / "vocab.json", small_vocab().dump());
  write_file(folder / "merges.txt", "a b\nab c\n");
  const auto load = [&] { load_tokenizer(folder.path()); };
  const std::string config = folder / "tokenizer_config.json", added = folder / "added_tokens.json";
  for (const char* ours : {"{}", R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": false})",
                           R"({"tokenizer_class": "GPT2TokenizerFast"})", "[]"}) {
    write_file(config, ours);
    write_file(added, R"({"<|endoftext|>": 258})");
    EXPECT_NO_THROW(load()) << ours;
  }
  write_file(config, R"({"tokenizer_class": "Qwen2Tokenizer"})");
  expect_error<DataError>(load, {"tokenizer_config.json", "tokenizer_class", "Qwen2Tokenizer", "GPT-2"});
  write_file(config, R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})");
  expect_error<DataError>(load, {"tokenizer_config.json", "add_prefix_space", "true"});
  write_file(config, R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true})");
  expect_error<DataError>(load, {"tokenizer_config.json", "add_bos_token", "true"});
  write_file(config, "{");
  expect_error<DataError>(load, {"tokenizer_config.json"});
  write_file(config, "{}");
  write_file(added, R"({"<|im_start|>": 260, "[PAD]": 259, "<|endoftext|>": 258})");
  const auto encoded = [&](const std::string& text) { return load_tokenizer(folder.path())->encode(text); };
  EXPECT_EQ(encoded("abc<|endoftext|>[PAD] <|im_start|>"), (std::vector<std::int32_t>{257, 258, 259, 32, 260}));
  write_file(added, R"({"<|endoftext|>": 258, "<|im_start|>": 300})");
  expect_error<DataError>(load, {"\"<|im_start|>\" has id 300, expected 259"});
  write_file(config, R"({"added_tokens_decoder": {"259": {"content": "<|im_start|>", "lstrip": true, "special": true}}})");
  EXPECT_EQ(encoded("abc  <|im_start|><|endoftext|>"), (std::vector<std::int32_t>{257, 259, 258}));
  write_file(config, R"({"added_tokens_decoder": {"x": {"content": "<|im_start|>"}}})");
  expect_error<DataError>(load, {"tokenizer_config.json"});
  write_file(config, "{}");
  write_file(added, "{}");
  EXPECT_NO_THROW(load());
  write_file(folder / "tokenizer.model", "\n\x0e");
  expect_error<DataError>(load, {"tokenizer.model", "SentencePiece", "remove the one"});
}

TEST(TokenizerFiles, UnknownNameOrFolder) {
  expect_error<ConfigError>([] { load_tokenizer("gpt3"); }, {"tokenizer", "gpt3", "\"gpt2\""});
  const TemporaryFolder folder;
  write_file(folder / "vocab.json", "{}");
  expect_error<ConfigError>([&] { load_tokenizer(folder.path()); }, {folder.path(), "merges.txt"});
}

TEST(TokenizerFiles, ADamagedVocabularyIsRefused) {
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

TEST(TokenizerFiles, DamagedMergesAreRefused) {
  const std::string vocab = small_vocab().dump();
  expect_error<DataError>([&] { make(vocab, "#version\na b\na  b\n"); }, {"m.txt", "line 3", "left right"});
  expect_error<DataError>([&] { make(vocab, "ab\n"); }, {"m.txt", "line 1"});
  expect_error<DataError>([&] { make(vocab, "a z\n"); }, {"m.txt", "line 1", "a z", "v.json"});
  expect_error<DataError>([&] { make(vocab, "a bcd"); }, {"m.txt", "not in v.json"});
}

// GPT-2's tokenizer.json in small, as the tokenizers library writes it.
nlohmann::json gpt2_style_json() {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {{{"id", 258},
             {"content", "<|endoftext|>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", true},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
          {"post_processor", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}}},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", small_vocab()},
            {"merges", {"a b", "ab c"}}}}};
}

class TokenizerJson : public ::testing::Test {
 protected:
  TemporaryFolder folder_;

  void put_pair() {
    write_file(folder_ / "vocab.json", small_vocab().dump());
    write_file(folder_ / "merges.txt", "#version: 0.2\na b\nab c\n");
  }
  std::unique_ptr<Tokenizer> load(const nlohmann::json& json) {
    write_file(folder_ / "tokenizer.json", json.dump());
    return load_tokenizer(folder_.path());
  }
  void refuse(const std::string& pointer, const nlohmann::json& value, const std::vector<std::string>& parts) {
    nlohmann::json json = gpt2_style_json();
    json[nlohmann::json::json_pointer(pointer)] = value;
    SCOPED_TRACE(pointer);
    expect_error<DataError>([&] { load(json); }, {folder_ / "tokenizer.json"});
    expect_error<DataError>([&] { load(json); }, parts);
  }
};

TEST_F(TokenizerJson, Gpt2StyleIsRead) {
  const std::string fingerprint = load(gpt2_style_json())->fingerprint();  // alone
  EXPECT_EQ(load_tokenizer(folder_.path())->encode("abc"), std::vector<std::int32_t>{257});
  put_pair();
  EXPECT_EQ(load(gpt2_style_json())->fingerprint(), fingerprint);  // beside the two files
  nlohmann::json json = gpt2_style_json();
  json["model"]["merges"] = nlohmann::json::parse(R"([["a", "b"], ["ab", "c"]])");  // as newer versions write them
  for (const char* key : {"type", "dropout", "byte_fallback", "ignore_merges"}) json["model"].erase(key);
  json["pre_tokenizer"].erase("use_regex");  // as older ones do
  json["post_processor"] = nullptr;
  EXPECT_EQ(load(json)->fingerprint(), fingerprint);
  remove_file(folder_ / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(folder_.path())->fingerprint(), fingerprint);  // the two files alone
}

// With the two files beside it, which alone would be tokenized as GPT-2 does it.
TEST_F(TokenizerJson, WhatSplitsOtherwiseIsRefused) {
  put_pair();
  // Llama 3 and Qwen.
  refuse("/pre_tokenizer",
         {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", "(?i:'s|'t)|\\p{N}{1,3}"}}}, {"behavior", "Isolated"}, {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}},
         {"pre_tokenizer is \"Sequence\"", "\"ByteLevel\" with its own pattern", "splits as GPT-2's does"});
  for (const char* normalizer : {R"({"type": "NFC"})", R"({"type": "Prepend", "prepend": "a"})", R"({"type": "Prepend"})",
                                 R"({"type": "Replace", "pattern": {"String": "a"}, "content": "b"})",
                                 R"({"type": "Replace", "pattern": {"Regex": "a."}, "content": "a."})",
                                 R"({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": false,
                                     "strip_accents": true, "lowercase": false})"}) {
    const nlohmann::json value = nlohmann::json::parse(normalizer);
    refuse("/normalizer", value, {"normalizer is \"" + value["type"].get<std::string>() + "\"", "only null"});
    refuse("/normalizer", {{"type", "Sequence"}, {"normalizers", {value}}}, {"normalizer is \"", "only null"});
  }
  refuse("/pre_tokenizer", nullptr, {"pre_tokenizer is \"null\""});  // Llama 2
  refuse("/pre_tokenizer/use_regex", false, {"pre_tokenizer.use_regex is false"});
  refuse("/pre_tokenizer/add_prefix_space", true, {"pre_tokenizer.add_prefix_space is true"});
  refuse("/pre_tokenizer/add_prefix_space", "no", {"pre_tokenizer.add_prefix_space is true"});
  refuse("/model/type", "Unigram", {"model is \"Unigram\"", "\"BPE\""});
  refuse("/model", nullptr, {"model is \"null\""});
  refuse("/model/ignore_merges", true, {"model.ignore_merges is true"});
  refuse("/model/dropout", 0.1, {"model.dropout is", "0.1"});
  refuse("/model/end_of_word_suffix", "</w>", {"model.end_of_word_suffix is", "</w>"});
  refuse("/model/vocab", nlohmann::json::array(), {"model.vocab is not there"});
  refuse("/model/merges", nullptr, {"model.merges is not there"});
  for (const char* merge :
       {R"("ab")", R"("")", R"("a b c")", R"(" a b")", R"("a\nb c")", R"("a b\r")", R"(["a", "b", "c"])", R"(["a"])",
        R"(["a b", "c"])", "[]", "7", "null", R"({"a": "b"})", R"(["a", 7])"})
    refuse("/model/merges", {"a b", nlohmann::json::parse(merge), "ab c"},
           {"tokenizer.json:1:",
            fmt::format(": {} in model.merges is no merge of two tokens; the file is damaged; copy it again",
                        to_json_text(parse_json(merge, "x")))});
  refuse("/model/merges", {"a b"}, {"model.vocab or model.merges differ from vocab.json and merges.txt", "one tokenizer"});
  refuse("/added_tokens/1", {{"id", 260}, {"content", "<|im_start|>"}}, {"added token \"<|im_start|>\" has id 260, expected 259"});
  refuse("/added_tokens/1", {{"id", 1LL << 32 | 259}, {"content", "[PAD]"}}, {"added_tokens is with", "[PAD]"});
  refuse("/added_tokens/1", {{"id", 259}}, {"added_tokens is with", "content and id"});
  refuse("/added_tokens/1", {{"id", 258}, {"content", "<|endoftext|>"}}, {"\"<|endoftext|>\" occurs twice"});
  refuse("/added_tokens/0/id", 3, {"added token \"<|endoftext|>\" has id 3, expected 258"});
  refuse("/added_tokens", nlohmann::json::array(), {"added_tokens is without \"<|endoftext|>\""});
  write_file(folder_ / "tokenizer.json", "{\"model\": ");
  expect_error<DataError>([&] { load_tokenizer(folder_.path()); }, {"tokenizer.json:1", "copy it again"});
}

// By what it does to a text, whatever its type.
TEST_F(TokenizerJson, AComponentThatDoesNothingIsAsNone) {
  const std::string fingerprint = load(gpt2_style_json())->fingerprint();
  const char* const kText = R"({"Sequence": {"id": "A", "type_id": 0}})";
  const std::string splitting = R"j({"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}})j";
  const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true)";
  const auto templated = [](const std::string& single, const std::string& special) {
    return R"({"type": "TemplateProcessing", "single": [)" + single + R"(], "pair": [], "special_tokens": {)" + special + "}}";
  };
  const std::pair<const char*, std::string> alike[] = {
      {"/post_processor", templated(kText, "")},
      {"/post_processor", templated(kText, R"("X": {"id": "X", "ids": [3], "tokens": ["X"]})")},
      {"/post_processor", templated(std::string(kText) + R"(, {"SpecialToken": {"id": "X", "type_id": 0}})",
                                    R"("X": {"id": "X", "ids": [], "tokens": []})")},
      {"/post_processor", R"({"type": "Sequence", "processors": []})"},
      {"/post_processor", R"({"type": "Sequence", "processors": [)" + bytes + "}, " + templated(kText, "") + "]}"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": []})"},
      {"/normalizer", R"({"normalizers": []})"},
      {"/normalizer", R"({"type": "Prepend", "prepend": ""})"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": "ab"}, "content": "ab"})"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []},
                                                              {"type": "Prepend", "prepend": ""}]})"},
      {"/normalizer", R"({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": false, "strip_accents": null,
                          "lowercase": false})"},
      {"/normalizer", R"({"type": "Strip", "strip_left": false, "strip_right": false})"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [)" + bytes + "}]}"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [)" + splitting + ", " + bytes + R"(, "use_regex": false}]})"},
      {"/model/dropout", "0.0"},
      {"/model/byte_fallback", "true"},
      {"/model/unk_token", R"("<|endoftext|>")"},
      {"/truncation", R"({"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"})"},
  };
  for (const auto& [pointer, value] : alike) {
    nlohmann::json json = gpt2_style_json();
    json[nlohmann::json::json_pointer(pointer)] = nlohmann::json::parse(value);
    EXPECT_EQ(load(json)->fingerprint(), fingerprint) << pointer << value;
  }
  const std::string begin = R"({"SpecialToken": {"id": "<s>", "type_id": 0}}, )",
                    known = R"("<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]})";
  const std::pair<std::string, std::string> adding[] = {
      {templated(begin + kText, known), "\"TemplateProcessing\" adds \"<s>\" to every text"},
      {templated(begin + kText, ""), "adds \"<s>\""},
      {R"({"type": "Sequence", "processors": [)" + bytes + "}, " + templated(begin + kText, known) + "]}", "adds \"<s>\""},
      {templated("", ""), "has every text 0 times"},
      {templated(std::string(kText) + ", " + kText, ""), "has every text 2 times"},
      {R"({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]})", "\"RobertaProcessing\" may add tokens"},
  };
  for (const auto& [value, said] : adding)
    refuse("/post_processor", nlohmann::json::parse(value), {"post_processor ", said, "set post_processor to null"});
  nlohmann::json added = gpt2_style_json();
  added["added_tokens"].push_back({{"id", 259}, {"content", "[PAD]"}, {"lstrip", true}});
  const auto tokenizer = load(added);
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->encode("abc [PAD]abc"), (std::vector<std::int32_t>{257, 259, 257}));
  put_pair();
  EXPECT_EQ(load(added)->fingerprint(), tokenizer->fingerprint());
}

// Garbage may be refused, but only by a DataError.
TEST_F(TokenizerJson, MutatedFilesAreReadOrRefused) {
  const std::string good = gpt2_style_json().dump();
  std::uint64_t state = 7;
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>((state = state * 6364136223846793005u + 1) >> 33) % n; };
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    for (std::size_t k = 0; k <= draw(3); ++k) text[draw(text.size())] = static_cast<char>(draw(256));
    if (draw(4) == 0) text.resize(draw(text.size()));
    write_file(folder_ / "tokenizer.json", text);
    try {
      load_tokenizer(folder_.path())->encode("abcab");
    } catch (const DataError&) {
    }
  }
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
