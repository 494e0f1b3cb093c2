#include "data/dataset_summary.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

DatasetSummary summary_of(const Documents& documents, std::optional<std::int64_t> end_token, bool* every = nullptr) {
  const TemporaryFolder folder;
  write_dataset(folder / "d", documents, 128256);
  const IndexedDataset dataset(folder / "d");
  const DatasetSummary summary = summarize(dataset, end_token);
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

}  // namespace
}  // namespace trident
