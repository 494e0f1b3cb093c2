// A binary without CUDA: nothing there, and a device of it is refused by name.
#include <gtest/gtest.h>

#include "parallel/cuda/cuda_backend.h"

namespace trident {
namespace {

TEST(NoCuda, SaysSo) {
  const std::unique_ptr<CudaBackend> backend = make_cuda_backend();
  EXPECT_TRUE(backend->facts().gpus.empty());
  EXPECT_NE(backend->facts().problem.find("built without CUDA"), std::string::npos) << backend->facts().problem;
  Doorbell bell;
  try {
    backend->make_device(0, bell, {}, {});
    FAIL() << "a CUDA device without CUDA";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("device = cuda: this binary was built without CUDA"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trident
