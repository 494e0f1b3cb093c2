// Vocabularies from folders: good ones, and every way they can be damaged.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/data/gpt2_style.h"
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
  return make_gpt2_style("small", {vocab, merges, "v.json", "m.txt"});
}

TEST(TokenizerFiles, AFolderEqualsTheBuiltInVocabulary) {
  const auto folder = load_tokenizer(TRIDENT_GPT2_FOLDER);
  const auto built_in = load_tokenizer("gpt2");
  EXPECT_EQ(folder->name(), TRIDENT_GPT2_FOLDER);
  EXPECT_EQ(folder->vocab_size(), built_in->vocab_size());
  EXPECT_EQ(folder->encode("In the beginning God created"), built_in->encode("In the beginning God created"));
}

TEST(TokenizerFiles, BuiltInTokenizersAreFoldersToo) {
  for (const std::string name : {"gpt2", "bytes"}) {
    const TemporaryFolder folder;
    for (const auto& [file, text] : files_of_built_in(name)) write_file(folder / file, text);
    const auto read = load_tokenizer(folder.path()), built_in = load_tokenizer(name);
    EXPECT_EQ(read->fingerprint(), built_in->fingerprint()) << name;
    EXPECT_EQ(read->special_ids().eod, built_in->special_ids().eod) << name;
  }
}

TEST(TokenizerFiles, ASmallVocabularyIsRead) {
  const auto tokenizer = make(small_vocab().dump(), "#version: 0.2\r\na b\r\nab c\r\n");
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->special_ids().eod, 258);
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
  expect_error<DataError>(load, {"tokenizer_config.json", "tokenizer_class", "Qwen2Tokenizer", "GPT2Tokenizer"});
  write_file(config, R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})");
  expect_error<DataError>(load, {"tokenizer_config.json", "add_prefix_space", "true"});
  write_file(config, R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true})");
  expect_error<DataError>(load, {"tokenizer_config.json", "add_bos_token", "true"});
  write_file(config, "{");
  expect_error<DataError>(load, {"tokenizer_config.json"});
  write_file(config, R"({"eos_token": "abc", "bos_token": {"content": "ab"}, "pad_token": "new", "chat_template": "{{'abc'}}"})");
  const SpecialIds special = load_tokenizer(folder.path())->special_ids();
  EXPECT_EQ(special.eos, std::vector<std::int32_t>{257});
  EXPECT_EQ(special.eod, 257);
  EXPECT_EQ(special.bos, 256);
  EXPECT_EQ(special.pad, 259);
  EXPECT_EQ(special.eos_in_template, "abc");
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
  expect_error<ConfigError>([&] { load_tokenizer(folder.path()); }, {folder.path(), "merges.txt", "tekken.json"});
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
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = 1 << 20; }), ""); }, {"v.json", "1048576", "0 .. 1048575"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = -1; }), ""); }, {"v.json", "-1"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = 1.5; }), ""); }, {"v.json", "1.5"});
  expect_error<DataError>([&] { make(with([](auto& v) { v["ab"] = 3; }), ""); }, {"v.json", "id 3 occurs twice"});
}

// As Hugging Face's library does it: gaps of ids, bytes that have no token, spellings that stand for no bytes.
TEST(TokenizerFiles, AVocabularyMayHaveGaps) {
  nlohmann::json vocab = small_vocab();
  vocab["zz"] = vocab["a"];
  vocab.erase("a");
  vocab["\u4e2d"] = 300;
  vocab.erase("<|endoftext|>");
  const auto tokenizer = make(vocab.dump(), "");
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_FALSE(tokenizer->special_ids().eod);
  const auto encoder = tokenizer->new_encoder();
  std::vector<std::int32_t> ids;
  encoder->encode("ba", &ids);
  EXPECT_EQ(tokenizer->decode(ids), "b");
  EXPECT_EQ(encoder->num_unknown(), 1);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{299, 300}), "\u4e2d");
  expect_error<ConfigError>([&] { tokenizer->eod_for("--append-eod", "name it"); },
                            {"--append-eod", "small", "eos_token", "name it"});
}

