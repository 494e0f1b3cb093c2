// No kernel goes untested: some test of this program runs every kernel that is compiled into it, and every kernel of the sources
// is compiled into it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "device/cuda/cuda_gpus.h"
#include "tests/cuda/kernel_listing.h"
#include "tests/cuda/simulated_scope.h"

namespace trident::testing {
namespace {

std::string name_of(const std::string& kernel) { return kernel.substr(0, kernel.find('<')); }

// Asks at the end of a process that ran every test of this program.
class EveryKernelIsRun : public ::testing::Environment {
  void SetUp() override { EXPECT_FALSE(untested_kernels("update").empty()) << "a kernel that nobody ran is not named"; }
  void TearDown() override {
    const auto& tests = *::testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() < tests.total_test_count() - tests.disabled_test_count()) {
      std::puts("kernels not checked: a filter is set");
      return;
    }
    EXPECT_GT(compiled_kernels("").size(), 100u) << "the program's kernels were not found";
    for (const std::string& kernel : untested_kernels("")) ADD_FAILURE() << kernel << " is compiled, but no test runs it";
  }
};
[[maybe_unused]] const auto* const every_kernel_is_run = ::testing::AddGlobalTestEnvironment(new EveryKernelIsRun);

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
  const SimulatedScope scope({.devices = 8});  // other tests open the first ones
  const CudaFacts facts = find_cuda_gpus();
  EXPECT_EQ(open_cuda_gpu(facts.gpus.at(7)), "");
  for (const std::string& kernel : unloaded_kernels(7)) ADD_FAILURE() << kernel << " is not listed";
  EXPECT_EQ(unloaded_kernels(6).size(), compiled_kernels("").size());
}

}  // namespace
}  // namespace trident::testing
