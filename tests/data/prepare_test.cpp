#include "data/prepare.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <thread>

#include "core/file_io.h"
#include "data/indexed_dataset.h"
#include "data/merge_datasets.h"
#include "data/tokenizer/built_in_files.h"
#include "data/tokenizer/vocabulary_files.h"
#include "tests/data/compress.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using namespace std::string_literals;
using Texts = std::vector<std::string>;

class PrepareTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tokenizer_ = load_tokenizer("gpt2"); }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "out";
  inline static std::unique_ptr<const Tokenizer> tokenizer_;

  std::string input(const std::string& name, const std::string& content) {
    write_file(folder_ / name, content);
    return folder_ / name;
  }
  PrepareStats prepare(const Texts& inputs, PrepareOptions options = {}) {
    options.overwrite = Overwrite::kYes;
    return prepare_text(inputs, *tokenizer_, prefix_, options);
  }
  // The documents of the output, decoded.
  Texts documents() const {
    const IndexedDataset dataset(prefix_);
    Texts texts;
    for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
      const std::int64_t begin = dataset.document_begin(d);
      const std::vector<std::int32_t> ids =
          tokens_of(dataset, begin, dataset.document_begin(d + 1) - begin, tokenizer_->vocab_size());
      texts.push_back(tokenizer_->decode(ids));
    }
    return texts;
  }
  void expect_no_output() {
    EXPECT_FALSE(file_exists(prefix_ + ".bin"));
    EXPECT_FALSE(file_exists(prefix_ + ".idx"));
    for (const std::string& name : folder_.names()) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
  }
};

TEST_F(PrepareTest, AWholeFileIsOneDocument) {
  const PrepareStats stats = prepare({input("a.txt", "First.\n\nSecond."), input("b.txt", "Third.\n")});
  EXPECT_EQ(documents(), (Texts{"First.\n\nSecond.", "Third.\n"}));
  EXPECT_EQ(stats.documents, 2);
  EXPECT_EQ(stats.bytes, 15 + 7);
  EXPECT_EQ(stats.tokens,
            static_cast<std::int64_t>(tokenizer_->encode("First.\n\nSecond.").size() + tokenizer_->encode("Third.\n").size()));
  EXPECT_EQ(stats.replaced, 0);
  EXPECT_EQ(IndexedDataset(prefix_).type(), TokenType::kU16);
}

TEST_F(PrepareTest, EodEndsEveryDocumentThatHasText) {
  const PrepareStats stats =
      prepare({input("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two\"}\n")}, {.append_eod = true});
  EXPECT_EQ(documents(), (Texts{"one<|endoftext|>", "", "two<|endoftext|>"}));
  EXPECT_EQ(stats.documents, 3);
  EXPECT_EQ(stats.empty_documents, 1);
  EXPECT_EQ(stats.tokens, 4);
}

// transformers' tokenizer("") gives what is put around a text, and so has an empty document; one of no ids stays empty.
TEST_F(PrepareTest, AnEmptyDocumentHasWhatIsPutAroundIt) {
  ChainParts parts = gpt2_parts();
  read_vocabulary({gpt2_vocab_json(), gpt2_merges_txt(), "v", "m"}, parts);
  parts.special.before = {50256};
  const auto tokenizer = make_chain_tokenizer(std::move(parts));
  const std::string path = input("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": []}\n");
  const PrepareStats stats = prepare_text(Texts{path}, *tokenizer, prefix_, {.append_eod = true});
  EXPECT_EQ(documents(), (Texts{"<|endoftext|>one<|endoftext|>", "<|endoftext|><|endoftext|>", ""}));
  EXPECT_EQ(stats.empty_documents, 1);
  const PrepareOptions alone{.rule = {.around = Around::kLeftOut}, .overwrite = Overwrite::kYes};
  EXPECT_EQ(prepare_text(Texts{path}, *tokenizer, prefix_, alone).tokens, 1);
}

