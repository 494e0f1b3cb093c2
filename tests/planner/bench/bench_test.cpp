// Tests what trident bench measures: every product of a step is counted once, whatever its layout was, and measuring changes
// nothing.
#include "planner/bench/bench.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "model/config/model_stats.h"
#include "model/declare.h"
#include "planner/bench/bench_report.h"
#include "planner/bench/row_units.h"
#include "tests/support/layout_run.h"
#include "tests/support/no_gpus.h"
#include "train/config/resolve_tuning.h"
#include "train/plan/run_plan.h"

namespace trident {
namespace {

using testing::NoGpus;

TrainConfig config_of(const std::vector<std::string>& settings, const std::string& text = testing::tiny_llama_config()) {
  std::vector<std::string> all{"run.dir=\"unused\"", "run.steps=1", "data.train=\"unused\"", "device=\"cpu\""};
  all.insert(all.end(), settings.begin(), settings.end());
  return parse_train_config(text, "test", all);
}

BenchReport bench(const TrainConfig& config) {
  NoGpus gpus;
  return run_bench(config, {.seconds = 0, .steps = 1, .collective_ranks = 2}, gpus);
}

// The matrix products are one forward and two backward; the columns that pad the vocabulary are multiplied, too.
double product_flops_per_token(const ModelConfig& model) {
  const std::int64_t padding = padded_vocabulary(model, 1) - model.vocab_size;
  return 6.0 * static_cast<double>(matmul_parameters(model) + padding * model.hidden);
}

std::map<std::string, Work> by_operation(const BenchReport& report) {
  std::map<std::string, Work> work;
  for (const Work& one : report.work) EXPECT_TRUE(work.emplace(one.operation, one).second) << one.operation;
  return work;
}

TEST(Bench, CountsEveryProductOfAStepOnce) {
  const TrainConfig config = config_of({});
  const BenchReport report = bench(config);
  const double tokens = 8 * 16;
  EXPECT_EQ(report.tokens, tokens);
  const auto work = by_operation(report);
  EXPECT_DOUBLE_EQ(work.at("matmul").flops, tokens * product_flops_per_token(resolve_model(config)));
  // 16 layers, 8 samples, 8 heads of width 8; a query sees itself and what lies before it. Two products forward, five backward.
  const double products_of_scores = 2.0 * 16 * 8 * 8 * 8 * (16 * 17 / 2);
  EXPECT_DOUBLE_EQ(work.at("attention_forward").flops, 2 * products_of_scores);
  EXPECT_DOUBLE_EQ(work.at("attention_backward").flops, 5 * products_of_scores);
  // Gate and up, 2 x 96 columns, are read and 96 written for each token and layer; backward reads those and 96 gradients, and
  // writes all three anew.
  EXPECT_DOUBLE_EQ(work.at("swiglu_forward").bytes, 4.0 * 3 * 96 * tokens * 16);
  EXPECT_DOUBLE_EQ(work.at("swiglu_backward").bytes, 2 * 4.0 * 3 * 96 * tokens * 16);
  EXPECT_EQ(work.at("attention_forward").calls, 16 * 8);
  EXPECT_DOUBLE_EQ(report.step_flops,
                   tokens * 6.0 * static_cast<double>(matmul_parameters(resolve_model(config))) + 7 * products_of_scores);
  EXPECT_GE(report.optimizer_bytes(), work.at("adamw").bytes);
  EXPECT_GT(work.at("adamw").bytes, 7 * 4.0 * static_cast<double>(num_parameters(resolve_model(config))));
}

// Frozen matrices are multiplied twice, adapters three times.
TEST(Bench, CountsNoGradientsOfFrozenWeights) {
  const TrainConfig config = config_of({"adapter.type=lora", "adapter.r=4"});
  ModelConfig model = resolve_model(config);
  model.tuning = resolve_tuning(config, model);
  const BenchReport report = bench(config), full = bench(config_of({}));
  const double least = full.step_flops + 8 * 16 * (6.0 * static_cast<double>(adapter_parameters(model)) -
                                                   2.0 * static_cast<double>(matmul_parameters(model)));
  EXPECT_NEAR(report.step_flops, least, 1e-3 * least);
  EXPECT_LT(report.step_flops, 0.8 * full.step_flops);
}

// The floor is that of the work that is done: logits in chunks are made twice.
TEST(Bench, CountsLogitsThatAreMadeAgain) {
  const ModelConfig model = resolve_model(config_of({}));
  const double again = 2.0 * static_cast<double>(padded_vocabulary(model, 1) * model.hidden);
  for (const char* chunk : {"recompute.head_chunk=5", "recompute.head_chunk=1000"}) {
    const BenchReport report = bench(config_of({chunk}));
    EXPECT_DOUBLE_EQ(by_operation(report).at("matmul").flops, 8 * 16 * (product_flops_per_token(model) + again)) << chunk;
  }
}

TEST(Bench, TimesAddUp) {
  const BenchReport report = bench(config_of({}));
  double seconds = 0;
  for (const Work& one : report.work) {
    EXPECT_GT(one.seconds, 0) << one.operation;
    EXPECT_GT(one.bytes, 0) << one.operation;
    EXPECT_EQ(report.floor_seconds(one), std::max(one.flops / report.peak_flops, one.bytes / report.copy_bytes));
    seconds += one.seconds;
  }
  EXPECT_LE(seconds, report.metered_seconds);
  double flops = 0;
  for (const Work& product : report.products) flops += product.flops;
  EXPECT_DOUBLE_EQ(flops, by_operation(report).at("matmul").flops) << "every product has a shape";
  EXPECT_GT(report.step_seconds, 0);
  ASSERT_EQ(report.instructions.size(), 3u) << "those that are not here are named";
  EXPECT_EQ(report.peak_flops, report.instructions[0].flops) << "this model is fp32";
  EXPECT_GT(report.read_bytes, 0);
  EXPECT_GT(report.step_floor_seconds(), 0);
  ASSERT_EQ(report.collectives.size(), 1u) << "of threads";
  const CollectiveRates& threads = report.collectives[0];
  EXPECT_EQ(threads.way, "threads in host memory");
  ASSERT_EQ(threads.rates.size(), 3u);
  EXPECT_GT(threads.floor_rate, 0);
  for (const CollectiveRate& rate : threads.rates) {
    EXPECT_GT(rate.seconds, 0) << rate.operation;
    EXPECT_GE(rate.moved, rate.bytes * 3) << rate.operation << " of two ranks";
  }
}

TEST(Bench, TheLayoutDoesNotCount) {
  const auto one = by_operation(bench(config_of({})));
  const auto layout = by_operation(bench(config_of({"parallel.data=2", "parallel.pipeline=2", "parallel.tensor=2",
                                                    "parallel.sequence_parallel=true", "parallel.layers=[9,7]"})));
  ASSERT_EQ(one.size(), layout.size());
  for (const auto& [name, work] : one) EXPECT_EQ(layout.at(name).flops, work.flops) << name;
}

TEST(Bench, KnowsGpt2) {
  const TrainConfig config = config_of({}, testing::tiny_gpt2_config());
  const auto work = by_operation(bench(config));
  EXPECT_DOUBLE_EQ(work.at("matmul").flops, 8 * 16 * product_flops_per_token(resolve_model(config)));
  for (const char* name : {"layer_norm_forward", "layer_norm_backward", "gelu_forward", "gelu_backward", "add_bias", "sum_rows"})
    EXPECT_EQ(work.count(name), 1u) << name;
}

// Every pass is one that a fused one could save; tables, statistics and positions are less than half a unit.
TEST(Bench, BlocksPassOverTheirRowsNoOftenerThanTheyMust) {
  const auto units = [](const char* preset) {
    const MachineFacts machine{.bf16_over_fp32 = 2, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 50}}};
    const std::string text = R"({"batch": {"global": 1, "micro": 1, "sequence": 1024}, "precision": {"compute": "bf16"}})";
    return row_units_per_block(config_of({fmt::format("model.preset={}", preset)}, text), machine);
  };
  EXPECT_NEAR(units("gpt2-124m"), 60, 0.5);
  EXPECT_NEAR(units("llama3.2-1b"), 48, 0.5);
}

