// Files, tokens and samples beyond 2^31 and 2^32, in sparse files that take no room on the disk.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <set>

#include "data/batch_loader.h"
#include "data/dataset_sample.h"
#include "data/indexed_dataset_writer.h"
#include "data/merge_datasets.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

constexpr std::int64_t kLongest = (std::int64_t{1} << 31) - 1;  // tokens of the longest sequence that the format holds
constexpr std::int64_t kTokens = 3 * kLongest + 5;              // 6.4e9 tokens, 12.9 GB of u16
constexpr std::uint16_t kTail[] = {11, 12, 13, 14, 15};         // the last ones; all others are 0

class LargeFilesTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "large";

  // Three documents of 2^31 - 1 tokens and one of five.
  void SetUp() override {
    const int file = ::open(bin_path(prefix_).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const bool is_there =
        file >= 0 && ::ftruncate(file, 2 * kTokens) == 0 && ::pwrite(file, kTail, sizeof kTail, 2 * (kTokens - 5)) == sizeof kTail;
    const std::string why = std::strerror(errno);
    if (file >= 0) ::close(file);
    if (!is_there) GTEST_SKIP() << "no sparse file of " << 2 * kTokens << " bytes in " << folder_.path() << ": " << why;
    AtomicFile idx(idx_path(prefix_));
    append_index_header(idx, TokenType::kU16, 4, 4);
    for (const std::int64_t length : {kLongest, kLongest, kLongest, std::int64_t{5}})
      append_value(idx, static_cast<std::int32_t>(length));
    for (const std::int64_t sequence : {0, 1, 2, 3}) append_value(idx, 2 * sequence * kLongest);
    for (const std::int64_t sequence : {0, 1, 2, 3, 4}) append_value(idx, sequence);
    idx.commit();
  }
};

TEST_F(LargeFilesTest, TokensAtTheFarEnd) {
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.num_tokens(), kTokens);
  EXPECT_EQ(dataset.num_documents(), 4);
  EXPECT_EQ(dataset.document_begin(2), 4'294'967'294);
  EXPECT_EQ(dataset.document_begin(3), 6'442'450'941);
  EXPECT_EQ(dataset.document_begin(4), kTokens);
  EXPECT_EQ(tokens_of(dataset, kTokens - 6, 6, 100), (std::vector<std::int32_t>{0, 11, 12, 13, 14, 15}));
  EXPECT_EQ(dataset.token_at(kTokens - 1), 15);
  EXPECT_EQ(dataset.token_at(kTokens - 6), 0);
  EXPECT_NO_THROW(tokens_of(dataset, kTokens - 5000, 5000, 16));
  expect_error<DataError>([&] { tokens_of(dataset, kTokens - 5000, 5000, 15); },
                          {"token 6442450945 has id 15 (document 3, its token 4)"});
  dataset.will_need(kTokens - 5000, 5000);
}

TEST_F(LargeFilesTest, SamplesBeyondTwoToTheThirtyTwo) {
  const std::vector<WeightedPath> train = {{prefix_, 1}};
  const TokenSources sources = open_token_sources(train, {}, {});
  EXPECT_NO_THROW(sample_dataset(*sources.train[0].dataset, 16));
  expect_error<DataError>([&] { sample_dataset(*sources.train[0].dataset, 15); }, {"token 6442450945 has id 15"});
  BatchLoader loader(sources.train, {.sequence = 1, .vocab_size = 100, .seed = 1, .shuffle = Shuffle::kInOrder});
  EXPECT_EQ(loader.samples_per_epoch(), kTokens - 1);
  std::int32_t tokens[3], targets[3];
  for (const std::int64_t epoch : {0, 1, 1000}) {  // positions beyond 2^42
    const std::int64_t first = epoch * (kTokens - 1) + kTokens - 4;
    loader.prefetch(first, 3);
    loader.load(first, 3, tokens, targets);
    EXPECT_EQ(tokens[0], 12);
    EXPECT_EQ(targets[2], 15);
  }
  const TokenSources split = open_token_sources(train, {}, "3,1");  // documents 0 to 2 and the last
  EXPECT_EQ(split.valid[0].first_token, 3 * kLongest);
  BatchLoader valid(split.valid, {.sequence = 4, .vocab_size = 100, .seed = 1, .shuffle = Shuffle::kPerEpoch});
  std::int32_t last[4];
  valid.load(7, 1, {}, last);
  EXPECT_EQ(std::vector<std::int32_t>(last, last + 4), (std::vector<std::int32_t>{12, 13, 14, 15}));
}

// The offsets of a merged index are bytes, beyond 2^34 here. (The .bin would be written out in full: its copy is tested small.)
TEST_F(LargeFilesTest, MergedOffsets) {
  std::vector<IndexedDataset> datasets;
  datasets.emplace_back(prefix_);
  datasets.emplace_back(prefix_);
  AtomicFile idx(folder_ / "merged.idx");
  append_merged_index(idx, datasets);
  idx.commit();
  const std::string bytes = read_file(folder_ / "merged.idx");
  ASSERT_EQ(bytes.size(), 34u + 12 * 8 + 8 * 9);
  std::int64_t offsets[8], documents[9];
  std::memcpy(offsets, bytes.data() + 34 + 4 * 8, sizeof offsets);
  std::memcpy(documents, bytes.data() + 34 + 12 * 8, sizeof documents);
  EXPECT_EQ(std::vector<std::int64_t>(offsets, offsets + 8),
            (std::vector<std::int64_t>{0, 4'294'967'294, 8'589'934'588, 12'884'901'882, 12'884'901'892, 17'179'869'186,
                                       21'474'836'480, 25'769'803'774}));
  EXPECT_EQ(std::vector<std::int64_t>(documents, documents + 9), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(LargeOrders, AreOrdersOfAllSamples) {
  constexpr std::int64_t kSamples = 6'000'000'001;
  const SampleOrder order(kSamples, 5, Shuffle::kPerEpoch);
  std::set<std::int64_t> seen;
  std::int64_t beyond = 0;
  for (std::int64_t i = 0; i < 20'000; ++i) {
    const std::int64_t sample = order.sample_at(kSamples - 20'000 + i);  // of epoch 0, at its end
    ASSERT_GE(sample, 0);
    ASSERT_LT(sample, kSamples);
    seen.insert(sample);
    beyond += sample >= std::int64_t{1} << 32;
  }
  EXPECT_EQ(seen.size(), 20'000u);
  EXPECT_NEAR(static_cast<double>(beyond) / 20'000, 1 - 4294967296.0 / kSamples, 0.02);
  EXPECT_EQ(SampleOrder(kSamples, 5, Shuffle::kInOrder).sample_at(7 * kSamples + 5'999'999'999), 5'999'999'999);
  const BatchSlicing slicing{.global = 4096, .micro = 2, .data_ranks = 64};
  EXPECT_EQ(slicing.first_sample(10'000'000, 3, 5), 40'960'000'000 + (3 * 64 + 5) * 2);
}

}  // namespace
}  // namespace trident
