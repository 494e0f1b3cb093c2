#include "data/dataset_record.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "data/dataset_files.h"
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
  NamedTokenizer(std::string name, std::string fingerprint) : name_(std::move(name)), fingerprint_(std::move(fingerprint)) {}
  std::unique_ptr<Encoder> new_encoder() const override { throw InternalError("encodes nothing"); }
  std::string decode(std::span<const std::int32_t>) const override { return {}; }
  std::int64_t vocab_size() const override { return 50257; }
  std::int32_t eod() const override { return 0; }
  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::string name_, fingerprint_;
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
    std::string text = read_file(record_path(prefix_));
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    return text.replace(at, from.size(), to);
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
           {"\"version\": 1", "\"version\": 2", "version is 2"},
           {"\"tokens\": 3", "\"tokens\": -3", "tokens is not a count"},
           {"\"tokens\": 3", "\"tokens\": \"3\"", "tokens is not a count"},
           {"\"tokens\"", "\"Tokens\"", "tokens is missing"},
           {"\"name\": \"ours\"", "\"name\": 5", "name is not a string"},
           {"\"sources\": [", "\"sources\": 1, \"old\": [", "sources is not a list"},
           {"\"bin\": {", "\"bin\": 1, \"old\": {", "no object"}}) {
    write_file(record_path(prefix_), change(from, to));
    expect_error<DataError>([&] { read_record(prefix_); }, {record_path(prefix_), what, "remove this file"});
    write_file(record_path(prefix_), good);
  }
}

TEST_F(RecordTest, TrainingComparesTokenizers) {
  const std::string a = put("a", ours_), b = put("b", others_), same = put("same", NamedTokenizer("another name", "a"));
  EXPECT_TRUE(check_records(std::vector{a, same}, &ours_, "data.tokenizer", 50257).empty());
  EXPECT_TRUE(check_records(std::vector{a, same}, nullptr, "data.tokenizer", 50304).empty());
  expect_error<DataError>(
      [&] { check_records(std::vector{a}, &others_, "data.tokenizer", 50257); },
      {record_path(a) + ": was made by tokenizer \"ours\"", "data.tokenizer is tokenizer \"others\"", "name the one"});
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

}  // namespace
}  // namespace trident
