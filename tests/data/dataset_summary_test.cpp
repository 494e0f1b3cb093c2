#include "data/dataset_summary.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>

#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

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

TEST(DatasetSummary, NoTokens) {
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
TEST(DatasetSummary, ExtremesAnywhere) {
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
  template <class T>
  void change(const std::string& path, std::size_t offset, T value) {
    std::string bytes = read_file(path);
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    write_file(path, bytes);
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
  summarize(IndexedDataset(prefix_), {}, [&](const SummaryProgress& seen) {
    done.push_back(seen.tokens_done);
    EXPECT_EQ(seen.tokens_total, 1'200'000);
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
