// A binary without CUDA: nothing there, and a device of it is refused by name.
#include <gtest/gtest.h>

#include "parallel/cuda/cuda_backend.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(NoCuda, SaysSo) {
  const std::unique_ptr<CudaBackend> backend = make_cuda_backend();
  EXPECT_TRUE(backend->facts().gpus.empty());
  expect_parts(backend->facts().problem, {"built without CUDA"});
  Doorbell bell;
  expect_parts(error_of<ConfigError>([&] { backend->make_device(0, bell, {}, {}); }),
               {"device = cuda: this binary was built without CUDA"});
}

}  // namespace
}  // namespace trident
