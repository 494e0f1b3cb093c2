#include "data/indexed_dataset.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "data/dataset_sample.h"
#include "data/dataset_summary.h"
#include "data/indexed_dataset_writer.h"
#include "data/token_source.h"
#include "tests/data/huge_dataset.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

// Documents [5, 6, 7] and [8] as u16, from Megatron-LM's own writer.
constexpr const char* kGoldenIdx =
    "4d4d494449445800000100000000000000080200000000000000030000000000000003000000010000000000"
    "0000000000000600000000000000000000000000000001000000000000000200000000000000";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::vector<std::int32_t> tokens_of(const IndexedDataset& dataset, std::int64_t vocab_size) {
  return tokens_of(dataset, 0, dataset.num_tokens(), vocab_size);
}

class IndexedDatasetTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "text";
  std::string idx_ = prefix_ + ".idx";
  std::string bin_ = prefix_ + ".bin";

  void write_golden() {
    write_file(idx_, from_hex(kGoldenIdx));
    write_file(bin_, std::string("\5\0\6\0\7\0\10\0", 8));
  }
  // The golden with the bytes of `value` at `offset` of its .idx.
  template <class T> void write_with(std::size_t offset, T value) {
    write_golden();
    std::string idx = read_file(idx_);
    std::memcpy(idx.data() + offset, &value, sizeof value);
    write_file(idx_, idx);
  }
  void expect_refused(const std::vector<std::string>& parts) {
    // By start-up, which looks at few places: in files as small as these at all of them.
    expect_error<DataError>([&] { sample_dataset(IndexedDataset{prefix_}, 1000); }, parts);
  }
};

TEST_F(IndexedDatasetTest, WritesMegatronsBytes) {
  write_dataset(prefix_, {{5, 6, 7}, {8}}, 50257);
  EXPECT_EQ(read_file(idx_), from_hex(kGoldenIdx));
  EXPECT_EQ(read_file(bin_), std::string("\5\0\6\0\7\0\10\0", 8));
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"text.bin", "text.idx"}));
}

TEST_F(IndexedDatasetTest, ReadsMegatronsBytes) {
  write_golden();
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.type(), TokenType::kU16);
  EXPECT_EQ(dataset.num_sequences(), 2);
  EXPECT_EQ(dataset.num_documents(), 2);
  EXPECT_EQ(dataset.num_tokens(), 4);
  EXPECT_EQ(dataset.document_begin(0), 0);
  EXPECT_EQ(dataset.document_begin(1), 3);
  EXPECT_EQ(dataset.document_begin(2), 4);
  EXPECT_EQ(tokens_of(dataset, 9), (std::vector<std::int32_t>{5, 6, 7, 8}));
}

TEST_F(IndexedDatasetTest, VocabularyDecidesTheType) {
  for (const auto& [vocab, type] : {std::pair{65499, TokenType::kU16}, {65500, TokenType::kI32}, {128256, TokenType::kI32}}) {
    const Documents documents = {{0, vocab - 1}, {}, {7}};
    write_dataset(prefix_, documents, vocab);
    const IndexedDataset dataset(prefix_);
    EXPECT_EQ(dataset.type(), type);
    EXPECT_EQ(read_file(bin_).size(), static_cast<std::size_t>(3 * size_of(type)));
    EXPECT_EQ(tokens_of(dataset, vocab), concatenation(documents));
  }
}

TEST_F(IndexedDatasetTest, EmptyDocumentsAndEmptyDataAreRead) {
  write_dataset(prefix_, {{}, {1, 2}, {}, {}, {3}, {}}, 10);
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.num_documents(), 6);
  EXPECT_EQ(dataset.num_sequences(), 2);  // an empty document has none
  IndexReader index(dataset);
  EXPECT_EQ(index.sequence_length(0), 2);
  EXPECT_EQ(index.first_sequence(1), 0);
  EXPECT_EQ(index.first_sequence(2), 1);
  EXPECT_EQ(index.first_sequence(4), 1);
  EXPECT_EQ(index.first_sequence(6), 2);
  EXPECT_EQ(dataset.document_begin(1), 0);
  EXPECT_EQ(dataset.document_begin(4), 2);
  EXPECT_EQ(dataset.document_begin(6), 3);
  write_dataset(prefix_, {}, 10);
  EXPECT_EQ(IndexedDataset(prefix_).num_tokens(), 0);
}