// The bytes that Megatron-LM's preprocess_data.py writes: an empty document is a repeated entry without a sequence.
TEST_F(PrepareTest, TheBytesAreMegatrons) {
  prepare({input("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two\"}\n")}, {.append_eod = true});
  EXPECT_EQ(read_file(prefix_ + ".bin"), "\xF9\x01\x50\xC4\x19\x2D\x50\xC4");  // 505, 50256, 11545, 50256
  std::string expected = "MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08"s;
  for (const int value : {2, 4}) expected += static_cast<char>(value) + "\0\0\0\0\0\0\0"s;           // sequences, documents + 1
  for (const int value : {2, 2}) expected += static_cast<char>(value) + "\0\0\0"s;                     // lengths
  for (const int value : {0, 4, 0, 1, 1, 2}) expected += static_cast<char>(value) + "\0\0\0\0\0\0\0"s;  // offsets; documents
  EXPECT_EQ(read_file(prefix_ + ".idx"), expected);
}

TEST_F(PrepareTest, SeparatorLinesCutDocuments) {
  const std::string text = "\na\nb\n\n\n  \nc\r\n\r\nd";
  prepare({input("a.txt", text)}, {.separator_line = ""});
  EXPECT_EQ(documents(), (Texts{"a\nb\n", "  \nc\r\n", "d"}));
  prepare({input("b.txt", "x\n\ny\n<|endoftext|>\n<|endoftext|>\nz <|endoftext|>\n<|endoftext|>")},
          {.separator_line = "<|endoftext|>"});
  EXPECT_EQ(documents(), (Texts{"x\n\ny\n", "z <|endoftext|>\n"}));
}

TEST_F(PrepareTest, JsonLinesAreRead) {
  const std::string path =
      input("a.jsonl", "{\"text\": \"caf\\u00e9 \\\"x\\\"\\n\", \"id\": 1}\r\n\n  \n{\"body\": \"no\", \"text\": \"last\"}");
  prepare({path});
  EXPECT_EQ(documents(), (Texts{"caf\xC3\xA9 \"x\"\n", "last"}));
  prepare({input("b.json", "{\"body\": \"other key\"}\n")}, {.json_key = "body"});
  EXPECT_EQ(documents(), Texts{"other key"});
}

// Datasets that transformers has tokenized hold lists of ids.
TEST_F(PrepareTest, ListsOfIdsAreTakenAsTheyAre) {
  const std::string path = input("a.jsonl", "{\"input_ids\": [505, 50256], \"labels\": [1]}\n{\"input_ids\": []}\n"
                                            "{\"input_ids\": \"two\"}\n");
  const PrepareStats stats = prepare({path}, {.append_eod = true, .json_key = "input_ids"});
  EXPECT_EQ(documents(), (Texts{"one<|endoftext|><|endoftext|>", "", "two<|endoftext|>"}));
  EXPECT_EQ(stats.tokens, 5);
  const auto refused = [&](const std::string& id, const std::string& why) {
    expect_error<DataError>([&] { prepare({input("bad.jsonl", "{\"text\": [1, " + id + "]}\n")}); }, {"bad.jsonl:1:1: ", why});
  };
  for (const std::string id : {"50257", "-1"}) refused(id, "id " + id + " is not among the tokenizer's 50257");
  refused("2], \"labels\": [-100, 2", "\"labels\" takes ids out of the loss");
  refused("2], \"completion_mask\": [0, 1", "\"completion_mask\" takes ids out of the loss");
  refused("2], \"attention_mask\": [1, 0", "; tokenize without padding, or prepare the texts by --chat");
  for (const std::string id : {"4294967296", "1.5", "\"505\"", "[505]"}) refused(id, "neither a string nor a list of token ids");
}

