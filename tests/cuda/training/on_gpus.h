// Training on simulated GPUs: the fixture, and the small models that tests train.
#pragma once

#include <gtest/gtest.h>

#include "cuda/simulated/runtime.h"
#include "support/layout_run.h"

namespace trident::testing {

// A configuration has this beside its model.
inline const std::string kSmallRun = R"("batch": {"global": 4, "micro": 1, "sequence": 8}, "precision": {"compute": "fp32"},
    "optimizer": {"lr": 3e-4, "grad_clip": 1.0}, "lr_schedule": {"type": "constant", "warmup_steps": 2},
    "debug": {"no_alloc": true})";

// Grouped queries, heads of 8.
inline std::string small_llama(int width = 32, int layers = 4, const std::string& run = kSmallRun) {
  return fmt::format(R"({{"model": {{"model_type": "llama", "vocab_size": 61, "hidden_size": {}, "num_hidden_layers": {},
    "num_attention_heads": {}, "num_key_value_heads": {}, "intermediate_size": {}, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": false}}, {}}})", width, layers, width / 8, width / 16, width * 3 / 2, run);
}
// Learned positions, and a tied weight that is transposed on disk.
inline std::string small_gpt2(int width = 32, int layers = 2, double dropout = 0.1, const std::string& run = kSmallRun) {
  return fmt::format(R"({{"model": {{"model_type": "gpt2", "vocab_size": 61, "n_embd": {}, "n_layer": {}, "n_head": {},
    "n_positions": 32, "dropout": {}}}, {}}})", width, layers, width / 8, dropout, run);
}

class OnGpus : public ::testing::Test {
 protected:
  void SetUp() override { configure({}); }
  void TearDown() override {
    simulated::reset();
    const simulated::Census left = simulated::census();
    EXPECT_EQ(left.allocations + left.streams + left.events + left.queued + left.graphs, 0u)
        << "something of the device outlived the run";
  }
  // Without the guard of each other's memory, for which ranks wait most of the time where there are many.
  static void configure(simulated::Settings settings) {
    simulated::reset();
    settings.host_guard = simulated::HostGuard::kOff;
    simulated::configure(settings);
  }
  LayoutRun on_gpu(const std::string& config, const std::vector<std::string>& settings, LayoutRunOptions options = {}) {
    options.cuda = backend_.get();
    return run_layout(config, settings, options);
  }

  std::unique_ptr<CudaBackend> backend_ = make_cuda_backend();
};

}  // namespace trident::testing
