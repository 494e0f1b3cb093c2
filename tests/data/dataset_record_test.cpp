#include "data/dataset_record.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "data/dataset_files.h"
#include "data/dataset_summary.h"
#include "data/merge_datasets.h"
#include "data/prepare.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// A tokenizer of which only the identity counts.
class NamedTokenizer final : public Tokenizer {
 public:
  SpecialIds special;

  NamedTokenizer(std::string name, std::string fingerprint) : name_(std::move(name)), fingerprint_(std::move(fingerprint)) {}
  std::unique_ptr<Encoder> new_encoder() const override { throw InternalError("encodes nothing"); }
  std::string decode(std::span<const std::int32_t>) const override { return {}; }
  std::int64_t vocab_size() const override { return 50257; }
  std::string_view token_text(std::int32_t) const override { return {}; }
  const SpecialIds& special_ids() const override { return special; }
  std::optional<std::int32_t> find(std::string_view) const override { return {}; }
  bool is_control(std::int32_t) const override { return false; }
  const std::vector<std::string>& description() const override { return description_; }
  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::string name_, fingerprint_;
  std::vector<std::string> description_;
};

class RecordTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "text";

  // Token files of `documents` with a record that says `tokenizer`.
  std::string put(const std::string& name, const Tokenizer& tokenizer, const Documents& documents = {{1, 2}, {}, {3}}) {
    IndexedDatasetWriter writer(folder_ / name, tokenizer.vocab_size(), Overwrite::kYes);
    for (const auto& document : documents) writer.add_document(document);
    DatasetOrigin origin{.tokenizer = recorded(tokenizer), .sources = {}};
    origin.add({name + ".txt", 7});
    writer.finish(origin);
    return folder_ / name;
  }
  std::string change(const std::string& from, const std::string& to) {
    return replaced(read_file(record_path(prefix_)), from, to);
  }
  NamedTokenizer ours_{"ours", "a"}, others_{"others", "b"};
};

TEST_F(RecordTest, SaysWhatMadeTheFiles) {
  write_file(folder_ / "a.txt", "one two");
  write_file(folder_ / "b.jsonl", "{\"text\": \"three\"}\n{\"text\": \"\"}\n");
  const auto gpt2 = load_tokenizer("gpt2");
  prepare_text({folder_ / "a.txt", folder_ / "b.jsonl"}, *gpt2, prefix_, {});
  const std::optional<DatasetRecord> record = read_record(prefix_);
  ASSERT_TRUE(record);
  ASSERT_TRUE(record->origin.tokenizer);
  EXPECT_EQ(record->origin.tokenizer->name, "gpt2");
  EXPECT_EQ(record->origin.tokenizer->fingerprint, gpt2->fingerprint());
  EXPECT_EQ(record->origin.tokenizer->vocab_size, 50257);
  ASSERT_EQ(record->origin.sources.size(), 2u);
  EXPECT_EQ(record->origin.sources[1].name, folder_ / "b.jsonl");
  EXPECT_EQ(record->origin.sources[1].bytes, 31);
  EXPECT_EQ(record->origin.num_sources, 2);
  EXPECT_EQ(record->origin.source_bytes, 38);
  EXPECT_EQ(record->counts.documents, 3);
  EXPECT_EQ(record->counts.sequences, 2);
  EXPECT_EQ(record->counts.tokens, IndexedDataset(prefix_).num_tokens());
  EXPECT_EQ(record->bin.bytes, RandomAccessFile(bin_path(prefix_)).size());
  EXPECT_EQ(record->idx, sample_file(idx_path(prefix_)));
}