TEST_F(PrepareTest, BadLinesAreNamed) {
  const auto expect = [&](const std::string& content, const std::string& place, const std::string& what) {
    expect_error<DataError>([&] { prepare({input("bad.jsonl", content)}); }, {"bad.jsonl:" + place + ":", what, "under \"text\""});
    expect_no_output();
  };
  expect("{\"text\": \"a\"}\n\n{\"text\": \"b\"\n", "3:13", "not valid JSON: the end of the text");
  expect("{\"text\": \"a\", \"score\": NaN}\n", "1:24", "\"NaN\" where a value is expected");
  expect("{\"text\": \"a\", \"text\": \"b\"}\n", "1:15", "duplicate key \"text\"");
  expect("{\"text\": \"caf\xE9\"}\n", "1:14", "the byte 0xE9 in a string is not UTF-8");
  expect("{\"text\": \"a\", \"n\": " + std::string(2000, '[') + std::string(2000, ']') + "}\n", "1",
         "nested deeper than 64 levels");
  expect("{\"text\": \"a\"}\n{\"text\": \"\xFF\"}\n", "2", "not valid JSON");
  expect("[\"text\"]\n", "1", "not a JSON object");
  expect("{\"Text\": \"a\"}\n", "1", "no key \"text\"");
  expect("{\"messages\": []}\n", "1", "no key \"text\", and --chat reads conversations");
  expect("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n", "1", "no key \"text\", and --preference reads pairs");
  expect("{\"text\": 5}\n", "1", "\"text\" is neither a string nor a list of token ids");
  expect("{\"text\": null}\n", "1", "is neither a string");
  expect("{\"text\": null, \"messages\": []}\n", "1", "is neither a string nor a list of token ids, and --chat");
}

TEST_F(PrepareTest, LoneSurrogatesAreReplacedAndCounted) {
  const PrepareStats stats =
      prepare({input("a.jsonl", "{\"text\": \"a\\ud83d\\ude00\\ud83db\\ude00\", \"other\": \"\\ud83d\"}\n")});
  EXPECT_EQ(documents(), Texts{"a\xF0\x9F\x98\x80\xEF\xBF\xBD" "b\xEF\xBF\xBD"});
  EXPECT_EQ(stats.lone_surrogates, 2);
}

TEST_F(PrepareTest, BadLinesAreLeftOutAndCounted) {
  std::string lines;
  for (int i = 0; i < 40000; ++i) lines += i % 2500 == 9 ? "{\"text\": NaN}\n" : "{\"text\": \"a line of text\"}\n";
  const std::string path = input("bad.jsonl", lines);
  std::vector<std::string> refusals;
  for (const int workers : {1, 3}) {
    std::vector<std::string> shown;
    PrepareOptions options{.overwrite = Overwrite::kYes, .workers = workers};
    options.most_bad_lines = 16;
    options.on_bad_line = [&](const std::string& why) { shown.push_back(why); };
    const PrepareStats stats = prepare({path}, options);
    EXPECT_EQ(stats.bad_lines, 16);
    EXPECT_EQ(stats.documents, 39984);
    ASSERT_EQ(shown.size(), 10u);
    expect_parts(shown[1], {"bad.jsonl:2510:10: not valid JSON: \"NaN\""});
    options.most_bad_lines = 15;
    expect_error<DataError>([&] { prepare({path}, options); }, {"bad.jsonl:37510:10: ", "16 bad lines, and --most-bad allows 15"});
    options.most_bad_lines.reset();
    refusals.push_back(error_of<DataError>([&] { prepare({path}, options); }));
  }
  EXPECT_EQ(refusals[0], refusals[1]) << "whatever the number of workers";
  expect_parts(refusals[0], {"bad.jsonl:10:10: ", "; likewise " + path + ":2510:10", "; --skip-bad-lines leaves such lines out"});
  std::string many;
  for (int i = 0; i < 30; ++i) many += i % 2 == 0 ? "3\n" : "{\"text\": \"a\"}\n";
  const std::string half = error_of<DataError>([&] { prepare({input("half.jsonl", many)}); });
  expect_parts(half, {"half.jsonl:1:1: not a JSON object", "; likewise ", "half.jsonl:19:1; also 5 more; --skip-bad-lines"});
  EXPECT_EQ(half.find("half.jsonl:21:"), std::string::npos) << half;
  // Ids of another tokenizer are no bad lines: without them the rest would be trained on, and is wrong, too.
  const std::string ids = error_of<DataError>([&] { prepare({input("ids.jsonl", "{\"text\": [1]}\n{\"text\": [99999999]}\n")}); });
  expect_parts(ids, {"ids.jsonl:2:1: id 99999999 is not among", "; name the tokenizer of these ids by --tokenizer"});
  EXPECT_EQ(ids.find("--skip-bad-lines"), std::string::npos) << ids;
  // Where every line is bad, the first says why, and nothing is to be left out.
  const std::string all = error_of<DataError>([&] { prepare({input("all.jsonl", "{\"messages\": []}\n{\"messages\": []}\n")}); });
  EXPECT_EQ(all.find("; also"), std::string::npos) << all;
  EXPECT_EQ(all.find("--skip-bad-lines"), std::string::npos) << all;
}

