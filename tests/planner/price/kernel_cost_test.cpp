// Kernels and collectives against numbers worked out by hand.
#include "planner/price/kernel_cost.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/check.h"
#include "planner/price/collective_cost.h"
#include "planner/price/log_table.h"

namespace trident {
namespace {

GpuRates round_gpu() {
  GpuRates gpu;
  gpu.name = "round";
  gpu.peak_16bit = 100e12;
  gpu.peak_fp8 = 200e12;
  gpu.memory_bytes_per_s = 1e12;
  gpu.multiprocessors = 100;
  gpu.row_fraction = 0.5;
  gpu.score_fraction = 0.5;
  gpu.kernel_start_s = 1e-6;
  gpu.gemm.sustained = 0.5;
  gpu.attention = {{"flash2", 0.25, 0.2}};
  return gpu;
}

TEST(KernelCost, AGemmTakesWavesOfTiles) {
  GpuRates gpu = round_gpu();
  gpu.memory_bytes_per_s = 1e13;  // operands are never what it waits for
  // 256 x 128 tiles: 10 x 10 = one wave of 100; each multiprocessor does 2 x 256 x 128 x 4096 at 0.5e12.
  const double wave = 2.0 * 256 * 128 * 4096 / 0.5e12;
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 2560, 1280, 4096), wave + 1e-6);
  // One row of tiles more is a second wave, unless smaller tiles fill it better; never less than the work at the full rate.
  const double more = gemm_seconds(gpu, 2561, 1280, 4096) - 1e-6;
  EXPECT_GT(more, wave);
  EXPECT_LE(more, 2 * wave);
  // 300 x 12800: 3 x 100 tiles of 128 x 128 are three waves of half tiles at 0.94 of the rate; other shapes take longer.
  EXPECT_NEAR(gemm_seconds(gpu, 300, 12800, 4096) - 1e-6, 3 * wave / 2 / 0.94, 1e-9 * wave);
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 4096) - 1e-6, 100 * wave, 1e-9 * wave);
  // `batch` products fill the waves together.
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 256, 128, 4096, 100), wave + 1e-6);
}

TEST(KernelCost, AGemmIsNoFasterThanItsOperands) {
  const GpuRates gpu = round_gpu();
  const double bytes = 2.0 * (1e6 * 8 + 8 * 128 + 1e6 * 128);
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 1e6, 128, 8), bytes / 0.5e12 + 1e-6);
}

// A tile takes no longer besides its inner loop where products are slower; operands are twice as large.
TEST(KernelCost, Fp32AndTf32HaveTheirOwnPeaks) {
  GpuRates gpu = round_gpu();
  gpu.memory_bytes_per_s = 1e13;
  gpu.gemm.inner_overhead = 512;
  const auto seconds = [&](double k, MathFormat format) { return gemm_seconds(gpu, 25600, 12800, k, 1, 1, format) - 1e-6; };
  const double fixed = seconds(0, MathFormat::k16Bit), inner = seconds(4096, MathFormat::k16Bit) - fixed;
  EXPECT_NEAR(seconds(4096, MathFormat::kFp32), fixed + 16 * inner, 1e-9) << "no word of fp32: a 16th";
  EXPECT_EQ(seconds(4096, MathFormat::kTf32), seconds(4096, MathFormat::kFp32)) << "no word of tf32";
  gpu.peak_fp32 = 10e12;
  EXPECT_NEAR(seconds(4096, MathFormat::kFp32), fixed + 10 * inner, 1e-9);
  gpu.peak_tf32 = 50e12;
  EXPECT_NEAR(seconds(4096, MathFormat::kTf32), fixed + 2 * inner, 1e-9);
  gpu.gemm.inner_overhead = 0;
  gpu.memory_bytes_per_s = 1e12;
  const double bytes = 4.0 * (1e6 * 8 + 8 * 128 + 1e6 * 128);
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 1e6, 128, 8, 1, 1, MathFormat::kTf32), bytes / 0.5e12 + 1e-6);
}

TEST(KernelCost, ShortInnerDimensionsAndRatesCost) {
  GpuRates gpu = round_gpu();
  const double plain = gemm_seconds(gpu, 25600, 12800, 512) - 1e-6;
  gpu.gemm.inner_overhead = 512;
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 512) - 1e-6, 2 * plain, 1e-12);
  gpu.gemm.inner_overhead = 0;
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 512, 1, 0.5) - 1e-6, 2 * plain, 1e-12);
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 4096, 1, 1, MathFormat::kFp8) - 1e-6,
              (gemm_seconds(gpu, 25600, 12800, 4096) - 1e-6) / 2, 1e-9);
}

TEST(KernelCost, FusedAttentionDoesTheCausalHalf) {
  const GpuRates gpu = round_gpu();
  EXPECT_DOUBLE_EQ(fused_attention_seconds(gpu, "flash2", 1e12, false), 0.5e12 / 25e12 + 1e-6);
  EXPECT_DOUBLE_EQ(fused_attention_seconds(gpu, "flash2", 1e12, true), 1.25e12 / 20e12 + 1e-6);
  EXPECT_THROW(fused_attention_seconds(gpu, "flash9", 1e12, false), ConfigError);
}

ClusterLinks round_links() {
  ClusterLinks links;
  links.gpus_per_node = 8;
  links.nvlink = {.bytes_per_s = 200e9, .fraction = 0.5, .message_fraction = 0.8, .hop_s = 1e-6, .start_s = 5e-6};
  links.network = {.bytes_per_s = 20e9, .fraction = 0.5, .message_fraction = 0.8, .hop_s = 10e-6, .start_s = 50e-6};
  return links;
}

