// Tests what a run says at its start about the data it is going to read.
#include "train/run/data_summary.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/train/config_support.h"

namespace trident {
namespace {

using Lines = std::vector<std::string>;
using testing_support::small_with;

class DataSummaryOfFiles : public ::testing::Test {
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
    const DataSummary said = data_summary(plan, open_token_sources(train, valid, plan.config.data.split));
    Lines all{said.line};
    for (const Lines* more : {&said.details, &said.notes}) all.insert(all.end(), more->begin(), more->end());
    return all;
  }
  TemporaryFolder folder_;
};

TEST_F(DataSummaryOfFiles, TokensSamplesAndEpochs) {
  const std::string text = file("text", 130), valid = file("valid", 13);
  EXPECT_EQ(lines({"batch.sequence=10", "batch.global=8", "run.steps=325"}, {{text, 1}}),
            Lines{"data: " + text + ", 13,000 tokens, 1,299 samples of 10 tokens; this run takes 2.00 epochs"});
  EXPECT_EQ(
      lines({"batch.sequence=10", "batch.global=8", "run.steps=1", "eval.every=1", "eval.steps=200"}, {{text, 1}}, {{valid, 1}}),
      (Lines{"data: " + text + ", 13,000 tokens, 1,299 samples of 10 tokens; this run takes 0.0062 epochs",
             "validation data: " + valid + ", 1,300 tokens, 129 samples of 10 tokens; an evaluation takes 128: eval.steps = 200 "
             "would take 1,600, some of them more than once"}));
}

TEST_F(DataSummaryOfFiles, ABlendByFile) {
  const std::string a = file("a", 100), b = file("b", 10);
  EXPECT_EQ(lines({"batch.sequence=10", "batch.global=10", "run.steps=100"}, {{a, 3}, {b, 1}}),
            (Lines{"data: 2 files, 11,000 tokens, 1,099 samples of 10 tokens; this run takes 0.91 epochs",
                   "data: " + a + ", 10,000 tokens, 999 samples of 10 tokens, 75 % of every batch; this run takes 0.75 epochs",
                   "data: " + b + ", 1,000 tokens, 99 samples of 10 tokens, 25 % of every batch; this run takes 2.53 epochs"}));
  const Lines many = lines({"batch.sequence=10"}, std::vector<WeightedPath>(9, {a, 1}));
  ASSERT_EQ(many.size(), 10u);
  EXPECT_EQ(many.back(), "  and 1 more file");
}

TEST_F(DataSummaryOfFiles, AThirdShareIsSaidToBeUnused) {
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
  const std::string large = file("large", 2000);
  for (const char* as_megatron : {"969,30,1", "96.9,3,0.1"})
    EXPECT_EQ(lines({std::string("data.split=") + as_megatron, "batch.sequence=10"}, {{large, 1}}).size(), 1u) << as_megatron;
  EXPECT_EQ(lines({"data.split=968,30,2", "batch.sequence=10"}, {{large, 1}}).size(), 2u);
}

TEST_F(DataSummaryOfFiles, AnEvaluationTakesNoSampleTwiceOrSaysSo) {
  struct Row {
    std::size_t documents;  // of 100 tokens
    int global, steps;
    const char* says;
  };
  for (const Row& row : {Row{2, 4, 4, "19 samples of 10 tokens; an evaluation takes 16"},
                         Row{2, 4, 5, "takes 16: eval.steps = 5 would take 20, some of them more than once"},
                         Row{2, 19, 1, "19 samples of 10 tokens; an evaluation takes 19"},
                         Row{2, 20, 1, "takes 20, some of them more than once: batch.global = 20 is more than there are"},
                         Row{2, 20, 7, "takes 20, some of them more than once: batch.global = 20 is more than there are"}}) {
    const std::string valid = file("valid", row.documents);
    const Lines said = lines({"batch.sequence=10", "eval.every=1", fmt::format("batch.global={}", row.global),
                              fmt::format("eval.steps={}", row.steps)}, {{valid, 1}}, {{valid, 1}});
    EXPECT_TRUE(said.back().ends_with(row.says)) << said.back();
  }
}

TEST_F(DataSummaryOfFiles, ASplitThatHoldsNothingOutIsWarnedOf) {
  const std::string one = file("one", 1), many = file("many", 100);
  const auto warnings = [&](const std::string& split, const std::string& path) {
    const std::vector<WeightedPath> train{{path, 1}};
    return empty_share_warnings(small_with({"data.split=" + split}), open_token_sources(train, {}, split));
  };
  for (const char* split : {"95,5", "969,30,1", "1,0.001"}) {
    const Lines said = warnings(split, one);
    ASSERT_EQ(said.size(), 1u) << split;
    const std::string what = "nothing is held out, " + one + " (validation part of data.split, 0 of 1 document)";
    EXPECT_NE(said[0].find(what), std::string::npos) << said[0];
  }
  for (const char* split : {"1", "1,0", "99,0,1"}) EXPECT_TRUE(warnings(split, one).empty()) << split << ": as it was asked for";
  EXPECT_TRUE(warnings("95,5", many).empty());
}

}  // namespace
}  // namespace trident
