// Rates count on processors of the name that they were measured on, so the name must tell processors apart; and the peak that steps
// are measured by.
#include "train/plan/machine.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "core/file_io.h"
#include "device/cpu/cpu_device.h"
#include "planner/price/cpu_rates.h"
#include "tests/data/temporary_folder.h"
#include "train/run/peak_flops.h"

namespace trident {
namespace {

constexpr CpuFeatures kZen3{IsaLevel::kAvx2, false, false}, kPlainAvx512{IsaLevel::kAvx512, false, false};

class Processors : public ::testing::Test {
 protected:
  std::string name(const std::string& cpuinfo, const CpuFeatures& features) {
    write_file(folder_ / "cpuinfo", cpuinfo);
    return processor_name(folder_ / "cpuinfo", features);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Processors, AreToldApartByFamilyAndInstructions) {
  const std::string zen3 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n";
  EXPECT_EQ(name(zen3, kZen3), "AMD EPYC (family 25, avx2)");
  EXPECT_EQ(name(zen3, kPlainAvx512), "AMD EPYC (family 25, avx512)");
  // A second processor does not count, nor does what follows it.
  EXPECT_EQ(name(zen3 + "\nprocessor\t: 1\ncpu family\t: 26\nmodel name\t: another\n", kZen3), "AMD EPYC (family 25, avx2)");
}

TEST_F(Processors, WithoutANameOrFamilyAreUnknown) {
  EXPECT_EQ(name("", kZen3), "unknown processor (avx2)");
  EXPECT_EQ(name("BogoMIPS\t: 50.00\nmodel name\t:\n", CpuFeatures()), "unknown processor (baseline)");
  EXPECT_EQ(processor_name("/nowhere/cpuinfo", kZen3), "unknown processor (avx2)");
}

TEST_F(Processors, OfAnotherGenerationHaveOtherRates) {
  const std::string shipped = shipped_cpu_rates().processor;
  const std::string said = shipped.substr(0, shipped.find(" ("));
  EXPECT_EQ(said, "AMD EPYC");
  for (const char* family : {"23", "25"})
    EXPECT_NE(name("cpu family\t: " + std::string(family) + "\nmodel name\t: " + said + "\n", kZen3), shipped);
  if (has_bf16_products({IsaLevel::kAvx512, true, false}, IsaLevel::kAvx512)) {
    EXPECT_EQ(name("cpu family\t: 26\nmodel name\t: " + said + "\n", {IsaLevel::kAvx512, true, false}), shipped);
  }
}

// A peak that was measured too low is raised for all steps from then on, by a second measurement or by the step that shows it.
TEST(PeakFlops, IsOneValueThatAFasterStepRaises) {
  struct Case {
    std::optional<double> first, second;
    double raised;  // by a step of 3
  };
  for (const Case& c : {Case{2, 4, 4}, Case{2, 2.5, 3}, Case{2, std::nullopt, 3}}) {
    int measured = 0, said = 0;
    const Say say = [&](const std::string&) { ++said; };
    PeakFlops peak([&] { return measured++ == 0 ? c.first : c.second; }, say);
    EXPECT_EQ(peak.share(1, 1, say), 0.5);
    EXPECT_EQ(peak.share(2, 2, say), 1);
    EXPECT_EQ(said, 0);
    EXPECT_EQ(peak.share(3, 3, say), 3 / c.raised);
    EXPECT_EQ(said, 1);
    EXPECT_EQ(peak.share(4, 1, say), 1 / c.raised) << "the old peak is gone";
    EXPECT_EQ(peak.share(5, 8, say), 1);
    EXPECT_EQ(peak.share(6, 4, say), 0.5);
    EXPECT_EQ(measured, 2) << "a third time it is not measured";
  }
  std::string said;
  const Say say = [&](const std::string& line) { said += line; };
  PeakFlops unknown([]() -> std::optional<double> { return std::nullopt; }, say);
  EXPECT_EQ(unknown.share(1, 1, say), std::nullopt);
  EXPECT_TRUE(said.starts_with("mfu is not shown")) << said;
}

}  // namespace
}  // namespace trident
