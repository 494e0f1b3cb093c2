// eval.samples on simulated GPUs: what a model says while it is trained is what CPUs make it say, and training does not notice.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/parity_cases.h"
#include "infer/generate/eval_samples.h"
#include "tests/cuda/training/on_gpus.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

using Settings = std::vector<std::string>;
using Said = std::vector<std::vector<std::int32_t>>;

const Settings kTraining{"optimizer.lr=3e-3", "eval.every=2"};
// One token, and a piece of eight rows and a part: samples of different lengths in one pass.
const Settings kGreedy{R"(eval.sample_ids=["5", "1 2 3 4 5 6 7 8 9 10 11"])", "eval.sample_tokens=4", "eval.sample_temperature=0"};
const Settings kDrawn = plus(kGreedy, {"eval.sample_temperature=1"});

struct Sampled {
  LayoutRun run;
  Said said;  // before the first step, then after the last
};

class GpuSamples : public OnGpus {
 protected:
  static Sampled sampled(const std::string& config, const Settings& settings, CudaBackend* gpus) {
    Sampled result;
    std::shared_ptr<const SampleMaker> samples;
    const auto say = [&](RankTrainer& trainer) {
      const std::vector<TextSample> made = samples->make(trainer.model());
      if (trainer.context().rank() != 0) return;
      for (const TextSample& sample : made) result.said.push_back(sample.ids);
    };
    LayoutRunOptions options;
    options.cuda = gpus;
    options.change_plan = [&](RunPlan plan) {
      samples = find_eval_samples(plan.config, plan.model);
      plan.generation = samples->shapes();
      return plan;
    };
    options.before_steps = options.after_steps = say;
    result.run = run_layout(config, plus(settings, kTraining), options);
    return result;
  }
  void expect_training_does_not_notice(const std::string& config, const Settings& layout, const Said& expected) {
    const Sampled gpu = sampled(config, plus(layout, kGreedy), backend_.get());
    EXPECT_EQ("", compare_bits(gpu.run, on_gpu(config, plus(layout, kTraining))));
    EXPECT_EQ(gpu.run.planned_bytes, gpu.run.high_water);
    EXPECT_EQ(gpu.said, expected);
  }
};

TEST_F(GpuSamples, AreThoseOfCpusAndLeaveTrainingsNumbersEqual) {
  simulated::configure({.host_guard = simulated::HostGuard::kOn});
  for (const std::string& config : {small_llama(), small_gpt2()}) {
    const Said greedy = sampled(config, kGreedy, nullptr).said;
    ASSERT_EQ(greedy.size(), 4u);
    expect_training_does_not_notice(config, {}, greedy);
    const Said drawn = sampled(config, kDrawn, backend_.get()).said;
    EXPECT_EQ(drawn, sampled(config, kDrawn, nullptr).said);
    EXPECT_NE(drawn, greedy);
  }
}

TEST_F(GpuSamples, EightRanksSayTheSame) {
  const Said greedy = sampled(small_llama(), kGreedy, nullptr).said;
  expect_training_does_not_notice(small_llama(), ParityCase{2, 2, 2, true, "zero3", "1f1b"}.settings(), greedy);
}

TEST_F(GpuSamples, GraphsSayTheSame) {
  const Said greedy = sampled(small_llama(), kGreedy, nullptr).said;
  expect_training_does_not_notice(small_llama(), {"cuda.graphs=true"}, greedy);
}

// Texts may differ from those of CPUs where two tokens are as likely; training's bits may not.
TEST_F(GpuSamples, HalfPrecisionChangesNoBitOfTraining) {
  for (const char* compute : {"bf16", "fp16"}) {
    SCOPED_TRACE(compute);
    const Settings settings{std::string("precision.compute=") + compute};
    const Sampled gpu = sampled(small_llama(), plus(settings, kGreedy), backend_.get());
    EXPECT_EQ("", compare_bits(gpu.run, on_gpu(small_llama(), plus(settings, kTraining))));
    ASSERT_EQ(gpu.said.size(), 4u);
    for (const auto& ids : gpu.said) EXPECT_EQ(ids.size(), 4u);
  }
}

}  // namespace
}  // namespace trident::testing
