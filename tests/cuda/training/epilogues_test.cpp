// Training with biases, GELU and their gradients left to the kernels of products: the numbers of training without.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "cuda/simulated/cublaslt.h"
#include "cuda/simulated/runtime.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"

namespace trident::testing {
namespace {

// Four micro-batches a step: the first overwrites gradients, the others add.
constexpr const char* kGpt2 = R"({
    "model": {"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 16, "dropout": 0},
    "batch": {"global": 4, "micro": 1, "sequence": 8}, "precision": {"compute": "fp32"},
    "optimizer": {"lr": 3e-4, "grad_clip": 1.0}, "lr_schedule": {"type": "constant"}, "debug": {"no_alloc": true}
  })";

class Epilogues : public ::testing::Test {
 protected:
  void SetUp() override {
    simulated::reset();
    simulated::configure({.host_guard = simulated::HostGuard::kOff});
  }
  void TearDown() override { simulated::reset(); }

  struct Trained {
    LayoutRun run;
    std::int64_t fused = 0;  // products with an epilogue, in steps and evaluations
  };
  Trained train(std::vector<std::string> settings, bool epilogues) {
    if (epilogues) settings.push_back("cuda.epilogues=true");
    LayoutRunOptions options;
    options.cuda = backend_.get();
    options.evaluate = true;
    const std::int64_t before = simulated::cublaslt_counts().fused;
    Trained trained{run_layout(kGpt2, settings, options)};
    const std::int64_t all = simulated::cublaslt_counts().fused - before;
    // Without those that are run before the first step.
    options.steps = 0, options.evaluate = false;
    run_layout(kGpt2, settings, options);
    trained.fused = all - (simulated::cublaslt_counts().fused - before - all);
    return trained;
  }
  // In fp32, as another order of the same sums. Biases among the gradients: each within its own size.
  void expect_same(const std::vector<std::string>& settings, std::int64_t fused) {
    const Trained with = train(settings, true), without = train(settings, false);
    EXPECT_EQ(with.fused, fused);
    EXPECT_EQ(without.fused, 0);
    EXPECT_EQ("", compare_losses(with.run, without.run));
    EXPECT_EQ("", compare_gradients(with.run.gradients, without.run.gradients));
    EXPECT_NEAR(with.run.eval_loss, without.run.eval_loss, 1e-6 * without.run.eval_loss);
    EXPECT_EQ(with.run.planned_bytes, without.run.planned_bytes);
  }

  std::unique_ptr<CudaBackend> backend_ = make_cuda_backend();
};

// Of each block and pass. Forward: queries with keys and values, the attention's output, and both of the feed-forward part.
// Backward: the gradient of GELU, and four weight gradients.
constexpr std::int64_t kForward = 4, kBackward = 5, kBlocks = 3, kMicroBatches = 4, kSteps = 3, kEvaluated = 8;

TEST_F(Epilogues, OneRank) {
  expect_same({}, kBlocks * (kSteps * kMicroBatches * (kForward + kBackward) + kEvaluated * kForward));
}

// Queries, keys, values and the first feed-forward product are made again, with their biases.
TEST_F(Epilogues, Recomputation) {
  expect_same({"recompute.policy=full"}, kBlocks * (kSteps * kMicroBatches * (kForward + 3 + kBackward) + kEvaluated * kForward));
}

// Row-parallel products are summands: their biases come after the sum. Their bias gradients are whole on every rank,
TEST_F(Epilogues, TensorParallel) {
  expect_same(ParityCase{2, 1, 1, false}.settings(), 2 * kBlocks * (kSteps * kMicroBatches * (2 + kBackward) + kEvaluated * 2));
}
// but not where the sequence is split: each rank has those of its rows.
TEST_F(Epilogues, SequenceParallel) {
  expect_same(ParityCase{2, 1, 1, true}.settings(), 2 * kBlocks * (kSteps * kMicroBatches * (2 + 3) + kEvaluated * 2));
}

TEST_F(Epilogues, EqualOneRankInOtherLayouts) {
  const Trained one = train({}, false);
  for (const ParityCase& layout : {ParityCase{2, 2, 1, true, "zero1", "1f1b"}, ParityCase{1, 1, 2, false, "zero3", "1f1b"}}) {
    std::vector<std::string> settings = layout.settings();
    settings.push_back("recompute.policy=full");
    const Trained trained = train(settings, true);
    EXPECT_GT(trained.fused, 0);
    EXPECT_EQ("", compare_losses(trained.run, one.run)) << layout.name();
    EXPECT_EQ("", compare_gradients(trained.run.gradients, one.run.gradients)) << layout.name();
  }
}

// Rounded once instead of twice: as close as the format is, bias gradients too, which are f32 sums of rounded terms.
TEST_F(Epilogues, HalfPrecision) {
  for (const auto& [format, fraction] : {std::pair("bf16", 1.0), {"fp16", 1.0 / 8}}) {
    const std::vector<std::string> settings = {std::string("precision.compute=") + format, "recompute.policy=full"};
    const std::vector<std::string> scaled = {"precision.loss_scale=1024"};
    std::vector<std::string> all = settings;
    if (fraction != 1.0) all.insert(all.end(), scaled.begin(), scaled.end());
    const LayoutRun with = train(all, true).run, without = train(all, false).run;
    EXPECT_NE(with.losses, without.losses) << "nothing was rounded otherwise";
    for (std::size_t i = 0; i < without.losses.size(); ++i) {
      EXPECT_NEAR(with.losses[i], without.losses[i], 2e-3 * fraction * without.losses[i]) << format;
      EXPECT_NEAR(with.grad_norms[i], without.grad_norms[i], 2e-2 * fraction * without.grad_norms[i]) << format;
    }
    for (const auto& [name, expected] : without.gradients) {
      const std::vector<float>& gradient = with.gradients.at(name);
      double off = 0, size = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        off += std::pow(gradient[i] - expected[i], 2), size += std::pow(expected[i], 2);
      EXPECT_LE(std::sqrt(off), 3e-2 * fraction * std::sqrt(size)) << format << " " << name;
    }
  }
}

TEST_F(Epilogues, WithinGraphsTheBitsAreTheSame) {
  const std::vector<std::string> settings = {"precision.compute=bf16"};
  const Trained eager = train(settings, true);
  EXPECT_EQ(simulated::graph_uses().launched, 0u);
  std::vector<std::string> graphs = settings;
  graphs.push_back("cuda.graphs=true");
  EXPECT_EQ("", compare_bits(train(graphs, true).run, eager.run));
  EXPECT_GT(simulated::graph_uses().launched, 0u);
}

}  // namespace
}  // namespace trident::testing