// Skipped members are not built, and a line has a limit of its own.
TEST_F(PrepareTest, LongLinesAreRefusedByPlace) {
  const std::string good = "{\"text\": \"a\"}\n";
  for (const char* name : {"a.jsonl", "b.txt"})
    expect_error<DataError>([&] { prepare({input(name, good + std::string(100, 'x') + "\n")}, {.max_line_bytes = 99}); },
                            {fmt::format("{}:2: a line of more than 99 bytes", name), "--max-line"});
}

TEST_F(PrepareTest, BadInputsAreRefused) {
  const std::string good = input("good.txt", "text");
  expect_error<DataError>([&] { prepare({good, folder_ / "missing.txt"}); }, {"missing.txt", "No such file"});
  expect_error<DataError>([&] { prepare({good, input("a.jsonl.gz", "x")}); }, {"a.jsonl.gz", "uncompressed data", "rename"});
  expect_error<DataError>([&] { prepare({good, input("empty.txt", "")}); }, {"empty.txt", "no document"});
  expect_error<DataError>([&] { prepare({good, input("empty.gz", gzipped(""))}); }, {"empty.gz", "no document"});
  expect_error<ConfigError>([&] { prepare_text({input("out.bin", "text")}, *tokenizer_, prefix_, {}); },
                            {"--output", "overwrite the input"});
  std::filesystem::remove(prefix_ + ".bin");
  expect_error<ConfigError>([&] { prepare({good}, {.workers = 257}); }, {"--workers = 257"});
  expect_error<DataError>([&] { prepare({good, input("blank.jsonl", "\n \n")}); }, {"blank.jsonl", "no document"});
  create_folder(folder_ / "none");
  for (const std::string& name : {folder_ / "none", "@" + input("list", "\n")})
    expect_error<DataError>([&] { prepare({good, name}); }, {name + ": names no file to read"});
  expect_error<DataError>([&] { prepare({"@" + (folder_ / "no.list")}); }, {folder_ / "no.list"});
  expect_error<DataError>([&] { prepare({"@" + input("of_lists", good + "\n@other\n")}); },
                          {"of_lists: has the line \"@other\"", "a list names no other list"});
  expect_error<ConfigError>([&] { prepare({}); }, {"--input"});
  expect_error<ConfigError>([&] { prepare({good}, {.workers = 0}); }, {"--workers = 0"});
  expect_error<StorageError>([&] { prepare_text({good}, *tokenizer_, good + "/out", {}); },
                             {good + ": the folder cannot be created: ", "check"});
  expect_no_output();
}

TEST_F(PrepareTest, IllFormedTextIsReplacedAndCounted) {
  const PrepareStats stats = prepare({input("a.txt", "caf\xE9 au lait \xF0\x9F")});
  EXPECT_EQ(stats.replaced, 2);
  EXPECT_EQ(documents(), Texts{"caf\xEF\xBF\xBD au lait \xEF\xBF\xBD"});
}