// The ids around a text are recorded where there are some, and data with other ids around its texts is not mixed.
TEST_F(RecordTest, WhatIsAroundTextsIsRecordedAndCompared) {
  const std::string plain = put("plain", ours_);
  EXPECT_EQ(read_file(record_path(plain)).find("before"), std::string::npos);
  ours_.special.before = {1, 2}, ours_.special.after = {3};
  const std::string around = put("around", ours_);
  const RecordedTokenizer made_by = *read_record(around)->origin.tokenizer;
  EXPECT_EQ(made_by.before, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(made_by.after, std::vector<std::int32_t>{3});
  EXPECT_TRUE(check_records(std::vector{around, around}, &ours_, "data.tokenizer", 50257).empty());
  EXPECT_TRUE(check_records(std::vector{plain}, &ours_, "data.tokenizer", 50257).empty());
  const TextRule rule, none{.around = Around::kLeftOut};
  EXPECT_TRUE(check_records(std::vector{around}, &ours_, "data.tokenizer", 50257, ::pread, &rule).empty());
  EXPECT_TRUE(check_records(std::vector{plain}, &ours_, "data.tokenizer", 50257, ::pread, &none).empty());
  expect_error<DataError>(
      [&] { check_records(std::vector{plain}, &ours_, "data.tokenizer", 50257, ::pread, &rule); },
      {record_path(plain), "have nothing each", "texts of this command the ids [1 2] before and [3] behind", "--no-special"});
  expect_error<DataError>([&] { check_records(std::vector{plain, around}, nullptr, "data.tokenizer", 50257); },
                          {record_path(plain), "nothing each", record_path(around), "[1 2]"});
  expect_error<DataError>(
      [&] {
        merge_datasets({plain, around}, folder_ / "all", Overwrite::kNo);
      },
      {record_path(around), plain, "--no-special"});
  EXPECT_EQ(rule_of_data(std::vector{plain}, ours_).around, Around::kLeftOut);
  EXPECT_EQ(rule_of_data(std::vector{around}, ours_).around, Around::kAdded);
  EXPECT_EQ(rule_of_data(std::vector{folder_ / "gone"}, ours_).around, Around::kAdded);
}

TEST_F(RecordTest, ManySourcesAreCounted) {
  DatasetOrigin origin;
  for (int i = 0; i < 300; ++i) origin.add({"caf\xE9", 2});
  EXPECT_EQ(origin.sources.size(), 256u);
  EXPECT_EQ(origin.sources[0].name, "caf\xEF\xBF\xBD");  // names are bytes, JSON is UTF-8
  EXPECT_EQ(origin.num_sources, 300);
  DatasetOrigin both;
  both.add({"first", 1});
  both.add_sources(origin);
  EXPECT_EQ(both.sources.size(), 256u);
  EXPECT_EQ(both.num_sources, 301);
  EXPECT_EQ(both.source_bytes, 601);
}

TEST_F(RecordTest, FilesOfOtherToolsHaveNone) {
  write_dataset(prefix_, {{1, 2}}, 50257);
  EXPECT_FALSE(read_record(prefix_));
  const std::vector<std::string> notes = check_records(std::vector{prefix_, prefix_}, &ours_, "data.tokenizer", 50257);
  ASSERT_EQ(notes.size(), 1u);
  expect_parts(notes[0], {prefix_ + ": no record of the tokenizer that made it (" + record_path(prefix_) + ")"});
}

TEST_F(RecordTest, OtherFilesThanTheRecordedAreRefused) {
  put("other", ours_, {{1}, {2, 3}, {}});  // as large, documents end elsewhere
  put("text", ours_, {{1, 2}, {3}, {}});
  const std::string idx = read_file(idx_path(prefix_));
  write_file(idx_path(prefix_), read_file(idx_path(folder_ / "other")));
  EXPECT_NO_THROW(IndexedDataset{prefix_}) << "the pair alone does not tell";
  expect_error<DataError>(
      [&] { read_record(prefix_); },
      {record_path(prefix_), idx_path(prefix_) + " has the recorded 90 bytes, but other content", "prepare the data again"});
  write_file(idx_path(prefix_), idx);
  EXPECT_TRUE(read_record(prefix_));
  write_file(bin_path(prefix_), "12345678");
  expect_error<DataError>([&] { read_record(prefix_); },
                          {bin_path(prefix_) + " has 8 bytes, the record says 6", "remove this file"});
}

// Every block of a file counts whose place is sampled; that is at most 64 KiB of it.
TEST_F(RecordTest, CountsOfOtherFilesAreRefused) {
  put("text", ours_, {{1, 2}, {3}, {}});
  const std::string whole = read_file(record_path(prefix_));
  for (const std::string key : {"tokens", "documents", "sequences", "num_sources", "source_bytes"}) {
    JsonValue record = parse_json(whole, "record");
    record.set(key, record.find(key)->as_integer() + 1);
    write_file(record_path(prefix_), to_json_text(record, 2));
    expect_error<DataError>([&] { read_record(prefix_); }, {record_path(prefix_), key, "prepare the data again"});
  }
  write_file(record_path(prefix_), whole);
  EXPECT_NO_THROW(read_record(prefix_));
}

TEST_F(RecordTest, SamplesAreSpreadOverTheFile) {
  std::string content(10'000'019, 'x');
  write_file(prefix_, content);
  std::size_t bytes_read = 0;
  const SampledFile before = sample_file(prefix_, [&](int descriptor, void* out, std::size_t bytes, off_t offset) {
    bytes_read += bytes;
    return ::pread(descriptor, out, bytes, offset);
  });
  EXPECT_EQ(bytes_read, std::size_t{64} << 10);
  int seen = 0;
  for (std::size_t at : {std::size_t{0}, content.size() - 1, std::size_t{9'997'000}, std::size_t{666'500}, std::size_t{5000}}) {
    content[at] = 'y';
    write_file(prefix_, content);
    seen += sample_file(prefix_).hash != before.hash;
    content[at] = 'x';
  }
  EXPECT_EQ(seen, 4);  // all but what lies between two blocks
}

TEST_F(RecordTest, DamagedRecordsAreRefused) {
  put("text", ours_);
  const std::string good = read_file(record_path(prefix_));
  for (const auto& [from, to, what] : std::vector<std::array<std::string, 3>>{
           {"{", "[", "trident.json:"},
           {"\"version\": 1", "\"version\": 3", "version is \"3\"; known is 1 or 2; damaged, or of another version: prepare"},
           {"\"version\": 1", "\"version\": 2", "mask is missing; known is an object"},
           {"\"version\": 1", "\"mask\": null, \"version\": 2", "mask is \"null\"; known is an object"},
           {"\"tokens\": 3", "\"tokens\": -3", "tokens is \"-3\"; known is a count"},
           {"\"tokens\": 3", "\"tokens\": \"3\"", "tokens is \"3\"; known is a count"},
           {"\"tokens\"", "\"Tokens\"", "tokens is missing; known is a count"},
           {"\"name\": \"ours\"", "\"name\": 5", "tokenizer.name is \"5\"; known is a string"},
           {"\"sources\": [", "\"sources\": 1, \"old\": [", "sources is \"1\"; known is a list"},
           {"\"bin\": {", "\"bin\": 1, \"old\": {", "bin is \"1\"; known is an object"}}) {
    write_file(record_path(prefix_), change(from, to));
    expect_error<DataError>([&] { read_record(prefix_); }, {record_path(prefix_), what, "remove this file"});
    write_file(record_path(prefix_), good);
  }
}

// As in the files of tokenizers.
TEST_F(RecordTest, MembersThatAreNullCountAsMissing) {
  put("text", ours_);
  const DatasetOrigin before = read_record(prefix_)->origin;
  const auto add_null = [&](const std::string& key, const std::string& beside) {
    write_file(record_path(prefix_), change(beside, fmt::format("\"{}\": null, {}", key, beside)));
  };
  for (const char* key : {"packed", "pairs", "options", "chat_template"}) add_null(key, "\"version\"");
  for (const char* key : {"special", "before", "after"}) add_null(key, "\"name\": \"ours\"");
  const DatasetOrigin after = read_record(prefix_)->origin;
  EXPECT_EQ(after.packed, std::nullopt);
  EXPECT_FALSE(after.pairs || after.tokenizer->plain);
  EXPECT_EQ(after.chat_template, before.chat_template);
  EXPECT_EQ(after.tokenizer->before, before.tokenizer->before);
  EXPECT_EQ(after.tokenizer->fingerprint, before.tokenizer->fingerprint);
}

TEST_F(RecordTest, TrainingComparesTokenizers) {
  const std::string a = put("a", ours_), b = put("b", others_), same = put("same", NamedTokenizer("another name", "a"));
  EXPECT_TRUE(check_records(std::vector{a, same}, &ours_, "data.tokenizer", 50257).empty());
  EXPECT_TRUE(check_records(std::vector{a, same}, nullptr, "data.tokenizer", 50304).empty());
  expect_error<DataError>(
      [&] { check_records(std::vector{a}, &others_, "data.tokenizer", 50257); },
      {record_path(a) + ": was made by tokenizer \"ours\"", "the one in use is tokenizer \"others\"",
       "name the one that made the data, --set data.tokenizer=ours, or"});
  const std::string known = put("known", NamedTokenizer("gpt2", "a")), bytes = put("bytes", *load_tokenizer("bytes", "T"));
  expect_error<DataError>([&] { check_records(std::vector{known}, &others_, "--tokenizer", 50257); },
                          {"put the one that made the data back, which gpt2 no longer is, or"});
  expect_error<DataError>([&] { check_records(std::vector{bytes}, &others_, "--tokenizer", 50257); },
                          {"name the one that made the data, --tokenizer bytes, or"});
  expect_error<DataError>([&] { check_records(std::vector{bytes}, &others_, "data.tokenizer", 50257); },
                          {"name the one that made the data, --set data.tokenizer=bytes, or"});
  expect_error<DataError>([&] { check_records(std::vector{a, b}, nullptr, "data.tokenizer", 50257); },
                          {record_path(b) + ": was made by tokenizer \"others\"", record_path(a) + " is tokenizer \"ours\""});
  expect_error<DataError>([&] { check_records(std::vector{a}, nullptr, "data.tokenizer", 50000); },
                          {"of 50257 tokens", "the model's vocabulary has 50000", "vocab_size to 50257 or more"});
}

TEST_F(RecordTest, MergesKeepWhatIsKnown) {
  const std::string a = put("a", ours_), same = put("same", NamedTokenizer("another name", "a")), b = put("b", others_);
  merge_datasets({a, same}, prefix_, Overwrite::kNo);
  const std::optional<DatasetRecord> merged = read_record(prefix_);
  ASSERT_TRUE(merged && merged->origin.tokenizer);
  EXPECT_EQ(merged->origin.tokenizer->fingerprint, "a");
  EXPECT_EQ(merged->origin.num_sources, 2);
  EXPECT_EQ(merged->origin.sources[1].name, "same.txt");
  EXPECT_EQ(merged->counts.documents, 6);
  expect_error<DataError>([&] { merge_datasets({a, b}, folder_ / "ab", Overwrite::kNo); },
                          {a + " was made by tokenizer \"ours\"", b + " by tokenizer \"others\"", "prepare the text again"});
  const auto merged_template = [&](const std::string& first, const std::string& second) {
    for (const auto& [to, chat_template] : {std::pair{a, first}, {same, second}}) {
      IndexedDatasetWriter writer(to, 50257, Overwrite::kYes);
      writer.add_document(std::vector<std::int32_t>{1, 2, 3});
      DatasetOrigin origin{.tokenizer = recorded(ours_), .sources = {}};
      origin.add({"chats.jsonl", 7});
      origin.chat_template = chat_template;
      writer.finish(origin);
    }
    merge_datasets({a, same}, prefix_, Overwrite::kYes);
    return read_record(prefix_)->origin.chat_template;
  };
  EXPECT_EQ(merged_template("x", "x"), "x");
  EXPECT_EQ(merged_template("x", "y"), "");
  EXPECT_EQ(merged_template("x", ""), "");
  EXPECT_EQ(merged_template("", "x"), "");
  remove_file(record_path(same));
  merge_datasets({a, same}, prefix_, Overwrite::kYes);
  const std::optional<DatasetRecord> partly = read_record(prefix_);
  ASSERT_TRUE(partly);
  EXPECT_FALSE(partly->origin.tokenizer);
  EXPECT_EQ(partly->origin.sources[1].name, bin_path(same));
  expect_parts(check_records(std::vector{prefix_}, &ours_, "data.tokenizer", 50257).at(0), {"parts of the merge have none"});
  write_file(bin_path(a), "123456");
  expect_error<DataError>([&] { merge_datasets({a}, folder_ / "x", Overwrite::kNo); }, {record_path(a), "other content"});
}

TEST_F(RecordTest, FingerprintsTellTokenizersApart) {
  const auto built_in = load_tokenizer("gpt2"), folder = load_tokenizer(TRIDENT_GPT2_FOLDER);
  EXPECT_EQ(built_in->fingerprint(), folder->fingerprint());
  for (const char* name : {"vocab.json", "merges.txt"})
    write_file(folder_ / name, read_file(fmt::format("{}/{}", TRIDENT_GPT2_FOLDER, name)));
  std::string merges = read_file(folder_ / "merges.txt");
  merges.pop_back();
  merges.resize(merges.rfind('\n') + 1);  // one merge less
  write_file(folder_ / "merges.txt", merges);
  const std::string fewer = load_tokenizer(folder_.path())->fingerprint();
  EXPECT_NE(fewer, built_in->fingerprint());
  const std::size_t last = merges.rfind('\n', merges.size() - 2) + 1, before = merges.rfind('\n', last - 2) + 1;
  const std::string a = merges.substr(before, last - before), b = merges.substr(last);
  write_file(folder_ / "merges.txt", merges.substr(0, before) + b + a);  // two merges in another order
  EXPECT_NE(load_tokenizer(folder_.path())->fingerprint(), fewer);
}

DatasetSummary summary_of(const Documents& documents, std::optional<std::int64_t> end_token, bool* every = nullptr) {
  const TemporaryFolder folder;
  write_dataset(folder / "d", documents, 128256);
  const IndexedDataset dataset(folder / "d");
  const DatasetSummary summary = summarize(dataset, {.end_token = end_token});
  if (every != nullptr) *every = summary.every_document_ends(dataset);
  return summary;
}

TEST(DatasetSummary, CountsLengthsAndIds) {
  const DatasetSummary summary = summary_of({{}, {7, 9}, {100000, 8, 7, 3, 4, 9}, {}, {5}}, std::nullopt);
  EXPECT_EQ(summary.empty_documents, 2);
  EXPECT_EQ(summary.shortest, 1);
  EXPECT_EQ(summary.longest, 6);
  EXPECT_DOUBLE_EQ(summary.mean_length, 3.0);
  ASSERT_TRUE(summary.ids);
  EXPECT_EQ(summary.ids->smallest, 3);
  EXPECT_EQ(summary.ids->largest, 100000);
}

TEST(DatasetSummary, EndsOfDocuments) {
  bool every = false;
  DatasetSummary summary = summary_of({{}, {7, 9}, {9}, {9, 9, 9}}, std::nullopt, &every);
  EXPECT_EQ(summary.end_token, 9);  // the first document's
  EXPECT_EQ(summary.documents_with_end_token, 3);
  EXPECT_TRUE(every);
  summary = summary_of({{7, 9}, {9, 8}}, 9, &every);
  EXPECT_EQ(summary.documents_with_end_token, 1);
  EXPECT_FALSE(every);
  summary = summary_of({{9, 7}, {9, 8}}, 9, &every);
  EXPECT_EQ(summary.end_token, 9);
  EXPECT_EQ(summary.documents_with_end_token, 0);
  EXPECT_FALSE(every);
}

TEST(DatasetSummary, NoTokensHaveNoExtremes) {
  for (const Documents& documents : {Documents{}, Documents{{}, {}}}) {
    bool every = true;
    const DatasetSummary summary = summary_of(documents, std::nullopt, &every);
    EXPECT_FALSE(summary.ids);
    EXPECT_FALSE(summary.end_token);
    EXPECT_FALSE(every);
    EXPECT_EQ(summary.mean_length, 0);
    EXPECT_EQ(summary.empty_documents, static_cast<std::int64_t>(documents.size()));
  }
}

// The largest id may stand anywhere, also in the last block that is read.
TEST(DatasetSummary, ExtremesAreFoundAnywhere) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, std::size_t{9000}, std::size_t{9999}}) {
    std::vector<std::int32_t> ids(10000, 50);
    ids[at] = 77;
    ids[(at + 5000) % 10000] = 3;
    const DatasetSummary summary = summary_of({ids}, std::nullopt);
    EXPECT_EQ(summary.ids->largest, 77) << at;
    EXPECT_EQ(summary.ids->smallest, 3) << at;
  }
}

