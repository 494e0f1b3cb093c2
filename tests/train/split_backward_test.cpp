// A schedule that splits backwards trains the same model to the bit as one that does not: GPipe with all weight gradients at
// the end.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "support/split_schedules.h"

namespace trident::testing {
namespace {

class SplitBackward : public ::testing::TestWithParam<ParityCase> {
 protected:
  static std::vector<std::string> settings(int micro_batches) {
    std::vector<std::string> all = GetParam().settings();
    all.push_back("parallel.grad_sync=\"step\"");  // what split backwards need, whatever the preset
    all.push_back(fmt::format("batch.global={}", GetParam().data * micro_batches));
    return all;
  }
  static LayoutRun run(const std::string& config, const std::vector<std::string>& settings, bool split) {
    LayoutRunOptions options;
    options.steps = 3;
    if (split) {
      options.change_plan = [](const RunPlan& plan) {
        return with_schedule(plan, gpipe_with_weights_last(plan.grid.degrees().pipeline, plan.num_micro_batches));
      };
    }
    return run_layout(config, settings, options);
  }
};

TEST_P(SplitBackward, EqualsGpipe) {
  for (const std::string& config : {tiny_llama_config(), tiny_gpt2_config()}) {
    for (const auto& [policy, micro_batches] : {std::pair("none", 3), std::pair("full", 5), std::pair("selective", 3)}) {
      SCOPED_TRACE(policy);
      std::vector<std::string> all = settings(micro_batches);
      all.push_back(fmt::format("recompute.policy=\"{}\"", policy));
      const LayoutRun whole = run(config, all, false), split = run(config, all, true);
      EXPECT_EQ("", compare_bits(split, whole));
      // No weight gradient here reads parameters: none is gathered again.
      EXPECT_EQ(split.bytes_sent, whole.bytes_sent);
      EXPECT_EQ(split.planned_bytes, split.high_water);
      for (std::size_t rank = 0; rank < split.planned_bytes.size(); ++rank)
        EXPECT_GT(split.planned_bytes[rank], whole.planned_bytes[rank]) << "kept for every micro-batch";
    }
  }
}

// A head that makes its logits again reads its weight for the weight gradient, and is gathered for it.
TEST_P(SplitBackward, EqualsGpipeWithAChunkedHead) {
  std::vector<std::string> all = settings(3);
  all.push_back("recompute.head_chunk=5");
  const LayoutRun whole = run(tiny_gpt2_config(), all, false), split = run(tiny_gpt2_config(), all, true);
  EXPECT_EQ("", compare_bits(split, whole));
  const bool gathers = GetParam().data > 1 && GetParam().zero == "zero3";
  const auto data = static_cast<std::size_t>(Axis::kData);
  EXPECT_EQ(split.bytes_sent[data] > whole.bytes_sent[data], gathers);
}

std::vector<ParityCase> cases() {
  std::vector<ParityCase> all{{1, 1, 1, false, "zero1", "gpipe"},
                              {1, 4, 1, false, "zero1", "gpipe"},
                              {1, 4, 2, false, "zero3", "gpipe"},
                              {2, 2, 1, true, "zero1", "gpipe"},
                              {2, 2, 2, true, "zero3", "gpipe"}};
  for (const char* zero : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"}) all.push_back({1, 2, 2, false, zero, "gpipe"});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, SplitBackward, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace trident::testing
