#include "data/loss_mask.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "core/int_math.h"
#include "data/batch_loader.h"
#include "data/dataset_sample.h"
#include "data/dataset_summary.h"
#include "data/merge_datasets.h"
#include "device/no_allocation.h"
#include "tests/data/huge_dataset.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using Bits = std::vector<std::uint8_t>;

// Neither periodic in 8 nor equal to a shift of itself.
Bits bits_of(std::int64_t tokens) {
  Bits bits;
  for (std::int64_t t = 0; t < tokens; ++t) bits.push_back(t * t % 11 % 3 == 1 || t % 13 == 0);
  return bits;
}

// The file as docs/data.md has it, made without the writer.
std::string mask_file(const Bits& bits) {
  std::string file("TMSK\1\0\0\0", 8);
  for (int i = 0; i < 8; ++i) file += static_cast<char>(bits.size() >> 8 * i & 0xFF);
  file.resize(16 + (bits.size() + 7) / 8);
  for (std::size_t t = 0; t < bits.size(); ++t) file[16 + t / 8] = static_cast<char>(file[16 + t / 8] | bits[t] << t % 8);
  return file;
}

Bits write_masked(const std::string& prefix, const Documents& documents, std::int64_t vocab_size) {
  const Bits bits = bits_of(std::ssize(concatenation(documents)));
  write_masked_dataset(prefix, documents, bits, vocab_size);
  return bits;
}

class LossMaskTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "text";

  LossMask mask(std::int64_t tokens) const { return {RandomAccessFile(mask_path(prefix_)), tokens}; }
};

TEST_F(LossMaskTest, AFileHasOneBitForEachTokenWhateverTheirNumber) {
  for (const std::int64_t tokens : {0, 1, 7, 8, 9, 15, 17, 64}) {
    const Bits bits = bits_of(tokens);
    AtomicFile file(mask_path(prefix_));
    LossMaskWriter writer(file, tokens);
    for (const std::uint8_t bit : bits) writer.append(bit != 0);
    writer.finish();
    file.commit();
    EXPECT_EQ(read_file(mask_path(prefix_)), mask_file(bits)) << tokens;
    EXPECT_EQ(writer.counted(), std::ranges::count(bits, 1));
  }
}