class WholeCheck : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "d";

  DatasetSummary check(std::int64_t vocab_size = 1000) const {
    return summarize(IndexedDataset(prefix_), {.vocab_size = vocab_size});
  }
};

// More than a portion of 1 MB, with the odd token where a portion begins, ends, and last of all.
TEST_F(WholeCheck, NamesTheFirstIdOutside) {
  constexpr std::int64_t kDocument = 600'000, kPortion = std::int64_t{1} << 19;  // in tokens of two bytes
  for (const std::int64_t at : {std::int64_t{0}, kPortion - 1, kPortion, kDocument, 2 * kPortion + 5, 2 * kDocument - 1}) {
    Documents documents(2, std::vector<std::int32_t>(static_cast<std::size_t>(kDocument), 5));
    documents[static_cast<std::size_t>(at / kDocument)][static_cast<std::size_t>(at % kDocument)] = 77;
    if (at + 100 < 2 * kDocument) documents[1].back() = 78;
    write_dataset(prefix_, documents, 1000);
    EXPECT_EQ(check(79).ids->largest, at + 100 < 2 * kDocument ? 78 : 77);
    expect_error<DataError>([&] { check(77); }, {fmt::format("d.bin: token {} has id 77 (document {}, its token {})", at,
                                                             at / kDocument, at % kDocument)});
  }
}