TEST_F(IndexedDatasetTest, EveryIntegerTypeIsRead) {
  for (const auto& [code, bytes] : {std::pair{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}}) {
    std::string idx = from_hex(kGoldenIdx), bin(static_cast<std::size_t>(4 * bytes), '\0');
    for (std::size_t i = 0; i < 4; ++i) bin[i * static_cast<std::size_t>(bytes)] = static_cast<char>(5 + i);
    idx[17] = static_cast<char>(code);
    idx[50] = static_cast<char>(3 * bytes);
    write_file(idx_, idx);
    write_file(bin_, bin);
    const IndexedDataset dataset(prefix_);
    EXPECT_EQ(tokens_of(dataset, 9), (std::vector<std::int32_t>{5, 6, 7, 8})) << code;
    expect_error<DataError>([&] { tokens_of(dataset, 8); }, {bin_, "token 3 has id 8", "vocabulary of 8"});
  }
}

TEST_F(IndexedDatasetTest, DocumentsMayHaveSeveralSequences) {
  std::string idx = from_hex(kGoldenIdx);
  idx[26] = 2;                // one document
  idx.erase(34 + 24 + 8, 8);  // without the entry between 0 and 2
  write_golden();
  write_file(idx_, idx);
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.num_documents(), 1);
  EXPECT_EQ(dataset.num_sequences(), 2);
  EXPECT_EQ(dataset.document_begin(1), 4);
}

TEST_F(IndexedDatasetTest, TokensOutsideTheVocabularyAreNamed) {
  write_golden();
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(tokens_of(dataset, 1, 2, 8), (std::vector<std::int32_t>{6, 7}));
  expect_error<DataError>([&] { tokens_of(dataset, 2, 2, 8); },
                          {bin_, "token 3 has id 8 (document 1, its token 0)", "vocabulary of 8", "vocab_size"});
  write_with<std::uint8_t>(17, 3);  // the same bytes as i16
  write_file(bin_, std::string("\5\0\377\377\7\0\10\0", 8));
  expect_error<DataError>([&] { tokens_of(IndexedDataset(prefix_), 100); }, {"token 1 has id -1 (document 0, its token 1)"});
  EXPECT_THROW(tokens_of(dataset, 3, 2, 8), InternalError);
  EXPECT_THROW(tokens_of(dataset, -1, 2, 8), InternalError);
}

TEST_F(IndexedDatasetTest, MissingFilesAreNamed) {
  expect_refused({idx_, "no such file", "prefix"});
  write_golden();
  std::filesystem::remove(bin_);
  expect_refused({bin_, "no such file"});
  write_golden();
  expect_error<DataError>([&] { IndexedDataset{bin_}; }, {bin_ + ".idx", "give the prefix alone: "});
}

TEST_F(IndexedDatasetTest, EveryTruncationOfTheIndexIsRefused) {
  const std::string idx = from_hex(kGoldenIdx);
  write_golden();
  for (std::size_t size = 0; size < idx.size(); ++size) {
    write_file(idx_, idx.substr(0, size));
    expect_refused({idx_, size < 34 ? "truncated" : "do not fit its", "prepare the data again"});
  }
  write_file(idx_, idx + "xx");  // the modes of multimodal data
  expect_refused({idx_, "do not fit its 84 bytes"});
}

