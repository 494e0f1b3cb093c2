// Whole training runs on simulated GPUs: what a CPU rank computes, and the same in every layout, preset and transport. Streams run
// in orders that a seed chooses, so a wait that is missing anywhere in the trainer shows as wrong numbers.
#include <gtest/gtest.h>

#include "support/parity_cases.h"
#include "tests/cuda/training/on_gpus.h"

namespace trident::testing {
namespace {

class TrainingOnGpus : public OnGpus {
 protected:
  LayoutRun run(const std::string& config, const std::vector<std::string>& settings = {},
                DeviceTransport transport = DeviceTransport::kThread) {
    return on_gpu(config, settings, {.evaluate = true, .transport = transport});
  }
  static LayoutRun on_cpu(const std::string& config, const std::vector<std::string>& settings = {}) {
    return run_layout(config, settings, {.evaluate = true});
  }
  static void expect_equal(const LayoutRun& run, const LayoutRun& reference) {
    EXPECT_EQ("", compare_losses(run, reference));
    EXPECT_EQ("", compare_gradients(run.gradients, reference.gradients));
    EXPECT_NEAR(run.eval_loss, reference.eval_loss, 1e-6 * reference.eval_loss);
    EXPECT_EQ(run.initial, reference.initial) << "initial weights depend on the device";
    EXPECT_EQ(run.planned_bytes, run.high_water);
  }
};

TEST_F(TrainingOnGpus, OneRankComputesWhatACpuDoes) {
  simulated::configure({.host_guard = simulated::HostGuard::kOn});
  expect_equal(run(small_llama()), on_cpu(small_llama()));
  expect_equal(run(small_gpt2()), on_cpu(small_gpt2()));
}

TEST_F(TrainingOnGpus, EveryPresetOnEightRanksEqualsOneRank) {
  const LayoutRun one = run(small_llama());
  std::vector<LayoutRun> runs;
  for (const char* zero : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"}) {
    SCOPED_TRACE(zero);
    const ParityCase layout{2, 2, 2, true, zero, "1f1b"};
    runs.push_back(run(small_llama(), layout.settings()));
    expect_equal(runs.back(), one);
  }
  EXPECT_EQ("", compare_bits(runs[1], runs[0])) << "zero1 and ddp";
  EXPECT_EQ("", compare_bits(runs[3], runs[2])) << "shard_grad_op and zero2";
  EXPECT_EQ("", compare_bits(runs[4], runs[2])) << "zero3 and zero2";
}

TEST_F(TrainingOnGpus, TiedWeightsBiasesAndDropoutAreThoseOfOneRank) {
  expect_equal(run(small_gpt2(), ParityCase{2, 2, 2, false, "zero1", "1f1b"}.settings()), run(small_gpt2()));
}

TEST_F(TrainingOnGpus, SchedulesAndRecomputationKeepTheBits) {
  const LayoutRun one = run(small_llama());
  EXPECT_EQ("", compare_bits(run(small_llama(), ParityCase{1, 2, 1, false, "zero1", "interleaved"}.settings()), one));
  EXPECT_EQ("", compare_bits(run(small_llama(), ParityCase{1, 2, 1, false, "zero1", "gpipe"}.settings()), one));
  EXPECT_EQ("", compare_bits(run(small_llama(), {"recompute.policy=full"}), one));
  EXPECT_EQ("", compare_bits(run(small_llama(), {"recompute.policy=selective"}), one));
}

TEST_F(TrainingOnGpus, LogitsInChunksAreThoseOfCpus) {
  const LayoutRun one = on_cpu(small_llama());
  expect_equal(run(small_llama(), {"recompute.head_chunk=3"}), one);
  std::vector<std::string> settings = ParityCase{2, 1, 1, true, "zero1", "1f1b"}.settings();
  settings.push_back("recompute.head_chunk=3");
  expect_equal(run(small_llama(), settings), one);
}

TEST_F(TrainingOnGpus, TheOrderOfStreamsDoesNotMatter) {
  const ParityCase layout{2, 2, 2, true, "zero3", "1f1b"};
  const LayoutRun usual = run(small_llama(), layout.settings());
  for (const simulated::StreamOrder order : {simulated::StreamOrder::kTargetFirst, simulated::StreamOrder::kOthersFirst}) {
    configure({.seed = 77, .stream_order = order});
    EXPECT_EQ("", compare_bits(run(small_llama(), layout.settings()), usual)) << static_cast<int>(order);
  }
}

TEST_F(TrainingOnGpus, ThroughTheHostTheBitsAreTheSame) {
  const ParityCase layout{2, 2, 2, true, "zero2", "1f1b"};
  EXPECT_EQ(
      "", compare_bits(run(small_llama(), layout.settings(), DeviceTransport::kHostStaged), run(small_llama(), layout.settings())));
}

TEST_F(TrainingOnGpus, NcclCarriesTheSameNumbers) {
  configure({.devices = 8});
  const LayoutRun one = run(small_llama());
  for (const char* zero : {"zero1", "zero3"}) {
    SCOPED_TRACE(zero);
    expect_equal(run(small_llama(), ParityCase{2, 2, 2, true, zero, "1f1b"}.settings(), DeviceTransport::kNccl), one);
  }
}

// Rounded to bf16 in other places than a CPU would, so only as close as bf16 is.
TEST_F(TrainingOnGpus, HalfPrecisionIsAsCloseAsItsFormat) {
  const std::vector<std::string> bf16 = {"precision.compute=bf16"};
  const LayoutRun gpu = run(small_llama(), bf16), cpu = on_cpu(small_llama(), bf16);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 2e-3 * cpu.losses[i]);
    EXPECT_NEAR(gpu.grad_norms[i], cpu.grad_norms[i], 2e-2 * cpu.grad_norms[i]);
  }
  std::vector<std::string> zero1 = ParityCase{1, 1, 2, false, "zero1", "1f1b"}.settings(),
                           zero3 = ParityCase{1, 2, 2, false, "zero1", "1f1b"}.settings();
  zero1.push_back(bf16.front());
  zero3.push_back(bf16.front());
  EXPECT_EQ("", compare_bits(run(small_llama(), zero3), run(small_llama(), zero1))) << "a pipeline changes nothing";
}

// The scale is found by overflowing, on GPUs as on CPUs: the same batches are skipped, and what is trained is as close as fp16 is.
TEST_F(TrainingOnGpus, Fp16FindsItsScale) {
  std::vector<std::string> settings = ParityCase{1, 2, 2, false, "zero3", "1f1b"}.settings();
  settings.insert(settings.end(), {"precision.compute=fp16", "model.num_hidden_layers=2"});
  const LayoutRun cpu = run_layout(small_llama(), settings, {.steps = 20});
  const LayoutRun gpu = on_gpu(small_llama(), settings, {.steps = 20});
  EXPECT_EQ(gpu.applied, cpu.applied);
  EXPECT_FALSE(gpu.applied.front());
  EXPECT_TRUE(gpu.applied.back());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 2e-3 / 8 * cpu.losses[i]);
    if (!cpu.applied[i]) continue;
    EXPECT_NEAR(gpu.grad_norms[i], cpu.grad_norms[i], 2e-2 / 8 * cpu.grad_norms[i]);
  }
}

}  // namespace
}  // namespace trident::testing