TEST(TokenizerFiles, DamagedMergesAreRefused) {
  const std::string vocab = small_vocab().dump();
  expect_error<DataError>([&] { make(vocab, "#version\na b\na  b\n"); }, {"m.txt:3", "left right"});
  expect_error<DataError>([&] { make(vocab, "ab\n"); }, {"m.txt:1"});
  expect_error<DataError>([&] { make(vocab, "a z\n"); }, {"m.txt:1", "a z", "the result", "v.json"});
  expect_error<DataError>([&] { make(vocab, "a bcd"); }, {"m.txt:1", "a part", "of v.json"});
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
  json["model"]["merges"] = {"#version: 0.2", "a b", "ab c"};
  EXPECT_EQ(load(json)->fingerprint(), fingerprint);
  json["model"]["merges"] = nlohmann::json::parse(R"([["a", "b"], ["ab", "c"]])");  // as newer versions write them
  for (const char* key : {"type", "dropout", "byte_fallback", "ignore_merges"}) json["model"].erase(key);
  json["pre_tokenizer"].erase("use_regex");  // as older ones do
  json["post_processor"] = nullptr;
  EXPECT_EQ(load(json)->fingerprint(), fingerprint);
  remove_file(folder_ / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(folder_.path())->fingerprint(), fingerprint);  // the two files alone
}

TEST_F(TokenizerJson, ControlTokensAreWholePiecesOnlyWhereControlTextsCount) {
  using Ids = std::vector<std::int32_t>;
  nlohmann::json json = gpt2_style_json();
  json["added_tokens"].push_back({{"id", 257}, {"content", "abc"}, {"normalized", false}, {"special", true}});
  json["normalizer"] = {{"type", "Lowercase"}};
  json["model"]["ignore_merges"] = true;
  json["model"]["merges"] = nlohmann::json::array();
  const Ids letters = load(json)->encode("A B C");
  for (const nlohmann::json& splitter : {json["pre_tokenizer"], nlohmann::json{{"type", "WhitespaceSplit"}}}) {
    json["pre_tokenizer"] = splitter;
    const std::unique_ptr<Tokenizer> tokenizer = load(json);
    const std::unique_ptr<Encoder> encoder = tokenizer->new_encoder();
    for (int i = 0; i < 2; ++i) {  // one encoder, whose pieces are kept
      Ids parsed, plain;
      encoder->encode("ABC", &parsed);
      encoder->encode("ABC", &plain, {.specials = Specials::kPlain});
      EXPECT_EQ(parsed, Ids{257});
      EXPECT_EQ(plain, (Ids{letters.front(), letters.front() + 1, letters.front() + 2}));
    }
  }
}