TEST_F(IndexedDatasetTest, WrongSizesOfTheBinAreRefused) {
  write_golden();
  write_file(bin_, std::string("\5\0\6\0\7\0\10", 7));
  expect_refused({bin_, "too short", "7 bytes", "ends at 8"});
  write_file(bin_, std::string(10, '\0'));
  expect_refused({bin_, "10 bytes", "describes 8"});
  write_file(bin_, "");
  expect_refused({bin_, "too short"});
}

TEST_F(IndexedDatasetTest, EveryFieldIsChecked) {
  write_with<char>(0, 'X');
  expect_refused({idx_, "magic"});
  write_with<std::uint64_t>(9, 2);
  expect_refused({idx_, "version = 2"});
  for (const int code : {0, 6, 7, 9, 255}) {
    write_with(17, static_cast<std::uint8_t>(code));
    expect_refused({idx_, fmt::format("dtype code = {}", code)});
  }
  for (const std::uint64_t count :
       {std::uint64_t{3}, ~std::uint64_t{0}, std::uint64_t{1} << 63, (std::uint64_t{1} << 62) + 2}) {
    write_with(18, count);
    expect_refused({idx_, "sequence_count", "do not fit"});
    write_with(26, count + 1);
    expect_refused({idx_, "document_count", "do not fit"});
  }
  write_with<std::int32_t>(34, -3);
  expect_refused({idx_, "length of sequence 0 = -3"});
  write_with<std::int32_t>(34, 2);
  expect_refused({idx_, "offset of sequence 1 = 6, expected 4"});
  write_with<std::int32_t>(38, 2'000'000'000);
  expect_refused({bin_, "too short"});
  write_with<std::int64_t>(42, 2);
  expect_refused({idx_, "offset of sequence 0 = 2, expected 0"});
  write_with<std::int64_t>(50, -6);
  expect_refused({idx_, "offset of sequence 1 = -6"});
  write_with<std::int64_t>(58, 1);
  expect_refused({idx_, "document index entry 0 = 1"});
  write_with<std::int64_t>(66, 3);
  expect_refused({idx_, "document index entry 1 = 3"});
  write_with<std::int64_t>(74, 1);
  expect_refused({idx_, "ends at sequence 1, expected 2"});
}

TEST_F(IndexedDatasetTest, AnIndexWithoutDocumentEntriesIsRefused) {
  std::string idx = from_hex(kGoldenIdx).substr(0, 34);
  std::memset(idx.data() + 18, 0, 16);
  write_golden();
  write_file(idx_, idx);
  expect_refused({idx_, "document_count = 0"});
}

// Garbage is read or refused, never anything else (the sanitizers watch).
TEST_F(IndexedDatasetTest, MutatedFilesAreReadOrRefused) {
  write_dataset(prefix_, counting_documents(9, 50), 50);
  const std::string idx = read_file(idx_);
  std::uint64_t state = 3;
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>((state = state * 6364136223846793005u + 1) >> 33) % n; };
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = idx;
    for (std::size_t k = 0; k <= draw(4); ++k) damaged[draw(damaged.size())] = static_cast<char>(draw(4) == 0 ? 255 : draw(256));
    if (draw(8) == 0) damaged.resize(draw(damaged.size()));
    write_file(idx_, damaged);
    try {
      const IndexedDataset dataset(prefix_);
      for (std::int64_t d = 0; d <= dataset.num_documents(); ++d) dataset.document_begin(d);
      if (round % 2 == 0)
        sample_dataset(dataset, 50);
      else
        summarize(dataset, {.vocab_size = 50});
      tokens_of(dataset, 40);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST_F(IndexedDatasetTest, PositionsReachBeyondTwoToThe31) {
  // Three sequences of 2^30 zeros and one of [41, 42], in a file with holes.
  constexpr std::int64_t kLong = std::int64_t{1} << 30, kTokens = 3 * kLong + 2;
  std::string idx = "MMIDIDX" + std::string(2, '\0');
  const auto put = [&]<class T>(T value) { idx.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint64_t{1}), put(std::uint8_t{8}), put(std::uint64_t{4}), put(std::uint64_t{5});
  for (int s = 0; s < 3; ++s) put(static_cast<std::int32_t>(kLong));
  put(std::int32_t{2});
  for (std::int64_t s = 0; s < 4; ++s) put(2 * s * kLong);
  for (std::int64_t d = 0; d < 5; ++d) put(d);
  write_file(idx_, idx);
  const int file = ::open(bin_.c_str(), O_RDWR | O_CREAT, 0600);
  const std::uint16_t last[2] = {41, 42};
  const bool sparse = ::ftruncate(file, 2 * kTokens) == 0 && ::pwrite(file, last, sizeof last, 6 * kLong) == sizeof last;
  ::close(file);
  if (!sparse) GTEST_SKIP() << "this file system has no room for a file of 6 GiB with holes";

  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.num_tokens(), kTokens);
  EXPECT_EQ(dataset.document_begin(3), 3 * kLong);
  EXPECT_EQ(tokens_of(dataset, 3 * kLong - 1, 3, 50), (std::vector<std::int32_t>{0, 41, 42}));
  expect_error<DataError>([&] { tokens_of(dataset, 3 * kLong, 2, 42); },
                          {fmt::format("token {} has id 42 (document 3, its token 1)", 3 * kLong + 1)});
}

TEST_F(IndexedDatasetTest, AnUnfinishedWriterLeavesNothing) {
  {
    IndexedDatasetWriter writer(prefix_, 100, Overwrite::kNo);
    writer.add_document(std::vector<std::int32_t>{1, 2, 3});
    EXPECT_EQ(writer.num_tokens(), 3);
    EXPECT_EQ(writer.num_documents(), 1);
  }
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(IndexedDatasetTest, WhatAppearsMeanwhileIsNotReplaced) {
  IndexedDatasetWriter writer(prefix_, 100, Overwrite::kNo);
  writer.add_document(std::vector<std::int32_t>{1, 2, 3});
  std::filesystem::create_directory(idx_);
  expect_error<ConfigError>([&] { writer.finish({}); }, {idx_ + " is there without " + bin_, "remove it"});
  EXPECT_FALSE(file_exists(bin_));
}

TEST_F(IndexedDatasetTest, TheWriterRefusesIdsOutsideItsVocabulary) {
  IndexedDatasetWriter writer(prefix_, 100, Overwrite::kNo);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{100}), InternalError);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{-1}), InternalError);
}