TEST_F(LossMaskTest, AnyStretchIsReadAcrossBytesAndBlocks) {
  const Bits bits = bits_of(70'001);
  write_file(mask_path(prefix_), mask_file(bits));
  const LossMask mask = this->mask(70'001);
  for (const auto& [first, count] : {std::pair{0, 1}, {0, 70'001}, {3, 2}, {5, 11}, {7, 1}, {8, 8}, {32'765, 20}, {1, 65'000},
                                     {70'000, 1}, {70'001, 0}}) {
    Bits found(static_cast<std::size_t>(count), 9);
    mask.read(first, found);
    EXPECT_TRUE(std::ranges::equal(found, std::span(bits).subspan(static_cast<std::size_t>(first), found.size()))) << first;
    EXPECT_EQ(mask.counted(first, count), std::ranges::count(found, 1)) << first;
  }
  Bits one(1);
  EXPECT_THROW(mask.read(70'001, one), InternalError);
  EXPECT_THROW(mask.read(-1, one), InternalError);
}

TEST_F(LossMaskTest, AForeignOrDamagedFileIsRefusedByName) {
  write_dataset(prefix_, {{1, 2, 3}, {4, 5, 6, 7, 8, 9}}, 100);
  const std::string whole = mask_file(bits_of(9));
  const auto changed = [&](std::size_t at, char to) {
    std::string file = whole;
    file[at] = to;
    return file;
  };
  for (const auto& [file, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "truncated: 0 bytes, the header alone has 16"},
           {whole.substr(0, 15), "truncated: 15 bytes"},
           {changed(0, 'X'), "magic is not TMSK"},
           {changed(4, 2), "version = 2, expected 1"},
           {changed(7, 1), "version = 16777217, expected 1"},
           {changed(8, 10), "token_count = 10, its .bin has 9"},
           {changed(15, '\x80'), "token_count = 9223372036854775817, its .bin has 9"},
           {whole.substr(0, 17), "17 bytes, 9 tokens need 18: truncated"},
           {whole + '\0', "19 bytes, 9 tokens need 18"}}) {
    write_file(mask_path(prefix_), file);
    expect_error<DataError>([&] { IndexedDataset{prefix_}; }, {mask_path(prefix_) + ": " + words, "prepare the data again"});
  }
  write_file(mask_path(prefix_), whole);
  EXPECT_NE(IndexedDataset(prefix_).mask(), nullptr) << "files of other tools have no record";
}

TEST_F(LossMaskTest, ARecordThatNamesAMaskIsRefusedWithoutIt) {
  write_masked(prefix_, {{1, 2, 3}, {4, 5, 6, 7, 8, 9}}, 100);
  const std::string path = mask_path(prefix_), whole = read_file(path), record = record_path(prefix_);
  const std::optional<DatasetRecord> good = read_record(prefix_);
  ASSERT_TRUE(good && good->mask);
  EXPECT_EQ(*good->mask, sample_file(path));
  EXPECT_NE(read_file(record).find("\"version\": 2"), std::string::npos) << "who knows 1 alone would count every token";
  remove_file(path);
  expect_error<DataError>([&] { read_record(prefix_); }, {record + ": names " + path, "is missing; put it back"});
  std::string other = whole;
  other.back() = static_cast<char>(other.back() ^ 1);
  write_file(path, other);
  EXPECT_NO_THROW(IndexedDataset{prefix_}) << "the header alone does not tell";
  expect_error<DataError>([&] { read_record(prefix_); }, {record, path + " has the recorded 18 bytes, but other content"});
  write_file(path, whole);
  EXPECT_TRUE(read_record(prefix_));
  // Nor may a mask lie beside a record that knows of none.
  write_dataset(prefix_, {{1, 2, 3}}, 100);
  IndexedDatasetWriter(prefix_, 100, Overwrite::kYes).finish({});
  write_file(path, mask_file({}));
  expect_error<DataError>([&] { read_record(prefix_); }, {record + ": names no mask, and " + path + " is there; remove that file"});
}

TEST_F(LossMaskTest, TargetsThatDoNotCountAreMinusOne) {
  const Documents documents = counting_documents(23, 1000);
  const std::vector<std::int32_t> all = concatenation(documents);
  const Bits bits = write_masked(prefix_, documents, 1000);
  const std::vector<WeightedPath> train = {{prefix_, 1.0}};
  for (const std::int64_t T : {1, 3, 8, 13, 64}) {
    BatchLoader loader(open_token_sources(train, {}, {}).train, {.sequence = T, .vocab_size = 1000, .shuffle = Shuffle::kInOrder});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(2 * T)), targets(tokens), alone(tokens);
    for (std::int64_t position = 0; position + 1 < loader.samples_per_epoch(); ++position) {
      loader.load(position, 2, {tokens, targets});
      loader.load(position, 2, {.targets = alone});
      EXPECT_EQ(alone, targets);
      for (std::int64_t s = 0; s < 2 * T; ++s) {
        const auto at = static_cast<std::size_t>((position + s % 2) * T + s / 2), here = static_cast<std::size_t>(s);
        ASSERT_EQ(tokens[here], all[at]);
        ASSERT_EQ(targets[here], bits[at + 1] != 0 ? all[at + 1] : -1) << "T " << T << ", token " << at + 1;
      }
    }
  }
}

TEST_F(LossMaskTest, ABlendAndASplitTakeEachFilesOwn) {
  const Documents documents = counting_documents(40, 1000);
  const std::vector<std::int32_t> all = concatenation(documents);
  const Bits bits = write_masked(prefix_, documents, 1000);
  const std::string plain = folder_ / "plain";
  write_dataset(plain, {std::vector<std::int32_t>(100, 999)}, 1000);
  const std::vector<WeightedPath> train = {{prefix_, 1}, {plain, 1}};
  const TokenSources sources = open_token_sources(train, {}, "3,1");  // of the plain file's one document nothing is held out
  std::vector<std::int32_t> tokens(5), targets(5);
  BatchLoader blended(sources.train, {.sequence = 5, .vocab_size = 1000, .shuffle = Shuffle::kInOrder});
  for (std::int64_t position = 0; position < 8; ++position) {
    blended.load(position, 1, {tokens, targets});
    for (std::size_t s = 0; s < 5; ++s) {
      const auto next = static_cast<std::size_t>(tokens[s]) + 1;  // ids count up from 0
      ASSERT_EQ(targets[s], tokens[s] == 999 ? 999 : bits[next] != 0 ? all[next] : -1);
    }
  }
  BatchLoader held_out({sources.valid[0]}, {.sequence = 5, .vocab_size = 1000, .shuffle = Shuffle::kInOrder});
  held_out.load(0, 1, {tokens, targets});
  EXPECT_GT(tokens[0], 0);
  for (std::size_t s = 0; s < 5; ++s) EXPECT_EQ(targets[s] >= 0, bits[static_cast<std::size_t>(tokens[s]) + 1] != 0);
}

TEST_F(LossMaskTest, ASampleCostsOneReadMoreAndNoAllocation) {
  write_masked(prefix_, counting_documents(40, 1000), 1000);
  std::int64_t reads = 0;
  const std::vector<WeightedPath> train = {{prefix_, 1.0}};
  const TokenSources sources = open_token_sources(train, {}, {}, [&](int descriptor, void* out, std::size_t count, off_t offset) {
    ++reads;
    return ::pread(descriptor, out, count, offset);
  });
  BatchLoader loader(sources.train, {.sequence = 10, .vocab_size = 1000, .seed = 9, .shuffle = Shuffle::kPerEpoch});
  std::vector<std::int32_t> tokens(30), targets(30);
  reads = 0;
  const NoAllocationScope scope("loading");
  loader.prefetch(3, 3);
  loader.load(0, 3, {tokens, targets});
  EXPECT_EQ(reads, 3 * 2);
  loader.load(0, 3, {tokens});
  EXPECT_EQ(reads, 3 * 3) << "inputs have no use for it";
}

// The mask of more than 2^32 tokens is all hole but for one bit.
TEST_F(LossMaskTest, PlacesHave64Bits) {
  HugeDataset huge(prefix_, std::int64_t{1} << 19, 8200);
  const std::int64_t tokens = huge.num_tokens(), place = (std::int64_t{1} << 32) + 3;
  ASSERT_GT(tokens, place);
  const std::string header = mask_file({}).substr(0, 8);
  const int file = ::open(mask_path(prefix_).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const bool made = ::ftruncate(file, 16 + ceil_div(tokens, 8)) == 0;
  const char bit = 1 << 3;
  EXPECT_EQ(::pwrite(file, header.data(), 8, 0), 8);
  EXPECT_EQ(::pwrite(file, &tokens, 8, 8), 8);
  EXPECT_EQ(::pwrite(file, &bit, 1, 16 + place / 8), 1);
  ::close(file);
  if (!made || !huge.is_there()) GTEST_SKIP() << "this file system holds no file so large: " << folder_.path();
  const std::vector<WeightedPath> train = {{prefix_, 1.0}};
  const TokenSources sources = open_token_sources(train, {}, {}, huge.read_at());
  EXPECT_EQ(sources.train[0].dataset->mask()->counted(place - 100, 200), 1);
  BatchLoader loader(sources.train, {.sequence = 64, .vocab_size = 10, .shuffle = Shuffle::kInOrder});
  std::vector<std::int32_t> targets(128);
  loader.load((place - 1) / 64, 1, {.targets = std::span(targets).first(64)});
  for (std::int64_t s = 0; s < 64; ++s) EXPECT_EQ(targets[static_cast<std::size_t>(s)], s == (place - 1) % 64 ? 0 : -1) << s;
}

TEST_F(LossMaskTest, MergedMasksStandBehindEachOther) {
  const std::string a = folder_ / "a", b = folder_ / "b", plain = folder_ / "plain";
  const Bits of_a = write_masked(a, {{1, 2, 3}, {}, {4, 5}}, 100), of_b = write_masked(b, {{6, 7, 8, 9, 10, 11, 12, 13, 14}}, 100);
  write_dataset(plain, {{15, 16, 17}}, 100);
  Bits all = of_a;
  all.insert(all.end(), 3, 1);  // of the file without a mask every token counts
  all.insert(all.end(), of_b.begin(), of_b.end());
  const MergeStats stats = merge_datasets({a, plain, b}, prefix_, Overwrite::kNo);
  EXPECT_EQ(read_file(mask_path(prefix_)), mask_file(all));
  EXPECT_EQ(stats.counted, std::ranges::count(all, 1));
  EXPECT_TRUE(read_record(prefix_)->mask);
  const std::uint64_t with_mask = sample_dataset(IndexedDataset(prefix_), 100);
  remove_file(mask_path(prefix_));
  EXPECT_NE(sample_dataset(IndexedDataset(prefix_), 100), with_mask) << "nodes compare masks as they compare tokens";
  EXPECT_EQ(merge_datasets({plain, plain}, prefix_, Overwrite::kYes).counted, std::nullopt);
  EXPECT_FALSE(is_there(mask_path(prefix_)));
}

TEST_F(LossMaskTest, ASummaryCountsTokensAndDocumentsWithoutAny) {
  IndexedDatasetWriter writer(prefix_, 100, Overwrite::kNo, WithMask::kYes);
  writer.add_document(std::vector<std::int32_t>{1, 2, 3}, Bits{0, 1, 1});
  writer.add_document(std::vector<std::int32_t>{4, 5}, Bits{0, 0});
  writer.add_document({}, {});
  writer.finish({});
  const DatasetSummary summary = summarize(IndexedDataset(prefix_), {});
  EXPECT_EQ(summary.counted_tokens, 2);
  EXPECT_EQ(summary.documents_without_counted, 1);
}

}  // namespace
}  // namespace trident
