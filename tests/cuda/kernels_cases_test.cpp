// Every kernel, in f32, bf16 and f16, aligned and not, in several orders of its threads, against the host: the cases of the
// operations' conformance suite, which hold the host to the scalar reference.
#include <gtest/gtest.h>

#include <cstdint>

#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "tests/conformance/case_table.h"
#include "tests/conformance/conformance.h"
#include "tests/cuda/simulated_scope.h"

namespace trident::conformance {
namespace {

// Products and attention are the libraries'; the rest of attention is kernels_attention_test.cpp's.
constexpr const char* kOwnKernels = "-*/large_*:matmul*:attention_*:cached_attention";

class CudaKernelCases : public ::testing::TestWithParam<bool> {};

// The operands lie at multiples of 256 bytes, or one element behind them. tests/conformance/cuda_ops_test.cpp runs each case twice
// and guards what must not be touched; here sanitizers look.
TEST_P(CudaKernelCases, AgreeWithTheHost) {
  const bool aligned = GetParam();
  const SimulatedScope scope({.fiber_order = aligned ? simulated::FiberOrder::kWarpByWarp : simulated::FiberOrder::kReverse,
                              .host_guard = simulated::HostGuard::kOff});
  Doorbell bell;
  CudaDevice device(0, bell, {});
  CpuDevice host(bell, {});
  std::size_t run = 0;
  for (const OpCase& c : all_cases()) {
    if (!matches(kOwnKernels, c.name()) || (c.shift != 0 && aligned)) continue;
    const CaseResult result = compare_case(device, host, aligned || c.shift != 0 ? c : shifted(c), 20261130);
    EXPECT_EQ(to_string(result.outcome), "passed") << result.name << ": " << result.what;
    ++run;
  }
  EXPECT_GT(run, 1000u) << "the filter finds its cases";
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernelCases, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "aligned" : "misaligned"); });

}  // namespace
}  // namespace trident::conformance