// Start-up looks at the same few places whatever the size.

TEST(SpreadPlaces, FirstToLast) {
  for (const std::int64_t n :
       {std::int64_t{129}, std::int64_t{1000}, std::int64_t{500'000'000'000}, std::numeric_limits<std::int64_t>::max()}) {
    std::set<std::int64_t> places;
    for (std::int64_t i = 0; i < 128; ++i) places.insert(spread_place(i, 128, n));
    EXPECT_EQ(places.size(), 128u) << n;
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), n - 1);
    std::int64_t before = -1, least = n, most = 0;
    for (const std::int64_t place : places) {
      if (before >= 0) least = std::min(least, place - before), most = std::max(most, place - before);
      before = place;
    }
    EXPECT_LE(most - least, 1) << "evenly, " << n;
  }
  for (const std::int64_t n : {1, 2, 128})
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(spread_place(i, 128, n), i) << "all of " << n;
}

class SampleTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "d";

  std::uint64_t sample(std::int64_t vocab_size = 1000) const { return sample_dataset(IndexedDataset(prefix_), vocab_size); }
};

TEST_F(SampleTest, FewFilesAreLookedAtWhole) {
  write_dataset(prefix_, counting_documents(20, 1000), 1000);
  const std::string bin = read_file(bin_path(prefix_));
  ASSERT_LE(bin.size(), 2u * 400);
  const std::uint64_t before = sample();
  EXPECT_EQ(sample(), before);
  std::set<std::uint64_t> seen{before};
  for (std::size_t place = 0; place < 128; ++place) {  // of those that are looked at
    const auto token =
        static_cast<std::size_t>(spread_place(static_cast<std::int64_t>(place), 128, static_cast<std::int64_t>(bin.size()) / 2));
    change(bin_path(prefix_), 2 * token, std::uint16_t{999});
    EXPECT_TRUE(seen.insert(sample()).second) << token;
    expect_error<DataError>([&] { sample(999); }, {fmt::format("token {} has id 999 (document ", token)});
    write_file(bin_path(prefix_), bin);
  }
  EXPECT_EQ(sample(), before);
}

