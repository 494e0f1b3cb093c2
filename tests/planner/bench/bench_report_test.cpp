// What trident bench prints of a report.
#include "planner/bench/bench_report.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

BenchReport example() {
  BenchReport report;
  report.device = "GPU 0";
  report.why = "device = auto: 1 GPU";
  report.compute = DType::kBF16;
  report.matmul_flops = 100e12;
  report.copy_bytes = 2e12;
  CollectiveRates nccl;
  nccl.way = "threads by NCCL", nccl.skipped = "there is no GPU";
  report.collectives = {{"threads on their devices", 2, "", "copies at once", 4e12, {{"all_reduce", 1e9, 0.002, 5e9}}}, nccl};
  report.tokens = 1000;
  report.step_seconds = 0.050;
  report.metered_seconds = 0.064;
  report.work = {{WorkKind::kRows, "add", 3, 0.004, 0, 4e9},              // floor: 2 ms of bytes
                 {WorkKind::kMatmuls, "matmul", 7, 0.040, 3e12, 20e9},   // 30 ms of products, 10 ms of bytes
                 {WorkKind::kRows, "add_bias", 1, 0.016, 0, 8e9}};        // 4 ms
  return report;
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find(line + "\n"), std::string::npos) << "no line:\n" << line << "\nin:\n" << text;
}

TEST(BenchReport, FloorsAreProductsOrBytesWhicheverTakeLonger) {
  const BenchReport report = example();
  EXPECT_DOUBLE_EQ(report.floor_seconds(report.work[0]), 0.002);
  EXPECT_DOUBLE_EQ(report.floor_seconds(report.work[1]), 0.030);
}

TEST(BenchReport, TheTableShowsSharesAndFloors) {
  const std::string text = to_text(example());
  expect_line(text, "GPU 0 (device = auto: 1 GPU)");
  expect_line(text, "a large product in bf16 reaches 100.00 TFLOP/s, a copy 2000.0 GB/s (read and written)");
  expect_line(text, "collectives of 2 threads on their devices; copies at once reach 4000.0 GB/s");
  expect_line(text, "collectives of threads by NCCL: SKIPPED: there is no GPU");
  expect_line(
      text,
      "  all_reduce           of 1000.0 MB:     2.000 ms, 500.00 GB/s of the operand, floor     1.250 ms,  62.5 % of the time");
  expect_line(text,
              "one step of 1000 tokens on one rank: 50.0 ms, 20000 tokens/s; 64.0 ms with every operation waited for, 60.0 ms of "
              "them in operations");
  expect_line(text, "  products                 40.00 ms  66.7 % of the work, floor     30.00 ms,  75.0 % of the time");
  expect_line(text, "  rows                     20.00 ms  33.3 % of the work, floor      6.00 ms,  30.0 % of the time");
  expect_line(text, "  all                      60.00 ms 100.0 % of the work, floor     36.00 ms,  60.0 % of the time");
  expect_line(text, "  matmul                         7     40.000      500.0   25.0 %    75000.0   75.0 %");
  expect_line(text, "  add_bias                       1     16.000      500.0   25.0 %");
  EXPECT_LT(text.find("  matmul "), text.find("  add_bias ")) << "the slowest come first";
  EXPECT_LT(text.find("  add_bias "), text.find("  add "));
  EXPECT_EQ(text.find("embedding"), std::string::npos) << "what was not done is not shown";
}

TEST(BenchReport, JsonHoldsTheSame) {
  const JsonValue json = to_json(example());
  EXPECT_EQ(json.find("compute")->as_string(), "bf16");
  EXPECT_EQ(json.find("step_ms")->as_number(), 50.0);
  const JsonValue& all_reduce = json.find("collectives")->items().at(0).find("rates")->items().at(0);
  EXPECT_EQ(json.find("collectives")->items().at(1).find("skipped")->as_string(), "there is no GPU");
  EXPECT_DOUBLE_EQ(all_reduce.find("bytes_per_s")->as_number(), 5e11);
  EXPECT_DOUBLE_EQ(all_reduce.find("floor_ms")->as_number(), 1.25);
  const auto& kinds = json.find("kinds")->items();
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].find("kind")->as_string(), "products");
  EXPECT_DOUBLE_EQ(kinds[1].find("floor_ms")->as_number(), 6.0);
  const auto& operations = json.find("operations")->items();
  ASSERT_EQ(operations.size(), 3u);
  EXPECT_EQ(operations[2].find("operation")->as_string(), "add");
  EXPECT_EQ(operations[2].find("calls")->as_integer(), 3);
}

}  // namespace
}  // namespace trident
