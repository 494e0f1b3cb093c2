// eval.samples on simulated GPUs: what a model says while it is trained is what CPUs make it say, and training does not notice.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/simulated/runtime.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "infer/generate/eval_samples.h"
#include "tests/support/error_text.h"

namespace trident::testing {
namespace {

using Settings = std::vector<std::string>;
using Said = std::vector<std::vector<std::int32_t>>;

// Grouped queries, rotated.
std::string llama() {
  return R"({
    "model": {"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": false},
    "parallel": {"data": 1, "pipeline": 1, "tensor": 1, "sequence_parallel": false},
    "batch": {"global": 4, "micro": 1, "sequence": 8}, "precision": {"compute": "fp32"},
    "optimizer": {"lr": 3e-3, "grad_clip": 1.0}, "lr_schedule": {"type": "constant", "warmup_steps": 2}, "eval": {"every": 2}
  })";
}

// Positions are learned, weights are tied.
std::string gpt2() {
  return R"({
    "model": {"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "dropout": 0.1},
    "parallel": {"data": 1, "pipeline": 1, "tensor": 1, "sequence_parallel": false},
    "batch": {"global": 4, "micro": 1, "sequence": 8}, "precision": {"compute": "fp32"},
    "optimizer": {"lr": 3e-3, "grad_clip": 1.0}, "lr_schedule": {"type": "constant", "warmup_steps": 2}, "eval": {"every": 2}
  })";
}

// One token, and a piece of eight rows and a part: samples of different lengths in one pass.
const Settings kGreedy{R"(eval.sample_ids=["5", "1 2 3 4 5 6 7 8 9 10 11"])", "eval.sample_tokens=4", "eval.sample_temperature=0"};
const Settings kDrawn = plus(kGreedy, {"eval.sample_temperature=1"});

struct Sampled {
  LayoutRun run;
  Said said;  // before the first step, then after the last
};

class GpuSamples : public ::testing::Test {
 protected:
  // Ranks wait for the guard of each other's memory most of the time where there are many.
  void SetUp() override {
    simulated::reset();
    simulated::configure({.host_guard = simulated::HostGuard::kOff});
  }
  void TearDown() override {
    simulated::reset();
    const simulated::Census left = simulated::census();
    EXPECT_EQ(left.allocations + left.streams + left.events + left.queued, 0u) << "something of the device outlived the run";
  }

  LayoutRun plain(const std::string& config, const Settings& settings) {
    LayoutRunOptions options;
    options.cuda = backend_.get();
    return run_layout(config, settings, options);
  }
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
    result.run = run_layout(config, settings, options);
    return result;
  }
  void expect_training_does_not_notice(const std::string& config, const Settings& layout, const Said& expected) {
    const Sampled gpu = sampled(config, plus(layout, kGreedy), backend_.get());
    EXPECT_EQ("", compare_bits(gpu.run, plain(config, layout)));
    EXPECT_EQ(gpu.run.planned_bytes, gpu.run.high_water);
    EXPECT_EQ(gpu.said, expected);
  }

  std::unique_ptr<CudaBackend> backend_ = make_cuda_backend();
};

TEST_F(GpuSamples, AreThoseOfCpusAndLeaveTrainingsNumbersEqual) {
  simulated::configure({.host_guard = simulated::HostGuard::kOn});
  for (const std::string& config : {llama(), gpt2()}) {
    const Said greedy = sampled(config, kGreedy, nullptr).said;
    ASSERT_EQ(greedy.size(), 4u);
    expect_training_does_not_notice(config, {}, greedy);
    const Said drawn = sampled(config, kDrawn, backend_.get()).said;
    EXPECT_EQ(drawn, sampled(config, kDrawn, nullptr).said);
    EXPECT_NE(drawn, greedy);
  }
}

TEST_F(GpuSamples, EightRanksSayTheSame) {
  const Said greedy = sampled(llama(), kGreedy, nullptr).said;
  expect_training_does_not_notice(llama(), ParityCase{2, 2, 2, true, "zero3", "1f1b"}.settings(), greedy);
}

TEST_F(GpuSamples, GraphsSayTheSame) {
  const Said greedy = sampled(llama(), kGreedy, nullptr).said;
  expect_training_does_not_notice(llama(), {"cuda.graphs=true"}, greedy);
}

// Texts may differ from those of CPUs where two tokens are as likely; training's bits may not.
TEST_F(GpuSamples, HalfPrecisionChangesNoBitOfTraining) {
  for (const char* compute : {"bf16", "fp16"}) {
    SCOPED_TRACE(compute);
    const Settings settings{std::string("precision.compute=") + compute};
    const Sampled gpu = sampled(llama(), plus(settings, kGreedy), backend_.get());
    EXPECT_EQ("", compare_bits(gpu.run, plain(llama(), settings)));
    ASSERT_EQ(gpu.said.size(), 4u);
    for (const auto& ids : gpu.said) EXPECT_EQ(ids.size(), 4u);
  }
}

}  // namespace
}  // namespace trident::testing