// Manifests of checkpoints hold this number: a run that another version began is resumed only where it stays.
TEST_F(SampleTest, TheHashOfADatasetStays) {
  write_dataset(prefix_, {{5, 6, 7}, {8}}, 1000);
  EXPECT_EQ(sample(), 0x494da76c197788a4u);
}

// Two datasets of equal sizes and tokens, cut into documents at other places.
TEST_F(SampleTest, TheIndexCounts) {
  write_dataset(prefix_, {{1, 2, 3}, {4}}, 1000);
  const std::uint64_t before = sample();
  write_dataset(prefix_, {{1, 2}, {3, 4}}, 1000);
  const std::uint64_t cut = sample();
  EXPECT_NE(before, cut);
  write_dataset(prefix_, {{}, {1, 2}, {3, 4}}, 1000);
  const std::uint64_t first_empty = sample();
  write_dataset(prefix_, {{1, 2}, {}, {3, 4}}, 1000);
  EXPECT_NE(sample(), first_empty);
}

TEST_F(SampleTest, EntriesThatDescendAreNamed) {
  write_dataset(prefix_, counting_documents(7, 1000), 1000);  // six sequences, eight entries: 0 0 1 2 3 4 5 6
  change(idx_path(prefix_), 34 + 12 * 6 + 8 * 3, std::int64_t{5});
  expect_error<DataError>([&] { sample(); }, {"d.idx", "document index entry 4 = 3", "ascend"});
}

// 500 billion tokens: what is read does not grow with them.
TEST_F(SampleTest, StartsOnATerabyteAsOnTwentyMegabytes) {
  HugeDataset small(folder_ / "small", 2000, 5000), huge(folder_ / "huge", 100'000'000, 5000);
  if (!huge.is_there()) GTEST_SKIP() << "no sparse file of 1 TB in " << folder_.path();
  const std::int64_t last_document = huge.num_tokens() - 5000;
  huge.put_token(huge.num_tokens() - 1, 77);
  for (HugeDataset* dataset : {&small, &huge}) {
    const std::vector<WeightedPath> train = {{dataset->prefix(), 1}};
    const TokenSources sources = open_token_sources(train, {}, "98,1,1", dataset->read_at());
    EXPECT_EQ(sources.train[0].num_tokens, dataset->num_tokens() / 100 * 98);
    EXPECT_EQ(sources.valid[0].first_token, dataset->num_tokens() / 100 * 98);
    EXPECT_EQ(sources.valid[0].num_tokens, dataset->num_tokens() / 100);
    EXPECT_LE(dataset->bytes_read, 200) << "by every rank";
    sample_dataset(*sources.train[0].dataset, 100);
    EXPECT_LE(dataset->bytes_read, 4096) << "by one rank of a node";
  }
  EXPECT_EQ(huge.bytes_read, small.bytes_read);
  EXPECT_EQ(huge.num_reads, small.num_reads);

  const IndexedDataset dataset(huge.prefix(), huge.read_at());
  EXPECT_EQ(dataset.document_begin(99'999'999), last_document);
  expect_error<DataError>([&] { sample_dataset(dataset, 77); },
                          {"huge.bin: token 499999999999 has id 77 (document 99999999, its token 4999)"});
}

}  // namespace
}  // namespace trident
