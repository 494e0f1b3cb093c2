// Keys of the section `cuda` reach what they name: a run on a simulated GPU shows it.
#include <gtest/gtest.h>

#include "core/check.h"
#include "core/file_io.h"
#include "device/host/doorbell.h"
#include "device/ops.h"
#include "parallel/cuda/cuda_backend.h"
#include "planner/bench/metered_device.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/layout_run.h"

namespace trident {
namespace {

testing::LayoutRun run(const std::vector<std::string>& settings) {
  const SimulatedScope scope;
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  testing::LayoutRunOptions options;
  options.cuda = cuda.get();
  options.steps = 1;
  std::vector<std::string> all{"model.num_hidden_layers=1", "batch.global=2"};
  all.insert(all.end(), settings.begin(), settings.end());
  return testing::run_layout(testing::tiny_llama_config(), all, options);
}

TEST(CudaOptions, Tf32RoundsAndTheDefaultDoesNot) {
  const testing::LayoutRun plain = run({}), again = run({}), tf32 = run({"cuda.tf32=true"});
  EXPECT_EQ(plain.grad_norms, again.grad_norms);
  EXPECT_NE(plain.grad_norms, tf32.grad_norms);
  EXPECT_NEAR(plain.losses.at(0), tf32.losses.at(0), 0.05);
}

TEST(CudaOptions, AutotuneKeepsAFile) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/choices.json";
  const testing::LayoutRun run_1 = run({"cuda.autotune=" + file});
  const std::string choices = read_file(file);
  EXPECT_NE(choices.find("NVIDIA H100 80GB HBM3"), std::string::npos) << choices.substr(0, 200);
  EXPECT_EQ(run({"cuda.autotune=" + file}).losses, run_1.losses);
  EXPECT_EQ(read_file(file), choices) << "nothing was left to time";
}

TEST(CudaOptions, ProductsNeedAMultiprocessor) {
  const SimulatedScope scope;
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  Doorbell doorbell;
  CudaOptions options;
  options.spare_multiprocessors = 131;
  EXPECT_NO_THROW(cuda->make_device(0, doorbell, {}, options));
  options.spare_multiprocessors = 132;
  try {
    cuda->make_device(0, doorbell, {}, options);
    FAIL() << "a GPU without multiprocessors for products";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "cuda.spare_multiprocessors = 132: GPU 0 has 132, and products need some; set it to what "
                               "cuda.nccl_max_ctas allows, or to 0");
  }
}

// bf16 heads of a size that cuDNN does not take: our own kernels compute them, and the device says so.
TEST(CudaOptions, ASlowerWayIsNoted) {
  const SimulatedScope scope;
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  Doorbell doorbell;
  const std::unique_ptr<Device> device = cuda->make_device(0, doorbell, {}, {});
  AttentionShape shape;
  shape.batch = 1, shape.query_heads = shape.kv_heads = 2, shape.query_length = shape.key_length = 8, shape.head_dim = 12,
  shape.dtype = DType::kBF16;
  device->ops().attention_workspace(shape);
  const std::vector<std::string> notes = device->notes();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("forward computed by our own kernels"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("backward computed by our own kernels"), std::string::npos) << notes[1];
  WorkMeter meter;
  EXPECT_EQ(make_metered_device(*device, meter)->notes(), notes) << "a device that measures says the same";
}

}  // namespace
}  // namespace trident
