// A GPU without room for a run: which tensors want it, and what would make them fit.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "parallel/cuda/cuda_backend.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/layout_run.h"

namespace trident {
namespace {

// Refused by the driver all the same: somebody else was quicker. Of what is allocated before the arena nothing is told that much.
std::string refused_by_driver() {
  for (int before = 0; before < 16; ++before) {
    const SimulatedScope scope;
    simulated::fail_next("cudaMalloc", cudaErrorMemoryAllocation, before);
    const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
    testing::LayoutRunOptions options;
    options.cuda = cuda.get();
    options.steps = 1;
    try {
      testing::run_layout(testing::tiny_llama_config(), {}, options);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      if (text.find("the arena of rank 0") != std::string::npos) return text;
    }
  }
  return "";
}

TEST(GpuMemory, TheLargestTensorsAreNamed) {
  const std::string text = refused_by_driver();
  EXPECT_NE(text.find("memory: the arena of rank 0 (most of it for "), std::string::npos) << text;
  EXPECT_NE(text.find("of CUDA device 0 (NVIDIA H100 80GB HBM3), which has"), std::string::npos) << text;
  EXPECT_NE(text.find("; make batch.micro or batch.sequence smaller, set recompute.policy = full or recompute.head_chunk, "),
            std::string::npos)
      << text;
  // 16 tokens, 16 blocks; feed-forward gate and up of 96 columns each, a vocabulary of 97 padded to 128.
  EXPECT_NE(text.find("activations of stage 0, block 0 (the largest: f32 [16, 192] of block 0) "), std::string::npos) << text;
  EXPECT_NE(text.find("gradients f32 ["), std::string::npos) << text;
}

}  // namespace
}  // namespace trident
