// A schedule that splits backwards trains the same model to the bit as one that does not: GPipe with all weight gradients at
// the end, and 1F1B with all weight gradients at the end.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/dry/dry_device.h"
#include "model/layer.h"
#include "model/model_constants.h"
#include "pipeline/schedule/step_program_check.h"
#include "support/error_text.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "support/split_schedules.h"

namespace trident::testing {
namespace {

// By unit, as its passes tell that are run dry: whether its weight gradients, alone, read parameters.
std::vector<bool> weight_gradient_reads(const RunPlan& plan) {
  const LayerGeometry geometry = plan.geometry(0);
  ArenaPlan unused;
  const ModelConstants constants(plan.model, geometry, unused);
  DryOps oracle(nullptr);
  std::vector<bool> reads;
  for (int unit = 0; unit < num_units(plan.model); ++unit)
    reads.push_back(plan_unit(*make_unit(plan.model, unit), geometry, plan.model.hidden, constants, oracle, unit)
                        .memory().weight_gradient_reads_weights);
  return reads;
}

// The same plan under another schedule of as many ranks, chunks and micro-batches, which splits backwards.
RunPlan with_schedule(RunPlan plan, const Schedule& schedule) {
  plan.step_spec.schedule = schedule;
  plan.step_spec.weight_gradient_reads = weight_gradient_reads(plan);
  plan.step_programs = build_step_programs(plan.step_spec);
  check_step_programs(plan.step_programs, plan.step_spec);
  return plan;
}

class SplitBackward : public ::testing::TestWithParam<ParityCase> {
 protected:
  // Two blocks a stage or more.
  static std::vector<std::string> settings(int micro_batches, const char* layers = "model.num_hidden_layers=8") {
    std::vector<std::string> all = plus(GetParam().settings(), {layers});
    all.push_back("parallel.grad_sync=\"step\"");  // what split backwards need, whatever the preset
    all.push_back(fmt::format("batch.global={}", GetParam().data * micro_batches));
    return all;
  }
  using MakeSchedule = Schedule (*)(int num_ranks, int num_micro_batches);
  // With the configured schedule, if there is no other.
  static LayoutRun run(const std::string& config, const std::vector<std::string>& settings, MakeSchedule split = nullptr) {
    LayoutRunOptions options;
    options.steps = 2;
    if (split != nullptr) {
      options.change_plan = [split](const RunPlan& plan) {
        return with_schedule(plan, split(plan.grid.degrees().pipeline, plan.num_micro_batches));
      };
    }
    return run_layout(config, settings, options);
  }
};

TEST_P(SplitBackward, EqualsGpipe) {
  for (const auto& [config, layers] :
       {std::pair(tiny_llama_config(), "model.num_hidden_layers=8"), std::pair(tiny_gpt2_config(), "model.n_layer=8")}) {
    for (const auto& [policy, micro_batches] : {std::pair("none", 3), std::pair("full", 5), std::pair("selective", 3)}) {
      SCOPED_TRACE(policy);
      std::vector<std::string> all = settings(micro_batches, layers);
      all.push_back(fmt::format("recompute.policy=\"{}\"", policy));
      const LayoutRun whole = run(config, all), split = run(config, all, gpipe_with_weights_last);
      EXPECT_EQ("", compare_bits(split, whole));
      // No weight gradient here reads parameters: none is gathered again.
      EXPECT_EQ(split.bytes_sent, whole.bytes_sent);
      EXPECT_EQ(split.planned_bytes, split.high_water);
      for (std::size_t rank = 0; rank < split.planned_bytes.size(); ++rank)
        EXPECT_GT(split.planned_bytes[rank], whole.planned_bytes[rank]) << "kept for every micro-batch";
    }
  }
}

// Where norms come after the phases (OLMo 2), weight gradients multiply with the block's input itself: it stays until then.
TEST_P(SplitBackward, EqualsGpipeWhereWeightGradientsReadTheInput) {
  for (const char* policy : {"none", "full"}) {
    SCOPED_TRACE(policy);
    std::vector<std::string> all = settings(5);
    all.insert(all.end(), {"model.model_type=\"olmo2\"", fmt::format("recompute.policy=\"{}\"", policy)});
    const LayoutRun whole = run(tiny_llama_config(), all);
    const LayoutRun forwards_first = run(tiny_llama_config(), all, gpipe_with_weights_last);
    const LayoutRun one_by_one = run(tiny_llama_config(), all, one_f_one_b_with_weights_last);
    EXPECT_EQ("", compare_bits(forwards_first, whole));
    EXPECT_EQ("", compare_bits(one_by_one, whole));
    EXPECT_EQ(one_by_one.planned_bytes, one_by_one.high_water);
  }
}

// Activations that input gradients read last are gone when these have run, however late weight gradients come.
TEST_P(SplitBackward, ReleasesActivationsAtTheirLastUse) {
  const int micro_batches = 5;
  for (const char* policy : {"none", "full"}) {
    SCOPED_TRACE(policy);
    std::vector<std::string> all = settings(micro_batches);
    all.push_back(fmt::format("recompute.policy=\"{}\"", policy));
    const LayoutRun forwards_first = run(tiny_llama_config(), all, gpipe_with_weights_last);
    const LayoutRun one_by_one = run(tiny_llama_config(), all, one_f_one_b_with_weights_last);
    EXPECT_EQ("", compare_bits(one_by_one, forwards_first));
    EXPECT_EQ(one_by_one.planned_bytes, one_by_one.high_water);
    const RunPlan& plan = one_by_one.plan;
    for (std::size_t rank = 0; rank < one_by_one.planned_bytes.size(); ++rank) {
      const int in_flight = GetParam().pipeline - plan.grid.coordinates(static_cast<int>(rank)).pipeline;
      const std::int64_t saved = forwards_first.planned_bytes[rank] - one_by_one.planned_bytes[rank];
      // A block at least: of its units' inputs, T[S', B, H] each.
      const Shape input = plan.geometry(0).activation_shape(plan.model.hidden);
      EXPECT_GE(saved, (micro_batches - in_flight) * input.num_elements() * size_of(DType::kF32)) << "rank " << rank;
    }
  }
}

// A head that makes its logits again reads its weight for the weight gradient, and is gathered for it.
TEST_P(SplitBackward, EqualsGpipeWithAChunkedHead) {
  std::vector<std::string> all = settings(3, "model.n_layer=16");  // few are gathered once and kept
  all.push_back("recompute.head_chunk=5");
  const LayoutRun whole = run(tiny_gpt2_config(), all), split = run(tiny_gpt2_config(), all, gpipe_with_weights_last);
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