TEST_F(PrepareTest, WorkersDoNotChangeTheOutput) {
  std::string lines;
  for (int i = 0; i < 500; ++i)
    lines += fmt::format("{{\"text\": \"document {} {}\"}}\n", i, std::string(static_cast<std::size_t>(i % 50), 'x'));
  const std::string path = input("a.jsonl", lines);
  prepare({path}, {.append_eod = true});
  const std::string bin = read_file(prefix_ + ".bin"), idx = read_file(prefix_ + ".idx");
  const PrepareStats stats = prepare({path}, {.append_eod = true, .workers = 4});
  EXPECT_EQ(read_file(prefix_ + ".bin"), bin);
  EXPECT_EQ(read_file(prefix_ + ".idx"), idx);
  EXPECT_EQ(stats.documents, 500);
}

TEST_F(PrepareTest, ManyInputsKeepTheirOrder) {
  const auto lines = [](int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) text += fmt::format("{{\"text\": \"document {} of several\"}}\n", i);
    return text;
  };
  prepare({input("a.jsonl", lines(0, 100)), input("b.jsonl", lines(100, 100)), input("c.jsonl", lines(200, 100)),
           input("d.txt", "text")});
  const std::string bin = read_file(prefix_ + ".bin"), idx = read_file(prefix_ + ".idx");
  const PrepareStats stats =
      prepare({input("a.jsonl.gz", gzipped(lines(0, 30)) + gzipped(lines(30, 70))), input("b.json", lines(100, 100)),
               input("c.json.zst", zstd_packed(lines(200, 100))), input("d.gz", gzipped("text"))},
              {.workers = 3});
  EXPECT_EQ(stats.documents, 301);
  EXPECT_EQ(read_file(prefix_ + ".bin"), bin);
  EXPECT_EQ(read_file(prefix_ + ".idx"), idx);
}

TEST_F(PrepareTest, FoldersAndListsStandForTheirFiles) {
  create_folder(folder_ / "all");
  create_folder(folder_ / "all/c");
  input("all/b.txt", "one");
  input("all/c/a.jsonl", "{\"text\": \"two\"}\n");
  input("all/d.txt", "three");
  input("all/.hidden.xz", "");
  for (const auto& [link, file] : {std::pair("a.txt", "b.txt"), {"e", "c"}, {"f.txt", "../g.txt"}, {"h.txt", "f.txt"}})
    std::filesystem::create_symlink(file, folder_ / "all" + "/" + link);
  input("g.txt", "four");
  const std::string list = input("list", folder_ / "all/d.txt" + "\r\n\n" + (folder_ / "all/c") + "\n");
  prepare({folder_ / "all", "@" + list});
  EXPECT_EQ(documents(), (Texts{"one", "two", "three", "four", "three", "two"})) << "no text twice through a link";
  const std::string bin = read_file(prefix_ + ".bin"), record = read_file(prefix_ + ".trident.json");
  prepare({folder_ / "all/", "@" + list}, {.workers = 3});
  EXPECT_EQ(read_file(prefix_ + ".bin"), bin);
  EXPECT_EQ(read_file(prefix_ + ".trident.json"), record);
  create_folder(folder_ / "hub");
  create_folder(folder_ / "hub/snapshots");
  input("hub/blob", "{\"text\": \"five\"}\n");
  for (const char* link : {"snapshots/again", "snapshots/train.jsonl"})
    std::filesystem::create_symlink("../blob", folder_ / "hub" + "/" + link);
  prepare({folder_ / "hub"});
  EXPECT_EQ(documents(), Texts{"five"}) << "the name that says what it is";
  input("all/c/a.jsonl", "{}\n");
  expect_error<DataError>([&] { prepare({folder_ / "all"}); }, {folder_ / "all/c/a.jsonl:1"});
}

