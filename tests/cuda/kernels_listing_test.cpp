// No kernel goes untested: every kernel compiled into this program runs here against a reference, and every kernel of the sources
// is one of those.
#include <algorithm>
#include <filesystem>
#include <set>

#include "device/cuda/cuda_gpus.h"
#include "tests/cuda/kernel_listing.h"
#include "tests/cuda/kernel_runs.h"
#include "tests/cuda/simulated_scope.h"

namespace trident::testing {
namespace {

std::string name_of(const std::string& kernel) { return kernel.substr(0, kernel.find('<')); }

TEST(CudaKernelListing, EveryKernelInTheProgramIsRun) {
  const SimulatedScope scope({.stream_order = simulated::StreamOrder::kEager, .fiber_order = simulated::FiberOrder::kForward});
  run_every_kernel();
  EXPECT_GT(compiled_kernels("").size(), 100u) << "the program's kernels were not found";
  for (const std::string& kernel : untested_kernels("")) ADD_FAILURE() << kernel << " is compiled, but no test runs it";
}

TEST(CudaKernelListing, EveryKernelOfTheSourcesIsInTheProgram) {
  std::set<std::string> compiled;
  for (const std::string& kernel : compiled_kernels("")) compiled.insert(name_of(kernel));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRIDENT_KERNEL_FOLDER)) {
    if (entry.path().extension() != ".cu") continue;
    ++files;
    const auto names = global_functions(entry.path().string());
    EXPECT_FALSE(names.empty()) << entry.path() << " has no kernels";
    for (const std::string& name : names) {
      EXPECT_EQ(compiled.count(name), 1u) << name << " of " << entry.path()
                                          << " is not compiled into this program, or no name ending in _kernel";
    }
  }
  EXPECT_GE(files, 13);
}

// CUDA would bring them there with their first launches, and may wait for the GPU to be idle.
TEST(CudaKernelListing, AGpuThatIsOpenHasEveryKernel) {
  const SimulatedScope scope({.devices = 2});
  const CudaFacts facts = find_cuda_gpus();
  EXPECT_EQ(open_cuda_gpu(facts.gpus.at(1)), "");
  for (const std::string& kernel : unloaded_kernels(1)) ADD_FAILURE() << kernel << " is not listed";
  EXPECT_EQ(unloaded_kernels(0).size(), compiled_kernels("").size());
}

TEST(CudaKernelListing, AKernelThatNobodyRanIsNamed) {
  // In a process of its own, as tests run, nothing has been launched yet.
  if (compiled_kernels("").size() == untested_kernels("").size())
    EXPECT_FALSE(untested_kernels("update").empty());
  else
    GTEST_SKIP() << "other tests ran in this process";
}

}  // namespace
}  // namespace trident::testing