TEST_F(TokenizerJson, UnknownPartsAreRefusedByTheirPaths) {
  const nlohmann::json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const auto splits = [&](const nlohmann::json& part) {
    return nlohmann::json{{"type", "Sequence"}, {"pretokenizers", {bytes, part}}};
  };
  const nlohmann::json split = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto with = [](nlohmann::json json, const char* key, const nlohmann::json& value) { return json[key] = value, json; };
  refuse("/pre_tokenizer", splits(with(split, "behavior", "Sideways")),
         {"json:1:", ": pre_tokenizer.pretokenizers[1].behavior is \"Sideways\"", "MergedWithNext"});
  refuse("/pre_tokenizer", splits(with(split, "type", "Metaspace")),
         {"pre_tokenizer.pretokenizers[1].type is \"Metaspace\"", "WhitespaceSplit"});
  refuse("/pre_tokenizer", splits(with(split, "depth", 7)),
         {"pre_tokenizer.pretokenizers[1].depth is \"7\"", "no field but type, "});
  refuse("/pre_tokenizer", splits(with(split, "pattern", {{"Glob", "a"}})),
         {"pre_tokenizer.pretokenizers[1].pattern is ", "Regex or String"});
  refuse("/pre_tokenizer", splits(with(split, "pattern", {{"Regex", "(?<name>a)(b"}})), {"pre_tokenizer.pretokenizers[1].pattern"});
  refuse("/pre_tokenizer", splits(bytes), {"pre_tokenizer.pretokenizers[1].type", "one ByteLevel alone"});
  refuse("/pre_tokenizer/use_regex", "no", {"pre_tokenizer.use_regex is \"no\"", "true or false"});
  refuse("/pre_tokenizer", 7, {"pre_tokenizer is \"7\"", "an object"});
  for (const char* normalizer :
       {R"({"type": "Precompiled", "precompiled_charsmap": "AA=="})", R"({"type": "Nmt"})", R"({"type": "Prepend"})",
        R"({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": false,
                                     "strip_accents": true, "lowercase": false})"}) {
    const nlohmann::json value = nlohmann::json::parse(normalizer);
    refuse("/normalizer", value, {": normalizer."});
    refuse("/normalizer", {{"type", "Sequence"}, {"normalizers", {value}}}, {": normalizer.normalizers[0]."});
  }
  for (const char* model : {"Unigram", "WordPiece", "WordLevel"})
    refuse("/model/type", model, {fmt::format("model.type is \"{}\"", model), "only BPE"});
  refuse("/model", nullptr, {"model is \"null\""});
  refuse("/model/dropout", 0.1, {"model.dropout is", "0.1"});
  refuse("/model/window", 3, {"model.window is"});
  refuse("/model/vocab", nlohmann::json::array(), {"model.vocab is"});
  refuse("/model/merges", nullptr, {"model.merges is"});
  refuse("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}},
         {"pre_tokenizer.pattern is missing; known is an object with Regex or String"});
  refuse("/decoder", {{"type", "Metaspace"}}, {"decoder.type is \"Metaspace\"", "ByteFallback"});
  refuse("/decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "Strip"}, {"content", ""}}}}}, {"decoder.decoders[0].content"});
  // Empty texts between characters would be replaced, too.
  for (const auto& [kind, text] : {std::pair("Regex", "x*"), std::pair("String", "")}) {
    const nlohmann::json nothing = {{"type", "Replace"}, {"pattern", {{kind, text}}}, {"content", "-"}};
    refuse("/normalizer", nothing, {fmt::format("normalizer.pattern.{} is \"{}\"", kind, text), "matches no empty text"});
    refuse("/decoder", nothing, {fmt::format("decoder.pattern.{} is \"{}\"", kind, text)});
  }
  refuse("/version", "2.0", {": version is \"2.0\"; known is one of 1.0"});
  refuse("/more", 1, {": more is \"1\"", "no field but version"});
  for (const char* merge :
       {R"("ab")", R"("")", R"("a b c")", R"(" a b")", R"("a\nb c")", R"("a b\r")", R"(["a", "b", "c"])", R"(["a"])",
        R"(["a b", "c"])", "[]", "7", "null", R"({"a": "b"})", R"(["a", 7])", R"("a zz")", R"("a c")"})
    refuse("/model/merges", {"a b", nlohmann::json::parse(merge), "ab c"},
           {"tokenizer.json:1:", fmt::format(": {} in model.merges ", to_json_text(parse_json(merge, "x"))),
            "the file is damaged; copy it again"});
  refuse("/added_tokens/1", {{"id", 260}, {"content", "<|im_start|>"}}, {"added token \"<|im_start|>\" has id 260, expected 259"});
  refuse("/added_tokens/1", {{"id", 1LL << 32 | 259}, {"content", "[PAD]"}}, {"added_tokens[1] has ", "[PAD]"});
  refuse("/added_tokens/1", {{"id", 259}}, {"added_tokens[1] has ", "content and id"});
  refuse("/added_tokens/1", {{"id", 259}, {"content", "[PAD]"}, {"colour", 1}}, {"added_tokens[1].colour"});
  refuse("/added_tokens/1", {{"id", 258}, {"content", "<|endoftext|>"}}, {"\"<|endoftext|>\" occurs twice"});
  refuse("/added_tokens/0/id", 3, {"added token \"<|endoftext|>\" has id 3, expected 258"});
  write_file(folder_ / "tokenizer.json", "{\"model\": ");
  expect_error<DataError>([&] { load_tokenizer(folder_.path()); }, {"tokenizer.json:1", "copy it again"});
}