TEST(CollectiveCost, RingsStayWithinANode) {
  const ClusterLinks links = round_links();
  EXPECT_DOUBLE_EQ(all_reduce_seconds(links, {8, 1}, 8e9), 5e-6 + 14 * 1e-6 + 14e9 / 100e9);
  EXPECT_DOUBLE_EQ(gather_seconds(links, {8, 1}, 8e9), 5e-6 + 7 * 1e-6 + 7e9 / 100e9);
  EXPECT_EQ(all_reduce_seconds(links, {1, 1}, 8e9), 0);
  EXPECT_EQ(gather_seconds(links, {8, 1}, 0), 0);
}

TEST(CollectiveCost, RingsBetweenNodesShareTheGpusOfTheirRanks) {
  const ClusterLinks links = round_links();
  // 16 ranks on 2 nodes: 8 GPUs of 10 GB/s carry it; 14 hops within, one between.
  EXPECT_DOUBLE_EQ(gather_seconds(links, {16, 1}, 16e9), 50e-6 + 14 * 1e-6 + 10e-6 + 15e9 / 80e9);
  // 4 ranks, one in a node each: one GPU.
  EXPECT_DOUBLE_EQ(gather_seconds(links, {4, 8}, 4e9), 50e-6 + 3 * 10e-6 + 3e9 / 10e9);
  // tp 8 across two nodes of 4 is far slower than within one.
  ClusterLinks small = links;
  small.gpus_per_node = 4;
  EXPECT_GT(all_reduce_seconds(small, {8, 1}, 1e9), 2 * all_reduce_seconds(links, {8, 1}, 1e9));
}

TEST(CollectiveCost, MessagesCostTheirBytes) {
  const ClusterLinks links = round_links();
  EXPECT_DOUBLE_EQ(message_seconds(links, {4, 1}, 16e6), 1e-6 + 16e6 / 160e9);
  EXPECT_DOUBLE_EQ(message_seconds(links, {4, 8}, 16e6), 10e-6 + 16e6 / 16e9);
  EXPECT_EQ(message_seconds(links, {1, 8}, 16e6), 0);
}

TEST(CollectiveCost, OverlapSlowsBothSidesWhileBothRun) {
  EXPECT_DOUBLE_EQ(overlapped_seconds(10, 0, 1.2, 1.5), 10);
  EXPECT_DOUBLE_EQ(overlapped_seconds(0, 10, 1.2, 1.5), 10);
  // 2 s of traffic take 3 s beside compute, which does 3 / 1.2 = 2.5 s of its own meanwhile; 7.5 s remain.
  EXPECT_DOUBLE_EQ(overlapped_seconds(10, 2, 1.2, 1.5), 10.5);
  // Compute ends first, after 1.2 s, in which 0.8 s of traffic passed.
  EXPECT_DOUBLE_EQ(overlapped_seconds(1, 10, 1.2, 1.5), 1.2 + 9.2);
}

// Tables of measured times: powers are met between points, small sizes cost what the smallest does, and nothing gets cheaper by
// growing.

LogTable power_law() {  // 3 x^2 y
  const std::vector<double> x{1, 4, 10}, y{2, 8};
  std::vector<double> values;
  for (const double a : x)
    for (const double b : y) values.push_back(3 * a * a * b);
  return {{x, y}, values, {2, 1}};
}

TEST(LogTable, MeetsAPowerLawBetweenItsPointsAndBeyondThem) {
  const LogTable table = power_law();
  for (const double x : {1.0, 1.7, 4.0, 9.0, 10.0, 35.0})
    for (const double y : {2.0, 3.3, 8.0, 50.0})
      EXPECT_NEAR(table.at(std::array{x, y}) / (3 * x * x * y), 1, 1e-12) << x << ' ' << y;
}

TEST(LogTable, StaysWhatItIsBelowTheFirstPoint) {
  const LogTable table = power_law();
  EXPECT_DOUBLE_EQ(table.at(std::array{0.01, 2.0}), table.at(std::array{1.0, 2.0}));
  EXPECT_DOUBLE_EQ(table.at(std::array{4.0, 0.5}), table.at(std::array{4.0, 2.0}));
}

TEST(LogTable, OnePointGrowsFromThere) {
  const LogTable table({{64}}, {1e-6}, {1});
  EXPECT_DOUBLE_EQ(table.at(8), 1e-6);
  EXPECT_NEAR(table.at(640), 1e-5, 1e-18);
}

TEST(LogTable, ADisturbedPointGetsTheLargerSizesValue) {
  const std::vector<std::vector<double>> axes{{1, 2}, {1, 2, 3}};
  std::vector<double> values{5, 2, 9,  //
                             4, 7, 8};
  fall_to_larger(axes, values);
  EXPECT_EQ(values, (std::vector<double>{2, 2, 8, 4, 7, 8}));
  const LogTable table(axes, values, {1, 1});
  for (double x = 0.5; x < 5; x += 0.13)
    for (double y = 0.5; y < 7; y += 0.17) {
      EXPECT_LE(table.at(std::array{x, y}), table.at(std::array{x + 0.1, y}) * (1 + 1e-12));
      EXPECT_LE(table.at(std::array{x, y}), table.at(std::array{x, y + 0.1}) * (1 + 1e-12));
    }
}

TEST(LogTable, RefusesWhatIsNone) {
  EXPECT_THROW(LogTable({{1, 1}}, {1, 2}, {1}), InternalError);
  EXPECT_THROW(LogTable({{1, 2}}, {1}, {1}), InternalError);
  EXPECT_THROW(LogTable({{1, 2}}, {1, 0}, {1}), InternalError);
  EXPECT_THROW(LogTable({{0, 2}}, {1, 1}, {1}), InternalError);
  EXPECT_THROW(power_law().at(3), InternalError);
}

}  // namespace
}  // namespace trident
