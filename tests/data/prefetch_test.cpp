// Prefetching: which pages are asked for, and that it changes nothing else.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <thread>

#include "data/batch_loader.h"
#include "data/dataset_sample.h"
#include "device/no_allocation.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

constexpr std::int64_t kSequence = 8192, kPrefetched = std::int64_t{1} << 21;  // 4 MiB of u16
constexpr std::int64_t kSampleBytes = 2 * kSequence;

// A mapping of its own that tells which pages of a file are in memory.
class Residency {
 public:
  explicit Residency(const std::string& path) : size_(std::filesystem::file_size(path)), flags_((size_ + page_ - 1) / page_) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    TRIDENT_CHECK(address_ != MAP_FAILED);
  }
  ~Residency() { ::munmap(address_, size_); }
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  void look() { TRIDENT_CHECK(::mincore(address_, size_, flags_.data()) == 0); }
  std::int64_t num_pages() const {
    return std::count_if(flags_.begin(), flags_.end(), [](unsigned char flag) { return (flag & 1) != 0; });
  }
  // Whether every page of these bytes is there.
  bool holds(std::int64_t offset, std::int64_t bytes) const {
    for (std::int64_t at = offset / page_; at <= (offset + bytes - 1) / page_; ++at)
      if ((flags_[static_cast<std::size_t>(at)] & 1) == 0) return false;
    return true;
  }
  std::int64_t pages_of(std::int64_t bytes) const { return (bytes + page_ - 1) / page_ + 1; }

 private:
  std::int64_t page_ = ::sysconf(_SC_PAGESIZE);
  std::size_t size_;
  void* address_;
  std::vector<unsigned char> flags_;
};

void drop_from_memory(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

class PrefetchTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string first_ = folder_ / "first", second_ = folder_ / "second";

  void SetUp() override {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(kPrefetched));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 50021);
    write_dataset(first_, {ids}, 50257);
    write_dataset(second_, {std::vector<std::int32_t>(static_cast<std::size_t>(kPrefetched), 7)}, 50257);
  }
  BatchLoader loader(std::vector<WeightedPath> paths, Shuffle shuffle = Shuffle::kInOrder) {
    return BatchLoader(open_token_sources(paths, {}, {}).train,
                       {.sequence = kSequence, .vocab_size = 50257, .seed = 3, .shuffle = shuffle});
  }
};

TEST_F(PrefetchTest, BringsTheSamplesOfAStepAndNotTheFile) {
  Residency pages(bin_path(first_));
  drop_from_memory(bin_path(first_));
  pages.look();
  if (pages.num_pages() > 0) GTEST_SKIP() << "this file system keeps files in memory: " << folder_.path();
  BatchLoader mine = loader({{first_, 1}});
  // Step 2 of 8 samples in micro-batches of 2 on 2 data ranks: rank 1 takes samples 18, 19, 22, 23.
  mine.prefetch_step({.global = 8, .micro = 2, .data_ranks = 2}, 2, 1);
  const auto there = [&] {
    pages.look();
    for (const std::int64_t sample : {18, 19, 22, 23})
      if (!pages.holds(sample * kSampleBytes, kSampleBytes + 2)) return false;
    return true;
  };
  for (int i = 0; i < 6000 && !there(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the disk works on its own
  EXPECT_TRUE(there());
  EXPECT_FALSE(pages.holds(16 * kSampleBytes, kSampleBytes));  // rank 0's
  EXPECT_FALSE(pages.holds(40 * kSampleBytes, kSampleBytes));
  EXPECT_LE(pages.num_pages(), 2 * pages.pages_of(2 * kSampleBytes + 2));
}

// 128 tokens are 128 pages of 1024: the kernel's read-ahead would bring them all.
TEST_F(PrefetchTest, AStartReadsPagesAndNoNeighbours) {
  Residency pages(bin_path(first_));
  drop_from_memory(bin_path(first_));
  pages.look();
  if (pages.num_pages() > 0) GTEST_SKIP() << "this file system keeps files in memory: " << folder_.path();
  sample_dataset(IndexedDataset(first_), 50257);
  pages.look();
  EXPECT_GT(pages.num_pages(), 0);
  EXPECT_LE(pages.num_pages(), kSampledTokens);
}

TEST_F(PrefetchTest, ChangesNothingThatIsLoaded) {
  const std::vector<WeightedPath> blend = {{first_, 3}, {second_, 2}};
  BatchLoader plain = loader(blend, Shuffle::kPerEpoch), ahead = loader(blend, Shuffle::kPerEpoch);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(2 * kSequence)), targets(tokens), same(tokens), same_targets(tokens);
  for (std::int64_t position = 0; position < 60; position += 2) {
    ahead.prefetch(position + 20, 2);
    if (position == 30) ahead.prefetch(3, 5);  // also backwards
    ahead.load(position, 2, {same, same_targets});
    plain.load(position, 2, {tokens, targets});
    ASSERT_EQ(tokens, same);
    ASSERT_EQ(targets, same_targets);
  }
}

TEST_F(PrefetchTest, AllocatesNothing) {
  BatchLoader mine = loader({{first_, 3}, {second_, 2}}, Shuffle::kPerEpoch);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(kSequence)), targets(tokens);
  const NoAllocationScope scope("loading");
  for (std::int64_t position = 0; position < 40; ++position) {
    mine.prefetch(position + 8, 1);
    mine.load(position, 1, {tokens, targets});
  }
}

TEST_F(PrefetchTest, WhatIsOutsideIsABug) {
  const IndexedDataset dataset(first_);
  EXPECT_NO_THROW(dataset.will_need(kPrefetched, 0));
  EXPECT_NO_THROW(dataset.will_need(kPrefetched - 1, 1));
  EXPECT_THROW(dataset.will_need(kPrefetched - 1, 2), InternalError);
  EXPECT_THROW(dataset.will_need(-1, 1), InternalError);
}

}  // namespace
}  // namespace trident