// A pattern that matches between characters parts them, as it does in Hugging Face's library; matches are joined.
TEST_F(TokenizerJson, ContiguousMatchesWithoutTextPartWhatTheyStandBetween) {
  nlohmann::json json = gpt2_style_json();
  const auto ids = [&](const char* pattern, bool invert) {
    json["pre_tokenizer"] = nlohmann::json::parse(
        R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Contiguous"},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})");
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", pattern}};
    json["pre_tokenizer"]["pretokenizers"][0]["invert"] = invert;
    return load(json)->encode("abc abab");
  };
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_EQ(load(json)->encode("abc"), (std::vector<std::int32_t>{97, 98, 99}));
  for (const bool invert : {false, true}) {
    EXPECT_EQ(ids("x*", invert), (std::vector<std::int32_t>{97, 98, 99, 32, 97, 98, 97, 98}));
    EXPECT_EQ(ids("(?:ab)?", invert), (std::vector<std::int32_t>{256, 99, 32, 256, 256}));
    EXPECT_EQ(ids("[abc]", invert), (std::vector<std::int32_t>{257, 32, 256, 256}));
  }
}

TEST_F(TokenizerJson, WithoutADecoderSpacesPartTokens) {
  nlohmann::json json = gpt2_style_json();
  json["pre_tokenizer"] = json["decoder"] = nullptr;
  json["model"]["vocab"][""] = 259;
  EXPECT_EQ(load(json)->decode(std::vector<std::int32_t>{259, 256, 97}), " ab a");
}

// Bytes of no character come out of the first decoder.
TEST_F(TokenizerJson, DecodersTakeAnyBytes) {
  nlohmann::json json = gpt2_style_json();
  const auto decoded = [&](const char* second) {
    json["decoder"] = {{"type", "Sequence"}, {"decoders", {json["decoder"], nlohmann::json::parse(second)}}};
    return load(std::exchange(json, gpt2_style_json()))->decode(std::vector<std::int32_t>{97, 32, 0xF0, 32, 98, 0xC3});
  };
  EXPECT_EQ(decoded(R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "-"})"), "a-\xF0-b\xC3");
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})"), "a \xF0 b\xC3");
}

// A line may be the whole file, and the list may stand before the vocabulary or behind it.
TEST_F(TokenizerJson, ErrorsOfMergesNameTheirColumn) {
  nlohmann::json json = gpt2_style_json();
  json["model"]["merges"] = {"a b", "zz z"};
  const std::string text = json.dump();
  expect_error<DataError>([&] { load(json); }, {fmt::format("tokenizer.json:1:{}: \"zz z\"", text.find("\"zz z\"") + 1)});
}