TEST_F(WholeCheck, NamesTheFirstFaultOfTheIndex) {
  write_dataset(prefix_, counting_documents(70'000, 1000), 1000);  // 60 000 sequences: several blocks of each array
  const IndexedDataset sound(prefix_);
  EXPECT_EQ(check().empty_documents, 10'000);
  EXPECT_EQ(check().longest, 30);
  const std::string whole = read_file(idx_path(prefix_));
  const std::size_t lengths = 34, offsets = lengths + 4 * 60'000, entries = offsets + 8 * 60'000;
  const auto expect_fault = [&]<class T>(std::size_t at, T value, const std::string& message) {
    change(idx_path(prefix_), at, value);
    expect_error<DataError>([&] { check(); }, {"d.idx: " + message, "prepare the data again"});
    write_file(idx_path(prefix_), whole);
  };
  expect_fault(lengths + 4 * 40'001, std::int32_t{-9}, "length of sequence 40001 = -9");
  expect_fault(lengths + 4 * 40'001, std::int32_t{3}, "offset of sequence 40002 = ");
  expect_fault(offsets + 8 * 32'768, std::int64_t{6}, "offset of sequence 32768 = 6, expected ");
  expect_fault(offsets + 8 * 50'001, std::int64_t{1} << 50, "offset of sequence 50001 = ");
  expect_fault(entries + 8 * 65'001, std::int64_t{4}, "document index entry 65001 = 4: entries must ascend");
  expect_fault(entries + 8 * 32'768, std::int64_t{-1}, "document index entry 32768 = -1");
}

TEST_F(WholeCheck, TellsHowFarItIs) {
  write_dataset(prefix_, {std::vector<std::int32_t>(1'200'000, 5)}, 1000);
  std::vector<std::int64_t> done;
  summarize(IndexedDataset(prefix_), {}, [&](std::int64_t tokens, std::int64_t all) {
    done.push_back(tokens);
    EXPECT_EQ(all, 1'200'000);
  });
  EXPECT_EQ(done, (std::vector<std::int64_t>{524'288, 1'048'576, 1'200'000}));
}

TEST_F(WholeCheck, AFileThatIsCutMeanwhile) {
  write_dataset(prefix_, {std::vector<std::int32_t>(1'200'000, 5)}, 1000);
  const IndexedDataset dataset(prefix_);
  std::filesystem::resize_file(bin_path(prefix_), 1'500'000);
  expect_error<StorageError>([&] { summarize(dataset, {}); }, {"d.bin", "at byte 1500000 of 2400000", "became shorter"});
}

}  // namespace
}  // namespace trident