// The first wrong document is the one that is named, however many threads work and wherever the reader is by then.
TEST_F(PrepareTest, TheFirstErrorIsNamed) {
  std::string lines;  // five batches of a MiB
  for (int i = 1; lines.size() < std::size_t{5} << 20; ++i)
    lines += fmt::format("{{\"{}\": \"{}\"}}\n", i == 2500 || i == 2501 || i == 4900 ? "body" : "text", std::string(1000, 'x'));
  const std::string cut = gzipped(lines).substr(0, gzipped(lines).size() - 5);
  for (const int workers : {1, 4}) {
    expect_error<DataError>([&] { prepare({input("a.jsonl", lines), input("empty.jsonl", "")}, {.workers = workers}); },
                            {"a.jsonl:2500:1: no key"});
    expect_error<DataError>([&] { prepare({input("a.jsonl.gz", cut)}, {.workers = workers}); }, {"a.jsonl.gz:2500:1: no key"});
    expect_error<DataError>([&] { prepare({input("a.txt.gz", cut)}, {.separator_line = "", .workers = workers}); },
                            {"a.txt.gz: ends inside compressed data"});
    expect_no_output();
  }
}

TEST_F(PrepareTest, ProgressEndsAtTheTotal) {
  std::string text;  // three documents of a little over 1 MiB each, in two files
  while (text.size() < (std::size_t{17} << 16)) text += "the same words again and again\n";
  const std::string document = text + "\n";
  std::vector<PrepareProgress> seen;
  const PrepareStats stats = prepare_text({input("a.txt", document + document), input("b.txt", document)}, *tokenizer_, prefix_,
                                          {.separator_line = ""}, [&](const PrepareProgress& p) { seen.push_back(p); });
  ASSERT_GE(seen.size(), 3u);
  for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_GE(seen[i].bytes_done, seen[i - 1].bytes_done);
  EXPECT_GE(seen[0].bytes_done, 1 << 20);
  EXPECT_LE(seen[0].bytes_done, static_cast<std::int64_t>(2 * document.size()));
  EXPECT_EQ(seen[0].text_bytes, static_cast<std::int64_t>(text.size()));
  EXPECT_GT(seen[0].tokens, 0);
  EXPECT_EQ(seen.back().bytes_done, static_cast<std::int64_t>(3 * document.size()));
  for (const PrepareProgress& p : seen) EXPECT_EQ(p.bytes_total, seen.back().bytes_done);
  EXPECT_EQ(seen.back().tokens, stats.tokens);
  EXPECT_EQ(documents().size(), 3u);
}