// Programs that read vocab.json and merges.txt would give other ids.
TEST_F(TokenizerJson, FilesBesideItMustGiveTheSameIds) {
  put_pair();
  nlohmann::json json = gpt2_style_json();
  EXPECT_NO_THROW(load(json));
  json["model"]["vocab"]["th"] = 259;
  json["model"]["merges"].push_back("t h");
  write_file(folder_ / "tokenizer.json", json.dump());
  expect_error<DataError>([&] { load_tokenizer(folder_.path()); }, {folder_ / "tokenizer.json", "th", "is the ids", "259",
                                                                    "by vocab.json and merges.txt", "remove the files"});
  json["model"]["vocab"] = small_vocab();
  json["model"]["merges"] = {"a b"};  // which nothing in the text shows
  json["model"]["vocab"].erase("abc");
  json["model"]["vocab"]["\u4e2d"] = 257;
  EXPECT_NO_THROW(load(json));
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
      {"/model/fuse_unk", "true"},
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
  nlohmann::json adds = gpt2_style_json();
  adds["post_processor"] =
      nlohmann::json::parse(R"({"type": "Sequence", "processors": [)" + bytes + "}, " + templated(begin + kText, known) + "]}");
  EXPECT_NE(load(adds)->fingerprint(), fingerprint);
  EXPECT_EQ(load(adds)->encode("abc"), (std::vector<std::int32_t>{3, 257}));
  EXPECT_EQ(load(adds)->encode("abc", {.around = Around::kLeftOut}), std::vector<std::int32_t>{257});
  const std::pair<std::string, std::string> refused[] = {
      {templated(begin + kText, ""), "post_processor.single"},
      {templated("", ""), "with the text 0 times"},
      {templated(std::string(kText) + ", " + kText, ""), "with the text 2 times"},
      {R"({"type": "Sequence", "processors": [)" + templated(begin + kText, known) + ", " + templated(kText, "") + "]}",
       "post_processor.processors[1].type is \"TemplateProcessing\"; known is one"},
      {R"({"type": "RobertaProcessing", "sep": ["</s>"], "cls": ["<s>", 0]})", "post_processor.sep is "},
      {R"({"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", -1]})", "post_processor.cls is "},
  };
  for (const auto& [value, said] : refused) refuse("/post_processor", nlohmann::json::parse(value), {said});
  nlohmann::json added = gpt2_style_json();
  added["added_tokens"].push_back({{"id", 259}, {"content", "[PAD]"}, {"lstrip", true}});
  const auto tokenizer = load(added);
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->encode("abc [PAD]abc"), (std::vector<std::int32_t>{257, 259, 257}));
  put_pair();
  EXPECT_EQ(load(added)->fingerprint(), tokenizer->fingerprint());
}

// Few bytes of a file must not ask for much time or memory.
TEST_F(TokenizerJson, HostileFilesAreRefused) {
  const nlohmann::json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaa"}};
  nlohmann::json json = gpt2_style_json();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<nlohmann::json>(40, grow)}};
  const auto tokenizer = load(json);
  expect_error<DataError>([&] { tokenizer->encode("abc"); }, {"a text grows to"});
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "b"}}}, {"content", std::string(200, '.')}};
  EXPECT_EQ(load(json)->encode("bb").size(), 400u);
  expect_error<DataError>([&] { load(json)->encode(std::string(1 << 20, 'b')); }, {"a text grows to", "67108864"});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<nlohmann::json>(65, grow)}};
  expect_error<DataError>([&] { load(json); }, {"normalizer.normalizers[64].type", "at most 64 normalizers"});
  const nlohmann::json digits = {{"type", "Digits"}, {"individual_digits", true}};
  refuse("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::vector<nlohmann::json>(65, digits)}},
         {"pre_tokenizer.pretokenizers[64].type", "at most 64 splitters"});
  json = gpt2_style_json();
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<nlohmann::json>(40, grow)}};
  expect_error<DataError>([&] { load(json); }, {"a text grows to"});
  refuse(
      "/post_processor",
      nlohmann::json::parse(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],
                                   "special_tokens": {"x": {"id": "x", "ids": [4000], "tokens": ["x"]}}})"),
      {"the post-processor adds id 4000"});
  refuse("/added_tokens/1", {{"id", 259}, {"content", std::string(5 << 20, 'x')}}, {"added tokens of more than 4194304 bytes"});
  const nlohmann::json token = {{"SpecialToken", {{"id", "x"}}}}, text = {{"Sequence", {{"id", "A"}}}};
  json = {{"type", "TemplateProcessing"}, {"single", {token, text}}};
  json["special_tokens"]["x"] = {{"id", "x"}, {"ids", std::vector<int>(65, 0)}, {"tokens", {"x"}}};
  refuse("/post_processor", json, {"post_processor.single", "at most 64 tokens around a text"});
  json["single"] = std::vector<nlohmann::json>(65, text);
  refuse("/post_processor", json, {"post_processor.single is \"65 pieces\"; known is at most 64 pieces"});
  const nlohmann::json same = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "a"}};
  refuse("/decoder", {{"type", "Sequence"}, {"decoders", std::vector<nlohmann::json>(65, same)}},
         {"decoders[64].type", "known is at most 64 decoders"});
  const nlohmann::json split = {{"type", "Split"}, {"pattern", {{"Regex", std::string(9000, 'a')}}}, {"behavior", "Isolated"}};
  refuse("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, split}}},
         {"pre_tokenizer.pretokenizers[1].pattern: more than 16384 bytes of patterns"});
  refuse("/model/continuing_subword_prefix", std::string(257, '#'),
         {"model.continuing_subword_prefix", "known is at most 256 bytes"});
  json = gpt2_style_json();
  json["normalizer"] = {{"type", "Strip"}};
  json["added_tokens"].push_back({{"id", 259}, {"content", "\n"}, {"normalized", true}});
  expect_error<DataError>([&] { load(json); }, {"make nothing of the added token \"\\n\""});
}

