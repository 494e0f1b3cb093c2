// What start-up looks at: the same few places whatever the size.
#include "data/dataset_sample.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <set>

#include "data/token_source.h"
#include "tests/data/huge_dataset.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

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
  template <class T>
  void change(const std::string& path, std::size_t offset, T value) {
    std::string bytes = read_file(path);
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    write_file(path, bytes);
  }
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

TEST_F(SampleTest, EntriesThatDescend) {
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