TEST(Bench, AGpuThatIsNotThereIsRefused) {
  NoGpus gpus;
  TrainConfig config = config_of({});
  config.device = AskedDevice::kCuda;
  EXPECT_THROW(run_bench(config, {}, gpus), ConfigError);
}

// The cases below read the text that trident bench prints.

BenchReport example() {
  BenchReport report;
  report.device = "GPU 0";
  report.why = "device = auto: 1 GPU";
  report.compute = DType::kBF16;
  report.instructions = {{"vdpbf16ps", 120e12, ""}, {"tdpbf16ps (AMX)", 0, "this processor does not have it"}};
  report.peak_flops = 120e12;
  report.matmul_flops = 90e12;
  report.step_flops = 3e12;
  report.copy_bytes = 2e12;
  CollectiveRates nccl;
  nccl.way = "threads by NCCL", nccl.skipped = "there is no GPU";
  report.collectives = {{"threads on their devices", 2, "", "copies at once", 4e12, {{"all_reduce", 1e9, 0.002, 5e9}}}, nccl};
  report.tokens = 1000;
  report.row_units = 90.96;
  report.step_seconds = 0.050;
  report.metered_seconds = 0.068;
  report.work = {{WorkKind::kRows, "add", 3, 0.004, 0, 4e9},              // floor: 2 ms of bytes
                 {WorkKind::kMatmuls, "matmul", 7, 0.040, 3.6e12, 20e9},  // 30 ms of products, 10 ms of bytes
                 {WorkKind::kRows, "add_bias", 1, 0.016, 0, 8e9},         // 4 ms
                 {WorkKind::kOptimizer, "adamw", 1, 0.004, 0, 4e9}};      // 2 ms
  const MatmulShape gradient{.m = 4096, .n = 1024, .k = 512, .transpose_a = Transpose::kYes, .in = DType::kBF16,
                             .accumulate = Accumulate::kYes};
  report.products = {{WorkKind::kMatmuls, "matmul", 3, 0.010, 0.6e12, 0, gradient}};
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
  expect_line(text, "vdpbf16ps on registers reaches 120.000 TFLOP/s");
  expect_line(text, "tdpbf16ps (AMX): left out: this processor does not have it");
  expect_line(text, "a large product in bf16 reaches 90.00 TFLOP/s, 75.0 % of the peak, a copy 2000.0 GB/s (read and written)");
  expect_line(text, "collectives of 2 threads on their devices; copies at once reach 4000.0 GB/s");
  expect_line(text, "collectives of threads by NCCL: SKIPPED: there is no GPU");
  expect_line(
      text,
      "  all_reduce           of 1000.0 MB:     2.000 ms, 500.00 GB/s of the operand, floor     1.250 ms,  62.5 % of the time");
  expect_line(text,
              "one step of 1000 tokens on one rank: 50.0 ms, 20000 tokens/s; 68.0 ms with every operation waited for, 64.0 ms of "
              "them in operations");
  expect_line(text,
              "its floor is 27.0 ms, 3000.0 GFLOP at the peak and the optimizer's 4.00 GB at the copy's rate: 1.85 x the floor");
  expect_line(text, "  products                 40.00 ms  62.5 % of the work, floor     30.00 ms,   1.33 x the floor");
  expect_line(text, "  rows                     20.00 ms  31.2 % of the work, floor      6.00 ms,   3.33 x the floor");
  expect_line(text, "  all                      64.00 ms 100.0 % of the work, floor     38.00 ms,   1.68 x the floor");
  expect_line(text, "  matmul                         7     40.000      500.0   25.0 %    90000.0   75.0 %");
  expect_line(text, "  bf16 to f32, added   4096   1024    512         a       3     10.000    60000.0   50.0 %");
  expect_line(text, "  rows and heads of a block move 91.0 times H elements per token");
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
  EXPECT_EQ(json.find("instructions")->items().at(1).find("skipped")->as_string(), "this processor does not have it");
  EXPECT_DOUBLE_EQ(json.find("step_floor_ms")->as_number(), 27.0);
  const auto& kinds = json.find("kinds")->items();
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds[0].find("kind")->as_string(), "products");
  EXPECT_DOUBLE_EQ(kinds[1].find("floor_ms")->as_number(), 6.0);
  const auto& operations = json.find("operations")->items();
  ASSERT_EQ(operations.size(), 4u);
  EXPECT_EQ(operations[2].find("operation")->as_string(), "add");
  EXPECT_EQ(operations[2].find("calls")->as_integer(), 3);
  EXPECT_EQ(json.find("products")->items().at(0).find("k")->as_integer(), 512);
}

}  // namespace
}  // namespace trident