// Numbers and flags are those of transformers 5.23's AutoTokenizer.
TEST_F(TokenizerJson, TokensThatOtherFilesNameAreAdded) {
  const nlohmann::json json = gpt2_style_json();
  const auto encoded = [&](const std::string& config, const std::string& text) {
    write_file(folder_ / "tokenizer_config.json", config);
    return load(json)->encode(text);
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(encoded(R"({"unk_token": "<u>", "image_token": "<i>", "pad_token": "", "eos_token": "</s>", "bos_token": null,
                        "extra_special_tokens": ["<x>", "abc"]})", "<u></s><i><x>abc"), (Ids{260, 259, 261, 262, 257}));
  EXPECT_EQ(encoded(R"({"extra_special_tokens": {"boi_token": "<b>"}, "additional_special_tokens": ["<n>"]})", "<b><n>"),
            (Ids{259, 260}));
  EXPECT_EQ(encoded(R"({"eos_token": {"content": "<e>", "lstrip": true, "rstrip": true}})", "ab <e> ab"), (Ids{256, 259, 256}));
  EXPECT_EQ(encoded(R"({"added_tokens_decoder": {"260": {"content": "<q>"}, "259": {"content": "<p>"},
                        "258": {"content": "<|endoftext|>", "rstrip": true, "special": true}}})", "<|endoftext|>  <q><p>"),
            (Ids{258, 260, 259}));
  const std::string other_id = R"({"added_tokens_decoder": {"270": {"content": "<p>"}}})";
  expect_error<DataError>([&] { encoded(other_id, ""); }, {"id 270, expected 259"});
  expect_error<DataError>([&] { encoded(R"({"split_special_tokens": true})", ""); }, {"split_special_tokens", "--plain-special"});
  write_file(folder_ / "special_tokens_map.json", R"({"eos_token": {"content": "<m>", "lstrip": false}})");
  write_file(folder_ / "added_tokens.json", R"({"<o>": 259, "<|endoftext|>": 1})");
  EXPECT_EQ(encoded(R"({"eos_token": "<e>"})", "<o><m>"), (Ids{259, 260}));
  EXPECT_EQ(load(json)->special_ids().eos, Ids{260});
}

TEST(TokenizerFiles, KindsThatAreNotBuiltAreNamed) {
  const TemporaryFolder folder;
  write_file(folder / "vocab.txt", "[PAD]\n[UNK]\n");
  expect_error<DataError>([&] { load_tokenizer(folder.path()); }, {"vocab.txt", "WordPiece", "not built"});
  write_file(folder / "tokenizer.model", "\n\x0E\n\x05<unk>");
  expect_error<DataError>([&] { load_tokenizer(folder.path()); }, {"tokenizer.model", "SentencePiece", "not built"});
  expect_error<DataError>([&] { load_tokenizer(folder / "tokenizer.model"); }, {"tokenizer.model", "SentencePiece"});
  write_file(folder / "a.bin", "PAR1....");
  expect_error<DataError>([&] { load_tokenizer(folder / "a.bin"); }, {"a.bin", "Parquet"});
  write_file(folder / "a.bin", "text");
  expect_error<DataError>([&] { load_tokenizer(folder / "a.bin"); }, {"a.bin", "known by its content"});
}

}  // namespace
}  // namespace trident
