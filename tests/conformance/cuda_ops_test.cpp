// The CUDA backend passes the conformance suite, and agrees with the CPU backend on the same inputs. Which CUDA that is, is decided
// when the test is linked: GPU 0 of this machine (skipped where there is none), or the simulated one.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "device/cpu/cpu_device.h"
#include "parallel/cuda/cuda_backend.h"
#include "tests/conformance/conformance.h"

namespace trident::conformance {
namespace {

constexpr std::uint64_t kSeed = 20261122;
// cuDNN reads vectors of 16 bytes.
constexpr const char* kMayRefuse = "attention_*/*16/*_shifted";
// A simulated GPU computes an element at a time: its large cases would take minutes. trident_op_check runs them on a real one.
constexpr const char* kCases = "-*/large_*";

class CudaOps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!backend_->facts().problem.empty()) GTEST_SKIP() << "no CUDA GPU: " << backend_->facts().problem;
    device_ = backend_->make_device(0, bell_, {}, {});
  }
  static void expect_passed(const std::vector<CaseResult>& results, std::size_t fewest = 100) {
    EXPECT_GT(results.size(), fewest) << "the filter finds its cases";
    for (const CaseResult& r : results) {
      if (r.outcome == Outcome::kRefused && matches(kMayRefuse, r.name)) continue;
      EXPECT_EQ(to_string(r.outcome), "passed") << r.name << ": " << r.what;
    }
  }

  Doorbell bell_;
  std::unique_ptr<CudaBackend> backend_ = make_cuda_backend();
  std::unique_ptr<Device> device_;
};

TEST_F(CudaOps, AgreeWithTheReference) { expect_passed(run_cases(*device_, kCases, kSeed)); }

TEST_F(CudaOps, FusedOperationsAreThoseTheyStandForToTheBit) {
  expect_passed(compare_one_by_one(*device_, fmt::format("*/bf16/*{}", kCases), kSeed), 40);
}

// With what the library can do in one kernel.
TEST_F(CudaOps, FusedAgreeWithTheReferenceAndTheCpu) {
  CpuDevice cpu(bell_, {});
  device_ = backend_->make_device(0, bell_, {}, {.epilogues = true});
  expect_passed(run_cases(*device_, fmt::format("matmul_*{}", kCases), kSeed), 50);
  expect_passed(compare_devices(*device_, cpu, fmt::format("matmul_*/*/24x*{}", kCases), kSeed + 1), 15);
}

// A sample: each of the two has been judged by the reference.
TEST_F(CudaOps, AgreeWithTheCpu) {
  CpuDevice cpu(bell_, {});
  expect_passed(compare_devices(*device_, cpu, "rms_norm_*:attention_*:adamw:lion:matmul/*/24x*-*/large_*", kSeed + 1));
}

}  // namespace
}  // namespace trident::conformance
