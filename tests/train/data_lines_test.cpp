// What a run says at its start about the data it is going to read.
#include "train/run/data_lines.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/train/config_support.h"

namespace trident {
namespace {

using Lines = std::vector<std::string>;
using testing_support::small_with;

class DataLinesOfFiles : public ::testing::Test {
 protected:
  // `documents` of a hundred tokens each.
  std::string file(const std::string& name, std::size_t documents) {
    write_dataset(folder_ / name, Documents(documents, std::vector<std::int32_t>(100, 1)), 10);
    return folder_ / name;
  }
  Lines lines(std::vector<std::string> settings, const std::vector<WeightedPath>& train,
              const std::vector<WeightedPath>& valid = {}) {
    RunPlan plan;
    plan.config = small_with(settings);
    return data_lines(plan, open_token_sources(train, valid, plan.config.data.split));
  }
  TemporaryFolder folder_;
};

TEST_F(DataLinesOfFiles, TokensSamplesAndEpochs) {
  const std::string text = file("text", 130), valid = file("valid", 13);
  EXPECT_EQ(lines({"batch.sequence=10", "batch.global=8", "run.steps=325"}, {{text, 1}}),
            Lines{"data: " + text + ", 13,000 tokens, 1,299 samples of 10 tokens; this run takes 2.00 epochs"});
  EXPECT_EQ(
      lines({"batch.sequence=10", "batch.global=8", "run.steps=1", "eval.every=1", "eval.steps=200"}, {{text, 1}}, {{valid, 1}}),
      (Lines{"data: " + text + ", 13,000 tokens, 1,299 samples of 10 tokens; this run takes 0.0062 epochs",
             "validation data: " + valid + ", 1,300 tokens, 129 samples of 10 tokens; an evaluation takes 1,600"}));
}

TEST_F(DataLinesOfFiles, ABlendByFile) {
  const std::string a = file("a", 100), b = file("b", 10);
  EXPECT_EQ(lines({"batch.sequence=10", "batch.global=10", "run.steps=100"}, {{a, 3}, {b, 1}}),
            (Lines{"data: " + a + ", 10,000 tokens, 999 samples of 10 tokens, 75 % of every batch; this run takes 0.75 epochs",
                   "data: " + b + ", 1,000 tokens, 99 samples of 10 tokens, 25 % of every batch; this run takes 2.53 epochs"}));
  const Lines many = lines({"batch.sequence=10"}, std::vector<WeightedPath>(9, {a, 1}));
  ASSERT_EQ(many.size(), 9u);
  EXPECT_EQ(many.back(), "  and 1 more file");
}

TEST_F(DataLinesOfFiles, AThirdShareIsSaidToBeUnused) {
  const std::string text = file("text", 100);
  const Lines cut = lines(
      {"data.split=90,8,2", "batch.sequence=10", "eval.every=1", "eval.steps=1", "batch.global=1", "run.steps=899"}, {{text, 1}});
  ASSERT_EQ(cut.size(), 3u);
  EXPECT_EQ(cut[0], "data: " + text +
                        " (training part of data.split, 90 of 100 documents), 9,000 tokens, 899 samples of 10 tokens; this run "
                        "takes 1.00 epochs");
  EXPECT_EQ(cut[1],
            "validation data: " + text +
                " (validation part of data.split, 8 of 100 documents), 800 tokens, 79 samples of 10 tokens; an evaluation takes 1");
  EXPECT_EQ(cut[2], "data.split = 90,8,2: nothing reads its third share, 2 of 100 documents");
  EXPECT_EQ(lines({"data.split=90,10", "batch.sequence=10"}, {{text, 1}}).size(), 1u);
}

}  // namespace
}  // namespace trident
