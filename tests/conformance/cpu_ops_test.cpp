// The CPU backend passes the conformance suite, at every instruction set that this processor has. Tests are split by operation for
// their names; together they run every case.
#include <gtest/gtest.h>

#include <cstdint>

#include "device/cpu/cpu_device.h"
#include "tests/conformance/conformance.h"

namespace trident::conformance {
namespace {

constexpr std::uint64_t kSeed = 20261121;
constexpr const char* kMatmuls = "matmul:matmul_*";
constexpr const char* kAttention = "attention_*:*_heads:rope";
constexpr const char* kNorms = "*_norm_*";
constexpr const char* kLoss = "embedding_*:cross_entropy_*";
constexpr const char* kTheRest = "-matmul:matmul_*:attention_*:*_heads:rope:*_norm_*:embedding_*:cross_entropy_*";

void expect_passed(const std::vector<CaseResult>& results) {
  EXPECT_GT(results.size(), 20u) << "the filter finds its cases";
  for (const CaseResult& r : results) EXPECT_EQ(to_string(r.outcome), "passed") << r.name << ": " << r.what;
}

class CpuOps : public ::testing::TestWithParam<const char*> {};

TEST_P(CpuOps, AgreesWithTheReference) {
  Doorbell bell;
  CpuDevice device(bell, {});
  expect_passed(run_cases(device, GetParam(), kSeed));
}

// Small cases suffice: tests/device/row_kernels tries every width.
TEST_P(CpuOps, AgreesOnLowerInstructionSets) {
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kAvx2}) {
    if (level >= detect_cpu_features().level) continue;
    SCOPED_TRACE(to_string(level));
    Doorbell bell;
    CpuDevice device(bell, {1, std::nullopt, level});
    const std::string filter = GetParam();
    expect_passed(run_cases(device, filter + (filter.find('-') == std::string::npos ? "-" : ":") + "*/large_*", kSeed));
  }
}

INSTANTIATE_TEST_SUITE_P(, CpuOps, ::testing::Values(kMatmuls, kAttention, kNorms, kLoss, kTheRest), [](const auto& info) {
  const std::string filter = info.param;
  return filter == kMatmuls    ? "Products"
         : filter == kAttention ? "Attention"
         : filter == kNorms     ? "Norms"
         : filter == kLoss      ? "EmbeddingAndLoss"
                                : "TheRest";
});

TEST(CpuFusedOperations, AreThoseTheyStandForToTheBit) {
  Doorbell bell;
  CpuDevice device(bell, {});
  expect_passed(compare_one_by_one(device, "", kSeed));
}

TEST(CpuSupport, NothingIsRefused) {
  Doorbell bell;
  CpuDevice device(bell, {});
  for (const CaseResult& r : find_support(device, "-*/large_*"))
    EXPECT_EQ(to_string(r.outcome), "passed") << r.name << ": " << r.what;
}

}  // namespace
}  // namespace trident::conformance