// An edit that keeps size and time, made while the file is read, is in the output or not: it must not count as there.
TEST_F(PrepareTest, WhatChangedMeanwhileIsNotThereAlready) {
  const std::string path = input("a.txt", "one");
  const auto before = std::filesystem::last_write_time(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than the file system's clock takes for a tick
  prepare_text({path}, *tokenizer_, prefix_, {}, [&](const PrepareProgress&) {
    write_file(path, "two");
    std::filesystem::last_write_time(path, before);
  });
  expect_error<ConfigError>([&] { prepare_text({path}, *tokenizer_, prefix_, {}); }, {"are there", "--overwrite"});
  prepare({path});
  EXPECT_TRUE(prepare_text({path}, *tokenizer_, prefix_, {}).was_there);
}

TEST_F(PrepareTest, TheExcerptHasItsChapters) {
  const PrepareStats stats =
      prepare({std::string(TRIDENT_EXCERPT) + "/train.txt"}, {.append_eod = true, .separator_line = "<|endoftext|>"});
  EXPECT_GE(stats.bytes, 200'000);
  EXPECT_EQ(stats.documents, 88);  // 50 + 40 chapters less the two held out
  EXPECT_EQ(stats.tokens, IndexedDataset(prefix_).num_tokens());
  EXPECT_NEAR(static_cast<double>(stats.bytes) / static_cast<double>(stats.tokens), 4.0, 0.4);  // bytes per token of English
}

// A small file may hold a line of any length.
TEST_F(PrepareTest, LongDocumentsAreRefusedByPlace) {
  const std::string ten = "{\"text\": \"0123456789\"}\n";  // 22 bytes and the line end
  const auto refuse = [&](const std::string& path, PrepareOptions options, const std::string& line) {
    for (const int workers : {1, 4}) {
      options.workers = workers;
      expect_error<DataError>([&] { prepare({path}, options); }, {fmt::format("{}:{}: a document of more than {} bytes begins here",
                                                                              path, line, options.max_document_bytes),
                                                                  "--max-document-bytes"});
      expect_no_output();
    }
  };
  const auto accept = [&](const std::string& path, const PrepareOptions& options, std::int64_t documents) {
    EXPECT_EQ(prepare({path}, options).documents, documents);
    for (const char* ending : {".bin", ".idx", ".trident.json"}) std::filesystem::remove(prefix_ + ending);
  };
  accept(input("a.jsonl", ten + ten), {.max_document_bytes = 23}, 2);
  refuse(input("a.jsonl", ten + "\n" + "{\"text\": \"0123456789ab\"}\n"), {.max_document_bytes = 23}, "3");
  for (const char* separator : {"", "--"}) {
    const std::string text = fmt::format("1234\n{}\n12345\n1234\n{}\n1\n", separator, separator);
    accept(input("b.txt", text), {.separator_line = separator, .max_document_bytes = 11}, 3);
    refuse(input("b.txt", text), {.separator_line = separator, .max_document_bytes = 10}, "3");
  }
  accept(input("c.txt", "0123456789"), {.max_document_bytes = 10}, 1);
  refuse(input("c.txt", "0123456789\n"), {.max_document_bytes = 10}, "1");
  refuse(input("bomb.jsonl.gz", gzipped(ten + std::string(20 << 20, 'x'))), {.max_document_bytes = 1 << 20}, "2");
  expect_error<ConfigError>([&] { prepare({input("c.txt", "x")}, {.max_document_bytes = 0}); },
                            {"--max-document-bytes = 0", "positive"});
}

template <class T> std::string raw(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

class MergeTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string out_ = folder_ / "out";

  std::string put(const std::string& name, const Documents& documents, std::int64_t vocab_size = 50257) {
    write_dataset(folder_ / name, documents, vocab_size);
    return folder_ / name;
  }
  // A dataset from its parts, of u16.
  std::string put_raw(const std::string& name, const std::string& bin, const std::string& index) {
    write_file(folder_ / (name + ".bin"), bin);
    write_file(folder_ / (name + ".idx"), "MMIDIDX\0\0"s + raw<std::int64_t>({1}) + '\x08' + index);
    return folder_ / name;
  }
  void expect_no_output() {
    for (const std::string& name : folder_.names()) EXPECT_TRUE(name.rfind("out.", 0) != 0) << name;
  }
};

// Megatron-LM's add_index: lengths follow each other, offsets are summed anew, document entries move by the sequences before, and
// the leading 0 of every input but the first goes.
TEST_F(MergeTest, TheBytesAreMegatrons) {
  const std::string first = put("a", {{5, 6, 7}, {8}}), second = put("b", {{}, {9, 10}, {}});
  // One document of two sequences, and one with a sequence of no tokens, as other writers make them.
  const std::string third = put_raw(
      "c", raw<std::uint16_t>({11, 12, 13}),
      raw<std::int64_t>({3, 3}) + raw<std::int32_t>({1, 2, 0}) + raw<std::int64_t>({0, 2, 6}) + raw<std::int64_t>({0, 2, 3}));
  const MergeStats stats = merge_datasets({first, second, third}, out_, Overwrite::kYes);
  EXPECT_EQ(read_file(out_ + ".bin"), raw<std::uint16_t>({5, 6, 7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(read_file(out_ + ".idx"), "MMIDIDX\0\0"s + raw<std::int64_t>({1}) + '\x08' + raw<std::int64_t>({6, 8}) +
                                          raw<std::int32_t>({3, 1, 2, 1, 2, 0}) + raw<std::int64_t>({0, 6, 8, 12, 14, 18}) +
                                          raw<std::int64_t>({0, 1, 2, 2, 3, 3, 5, 6}));
  EXPECT_EQ(stats.documents, 7);
  EXPECT_EQ(stats.sequences, 6);
  EXPECT_EQ(stats.tokens, 9);
  EXPECT_EQ(stats.bytes, 18);
  EXPECT_EQ(IndexedDataset(out_).num_documents(), 7);
}

TEST_F(MergeTest, IsWhatOneWriterWouldHaveWritten) {
  for (const std::int64_t vocab : {50257, 128256}) {
    const Documents documents = counting_documents(40, vocab);
    const std::string whole = put("whole", documents, vocab);
    const std::string a = put("a", Documents(documents.begin(), documents.begin() + 9), vocab), none = put("none", {}, vocab),
                      b = put("b", Documents(documents.begin() + 9, documents.end()), vocab);
    std::vector<std::pair<std::int64_t, std::int64_t>> seen;  // done, all
    merge_datasets({a, none, b}, out_, Overwrite::kYes, [&](std::int64_t done, std::int64_t all) { seen.emplace_back(done, all); });
    EXPECT_EQ(read_file(out_ + ".bin"), read_file(whole + ".bin"));
    EXPECT_EQ(read_file(out_ + ".idx"), read_file(whole + ".idx"));
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[1].first, seen[1].second);
    EXPECT_EQ(seen[1].second, static_cast<std::int64_t>(read_file(whole + ".bin").size()));
    merge_datasets({whole}, folder_ / "copy", Overwrite::kYes);
    EXPECT_EQ(read_file(folder_ / "copy.idx"), read_file(whole + ".idx"));
    merge_datasets({a, a}, folder_ / "twice", Overwrite::kYes);
    EXPECT_EQ(IndexedDataset(folder_ / "twice").num_documents(), 18);
  }
}

TEST_F(MergeTest, TypesMustBeEqual) {
  const std::string narrow = put("narrow", {{1}}, 50257), wide = put("wide", {{1}}, 128256);
  expect_error<DataError>([&] { merge_datasets({narrow, narrow, wide}, out_, Overwrite::kYes); },
                          {narrow + " holds tokens as uint16", wide + " as int32", "one tokenizer"});
  expect_no_output();
}

TEST_F(MergeTest, TheOutputIsNeverAnInput) {
  const std::string a = put("a", {{1, 2}}), b = put("b", {{3}});
  const std::string before = read_file(a + ".bin") + read_file(a + ".idx");
  std::filesystem::create_symlink(a + ".bin", folder_ / "link.bin");
  std::filesystem::create_hard_link(b + ".idx", folder_ / "hard.idx");
  for (const std::string& output : {a, b, folder_.path() + "/./a", folder_ / "link", folder_ / "hard"})
    expect_error<ConfigError>(
        [&] {
          merge_datasets({a, b}, output, Overwrite::kYes);
        },
        {"--output = " + output, "overwrite the input"});
  EXPECT_EQ(read_file(a + ".bin") + read_file(a + ".idx"), before);
}

TEST_F(MergeTest, ErrorsLeaveNoOutput) {
  const std::string a = put("a", {{1, 2}});
  expect_error<ConfigError>([&] { merge_datasets({}, out_, Overwrite::kYes); }, {"--input"});
  expect_error<DataError>([&] { merge_datasets({a, folder_ / "none"}, out_, Overwrite::kYes); }, {"none.idx", "no such file"});
  write_file(folder_ / "b.bin", "x");
  write_file(folder_ / "b.idx", read_file(a + ".idx"));
  expect_error<DataError>([&] { merge_datasets({a, folder_ / "b"}, out_, Overwrite::kYes); }, {"b.bin", "too short"});
  std::filesystem::create_directory(out_ + ".bin");
  expect_error<StorageError>([&] { merge_datasets({a}, out_, Overwrite::kYes); }, {"out.bin", "is a folder"});
  std::filesystem::remove(out_ + ".bin");
  expect_error<InternalError>(
      [&] { merge_datasets({a}, out_, Overwrite::kYes, [](std::int64_t, std::int64_t) { throw InternalError("stop"); }); },
      {"stop"});
  expect_no_output();
}

}  // namespace
}  // namespace trident
