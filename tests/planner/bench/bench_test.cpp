// Tests what trident bench measures: every product of a step is counted once, whatever its layout was, and measuring changes
// nothing.
#include "planner/bench/bench.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "model/config/model_stats.h"
#include "model/declare.h"
#include "planner/bench/bench_report.h"
#include "planner/bench/calibrate_training.h"
#include "planner/bench/calls_in_training.h"
#include "planner/bench/step_overheads.h"
#include "planner/predict/forecast.h"
#include "planner/price/cpu_prices.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"
#include "tests/support/no_gpus.h"
#include "tests/train/large_machine.h"
#include "train/config/resolve_tuning.h"
#include "train/plan/machine.h"
#include "train/plan/run_plan.h"

namespace trident {
namespace {

using testing::NoGpus;

TrainConfig config_of(const std::vector<std::string>& settings, const std::string& text = testing::tiny_llama_config()) {
  return parse_train_config(text, "test", plus({"run.dir=unused", "run.steps=1", "data.train=unused", "device=cpu"}, settings));
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

// The floor is that of the work that is done: logits in chunks are made once, too.
TEST(Bench, CountsLogitsInChunks) {
  const ModelConfig model = resolve_model(config_of({}));
  for (const char* chunk : {"recompute.head_chunk=5", "recompute.head_chunk=1000"}) {
    const BenchReport report = bench(config_of({chunk}));
    EXPECT_DOUBLE_EQ(by_operation(report).at("matmul").flops, 8 * 16 * product_flops_per_token(model)) << chunk;
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
  EXPECT_GE(report.peak_flops, report.instructions[0].flops) << "this model is fp32";
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
    const std::string text = R"({"batch": {"global": 1, "micro": 1, "sequence": 1024}, "precision": {"compute": "fp32"}})";
    return row_units_per_block(config_of({fmt::format("model.preset={}", preset)}, text), kLargeMachine);
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
  report.collectives = {{"threads on their devices", 2, "", "copies at once", 4e12, {{"all_reduce", 1e9, 0.002, 5e9}}},
                        {"processes", 4, "", "messages at once", 1e9, {{"all_gather", 1e9, 1.5, 0.75e9}}}, nccl};
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

TEST(BenchReport, AProductThatIsFasterRaisesThePeak) {
  BenchReport report = example();
  const std::string before = to_json_text(to_json(report)) + to_text(report);
  report.raise_peak();
  EXPECT_EQ(to_json_text(to_json(report)) + to_text(report), before);
  report.products[0].flops = 1.22e12;  // in 10 ms
  report.raise_peak();
  EXPECT_DOUBLE_EQ(report.peak_flops, 122e12);
  EXPECT_FALSE(to_json(report).find("disturbed")->as_bool()) << "two measurements may differ by so much";
  report.peak_flops = 120e12;
  report.products[0].flops = 1.5e12;
  report.raise_peak();
  EXPECT_DOUBLE_EQ(report.peak_flops, 150e12);
  EXPECT_TRUE(to_json(report).find("disturbed")->as_bool());
  EXPECT_NE(to_text(report).find("\ndisturbed: a product reached 150.000 TFLOP/s, which counts as the peak in place of 120.000: "),
            std::string::npos);
}

TEST(BenchReport, TheTableShowsSharesAndFloors) {
  const std::string text = to_text(example());
  expect_line(text, "GPU 0 (device = auto: 1 GPU)");
  expect_line(text, "vdpbf16ps on registers reaches 120.000 TFLOP/s");
  expect_line(text, "tdpbf16ps (AMX): left out: this processor does not have it");
  expect_line(text, "a large product in bf16 reaches 90.00 TFLOP/s, 75.0 % of the peak, a copy 2000.0 GB/s (read and written)");
  expect_line(text, "collectives of 2 threads on their devices; copies at once reach 4000.0 GB/s");
  expect_line(text, "collectives of threads by NCCL: SKIPPED: there is no GPU");
  expect_line(text, "  collective      MB     ms  GB/s of the operand  floor ms");
  expect_line(text, "  all_reduce  1000.0  2.000               500.00     1.250");
  expect_line(text, "  all_gather  1000.0  1500.000                 0.67   750.000");
  expect_line(text,
              "one step of 1000 tokens on one rank: 50.0 ms, 20000 tokens/s; 68.0 ms with every operation waited for, 64.0 ms of "
              "them in operations");
  expect_line(text,
              "its floor is 27.0 ms, 3000.0 GFLOP at the peak and the optimizer's 4.00 GB at the copy's rate: 1.85 x the floor");
  expect_line(text, "by kind of work; floors count the bytes that its operations move:");
  expect_line(text, "  work          ms   share  floor ms  over floor");
  expect_line(text, "  products   40.00  62.5 %     30.00      1.33 x");
  expect_line(text, "  rows       20.00  31.2 %      6.00      3.33 x");
  expect_line(text, "  matmul         7  40.000   500.0   25.0 %  90000.0   75.0 %");
  expect_line(text, "  bf16 to f32, added  4096  1024  512          a      3  10.000  60000.0   50.0 %");
  expect_line(text, "  rows and heads of a block move 91.0 times H elements per token");
  expect_line(text, "  add_bias       1  16.000   500.0   25.0 %");
  EXPECT_LT(text.find("  matmul "), text.find("  add_bias ")) << "the slowest come first";
  EXPECT_LT(text.find("  add_bias "), text.find("  add "));
  EXPECT_EQ(text.find("embedding"), std::string::npos) << "what was not done is not shown";
  EXPECT_EQ(text.find("others"), std::string::npos) << "all of it takes a fiftieth of the step and more";
  BenchReport of_flops = example();
  of_flops.work[1].seconds = 0.020;
  EXPECT_EQ(to_text(of_flops).find("faster than its floor"), std::string::npos) << "no caches make products faster";
  BenchReport in_caches = example();
  in_caches.work.push_back({WorkKind::kCopies, "fill_zero", 2, 0.001, 0, 4e9});  // 2 ms by the copy's rate
  in_caches.work.push_back({WorkKind::kCopies, "copy", 2, 0.0005, 0, 4e8});
  in_caches.products.push_back({WorkKind::kMatmuls, "matmul", 3, 0.0002, 0.6e9, 0, in_caches.products[0].shape});
  const std::string short_text = to_text(in_caches);
  expect_line(short_text, "  2 others: 1.500 ms; --json has each");
  expect_line(short_text, "  1 other: 0.200 ms; --json has each");
  expect_line(short_text, "  work faster than its floor (copies) had its operands in caches; those of the copy were not");
}

TEST(BenchReport, JsonHoldsTheSame) {
  const JsonValue json = to_json(example());
  EXPECT_EQ(json.find("compute")->as_string(), "bf16");
  EXPECT_EQ(json.find("step_ms")->as_number(), 50.0);
  const JsonValue& all_reduce = json.find("collectives")->items().at(0).find("rates")->items().at(0);
  EXPECT_EQ(json.find("collectives")->items().at(2).find("skipped")->as_string(), "there is no GPU");
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

// Tests that the time of steps beside their operations is found again in steps that were made of known constants.

StepSum step(double calls, double collectives, double roots, double beside) {
  StepSum sum;
  sum.priced = 0.01, sum.measured = 0.01 + beside;
  sum.calls = calls, sum.collectives = collectives, sum.roots = roots;
  return sum;
}

TEST(StepOverheads, OneColumnIsFoundAgain) {
  std::vector<StepSum> sums;
  for (const double calls : {10.0, 70.0, 300.0}) sums.push_back(step(0, calls, 0, 12e-6 * calls));
  EXPECT_NEAR(seconds_of_each(sums, &StepSum::collectives), 12e-6, 1e-15);
  sums[1].measured *= 1.01;  // what disturbs one of them moves the others little
  EXPECT_NEAR(seconds_of_each(sums, &StepSum::collectives), 12e-6, 1e-6);
}

TEST(StepOverheads, AreNeverBelowZeroAndNoneWithoutSteps) {
  const std::vector<StepSum> faster{step(0, 10, 0, -1e-4), step(0, 40, 0, -3e-4)}, without{step(0, 0, 0, 1e-3)};
  EXPECT_EQ(seconds_of_each(faster, &StepSum::collectives), 0);
  EXPECT_EQ(seconds_of_each(without, &StepSum::collectives), 0);
  EXPECT_EQ(seconds_of_each({}, &StepSum::collectives), 0);
  EXPECT_EQ(seconds_of_each({}, &StepSum::collectives, &StepSum::roots), std::pair(0.0, 0.0));
}

TEST(StepOverheads, TwoColumnsAreToldApart) {
  std::vector<StepSum> sums;
  for (const double calls : {10.0, 70.0, 300.0})
    for (const double roots : {0.1, 2.0}) sums.push_back(step(0, calls, roots, 5e-6 * calls + 3e-4 * roots));
  const auto [of_call, of_root] = seconds_of_each(sums, &StepSum::collectives, &StepSum::roots);
  EXPECT_NEAR(of_call, 5e-6, 1e-14);
  EXPECT_NEAR(of_root, 3e-4, 1e-12);
}

TEST(StepOverheads, WhereOneWouldBeBelowZeroTheOtherIsFittedAlone) {
  std::vector<StepSum> sums;
  for (const double calls : {10.0, 70.0, 300.0})
    for (const double roots : {0.1, 2.0}) sums.push_back(step(0, calls, roots, 5e-6 * calls - 1e-5 * roots));
  const double alone = seconds_of_each(sums, &StepSum::collectives);
  EXPECT_GT(alone, 4e-6);
  EXPECT_EQ(seconds_of_each(sums, &StepSum::collectives, &StepSum::roots), std::pair(alone, 0.0));
  EXPECT_EQ(seconds_of_each(sums, &StepSum::roots, &StepSum::collectives), std::pair(0.0, alone));
}

TEST(StepOverheads, MediansTakeNoNoticeOfOneThatWasDisturbed) {
  std::vector<StepSum> sums;
  for (const double roots : {0.01, 0.02, 0.3, 0.7}) sums.push_back(step(0, 0, roots, 3e-4 * roots));
  EXPECT_NEAR(median_of_each(sums, &StepSum::roots), 3e-4, 1e-12);
  sums[1].measured *= 40;
  EXPECT_NEAR(median_of_each(sums, &StepSum::roots), 3e-4, 1e-12);
  sums.push_back(step(0, 0, 0, 1));  // has none
  EXPECT_NEAR(median_of_each(sums, &StepSum::roots), 3e-4, 1e-12);
  EXPECT_EQ(median_of_each({}, &StepSum::roots), 0);
  EXPECT_EQ(median_of_each(std::vector{step(0, 0, 1, -1e-3)}, &StepSum::roots), 0);
}

// This case answered 0 once, whatever was measured.
TEST(StepOverheads, ColumnsInProportionAreRefused) {
  const std::vector<StepSum> sums{step(0, 10, 20, 1e-4), step(0, 30, 60, 3e-4)};
  EXPECT_THROW(seconds_of_each(sums, &StepSum::collectives, &StepSum::collectives), InternalError);
  EXPECT_THROW(seconds_of_each(sums, &StepSum::collectives, &StepSum::roots), InternalError);
}

RunPlan plan_of(const std::vector<std::string>& settings) {
  const TrainConfig config = config_of(plus({"run.threads_per_rank=1"}, settings));
  return make_run_plan(config, resolve_model(config), 0, kAnyMachine);
}

// As calibration measures them, on a machine whose constants are those of `rates`.
TrainedSteps steps_by(const CpuRates& rates, const std::vector<std::string>& settings) {
  TrainedSteps steps{plan_of(settings)};
  Forecast ranks_alone;
  const double cpu = forecast_on_processors_here(steps.plan, rates, ranks_alone).cpu_seconds;
  steps.wall = ranks_alone.price.seconds;
  CpuRates bare = rates;
  bare.constants = {};
  for (CollectiveTimes& t : bare.collectives) t.seconds = LogTable({{1}}, {1e-12}, {0});
  const double operations = forecast_on_processors_here(steps.plan, bare, ranks_alone).cpu_seconds;
  const double ranks = steps.plan.world_size();
  steps.cpu = cpu / ranks;
  steps.operations = operations / ranks;
  return steps;
}

TEST(StepOverheads, ConstantsOfAMachineAreFoundAgainInItsSteps) {
  CpuRates rates = shipped_cpu_rates();
  rates.cores = 2;
  rates.constants = {.step_seconds = 90e-6, .call_seconds = 0.7e-6, .skew_root_seconds = 2e-4,
                     .shared_seconds = 17e-6, .shared_root_seconds = 9e-4};
  std::vector<TrainedSteps> steps;
  for (const char* sequence : {"batch.sequence=8", "batch.sequence=32"}) {
    steps.push_back(steps_by(rates, {sequence}));
    steps.push_back(steps_by(rates, {sequence, "batch.micro=4"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=2"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=2", "parallel.sequence_parallel=true", "batch.micro=4"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=4"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.tensor=2", "parallel.pipeline=2"}));
    steps.push_back(steps_by(rates, {sequence, "parallel.data=4", "parallel.zero=\"zero3\""}));
    steps.push_back(steps_by(rates, {sequence, "parallel.pipeline=4"}));
  }
  CpuRates found = rates;
  fit_constants(steps, "made up", found);
  EXPECT_NEAR(found.constants.step_seconds, 90e-6, 1e-9);
  EXPECT_NEAR(found.constants.call_seconds, 0.7e-6, 1e-11);
  EXPECT_NEAR(found.constants.collective_seconds, 0, 1e-8);
  EXPECT_NEAR(found.constants.skew_root_seconds, 2e-4, 1e-6);
  EXPECT_NEAR(found.constants.shared_seconds, 17e-6, 1e-9);
  EXPECT_NEAR(found.constants.shared_root_seconds, 9e-4, 1e-8);
  EXPECT_EQ(found.constants_source, "made up");
}

TEST(Disturbance, IsToldWhereStepsTookLongerThanTheyComputed) {
  std::vector<TrainedSteps> steps{{plan_of({}), 0.010, 0.0104, 0}, {plan_of({}), 0.030, 0.0314, 0}};
  CpuRates rates;
  rates.fp32_peak = 1e11, rates.bf16_over_fp32 = 0;
  EXPECT_EQ(disturbance(steps, rates), "");
  EXPECT_EQ(disturbance({}, rates), "");
  steps.push_back({plan_of({"parallel.tensor=2"}), 0.010, 0.020, 0});
  EXPECT_EQ(disturbance(steps, rates), "") << "ranks that wait for each other are no sign";
  rates.bf16_over_fp32 = 2;
  expect_parts(disturbance(steps, rates), {"whenever the peak was measured, so MFU is not known; calibrate again"});
  steps[1].wall = 0.0396;
  EXPECT_EQ(disturbance(steps, rates),
            "other programs had the cores as well: steps took 25 % longer than they computed, and waits of ranks and what several "
            "threads take are too long by that; calibrate again when nothing else runs");
}

// How tables of calls alone are brought to what the same calls took in training.

LogTable flat(std::size_t axes, double seconds) {
  std::vector<std::vector<double>> sizes(axes, {64, 1024});
  return {sizes, std::vector<double>(std::size_t{1} << axes, seconds), std::vector<double>(axes, 1)};
}

CpuRates rates_of_two() {
  CpuRates rates;
  for (const int threads : {1, 2}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Transpose a : {Transpose::kNo, Transpose::kYes})
        rates.products.push_back({threads, dtype, a, Transpose::kNo, Accumulate::kNo, flat(3, 1e-5), "s"});
      rates.attention.push_back({threads, dtype, "attention_forward", flat(2, 1e-5), "s"});
    }
  }
  return rates;
}

CallTimes product(Transpose a, double bytes, double seconds) {
  return {"matmul", bytes, MatmulShape{128, 128, 128, a, Transpose::kNo, DType::kF32, DType::kF32, Accumulate::kNo},
          std::vector<double>(5, seconds)};
}

CallTimes attention(double seconds) {
  AttentionShape shape;
  shape.batch = 2, shape.query_heads = 4, shape.query_length = shape.key_length = 128, shape.head_dim = 50;
  return {"attention_forward", 1e5, shape, std::vector<double>(5, seconds)};
}

TEST(CallsInTraining, CountOneThatWasDisturbedAsThriceTheMedian) {
  EXPECT_DOUBLE_EQ(typical_seconds({1, 2, 1, 1, 90}, 1), (1 + 2 + 1 + 1 + 3) / 5.0);
  EXPECT_DOUBLE_EQ(typical_seconds({1, 2, 1, 1, 90}, 2), 1);
  EXPECT_DOUBLE_EQ(typical_seconds({4}, 1), 4);
  EXPECT_ANY_THROW(typical_seconds({}, 1));
}

TEST(CallsInTraining, AreKeptByOperationBytesAndShape) {
  CallMeter meter;
  for (const double seconds : {1.0, 2.0}) meter.add(product(Transpose::kNo, 1000, seconds));
  meter.add(product(Transpose::kYes, 1000, 3));
  meter.add(attention(4));
  const std::vector<CallTimes> calls = meter.calls();
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[1].seconds.size(), 10U);
  EXPECT_EQ(calls[2].seconds, std::vector<double>(5, 3.0));
}

TEST(CallsInTraining, PointsNearEachOtherAreOne) {
  const std::vector<std::pair<double, double>> points{{100, 1}, {121, 4}, {200, 9}};
  const auto [sizes, values] = merged(points);
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_NEAR(sizes[0], 110, 1e-9);
  EXPECT_NEAR(values[0], 2, 1e-12);
  EXPECT_NEAR(values[1], 9, 1e-12);
}

TEST(CallsInTraining, ScaleTheTablesOfTheirKindAndNoOther) {
  CpuRates rates = rates_of_two();
  const std::vector<CallTimes> calls{product(Transpose::kNo, 2e5, 2.1e-5), attention(8 * 3e-5 + 1e-6)};
  fit_to_training(calls, 1e-6, 1, DType::kF32, rates);
  const std::array<double, 3> sides{128, 128, 128};
  for (const ProductTimes& t : rates.products) {
    const bool fitted = t.threads == 1 && t.in == DType::kF32 && t.transpose_a == Transpose::kNo;
    EXPECT_NEAR(t.seconds.at(sides), fitted ? 2e-5 : 1e-5, 1e-10) << t.threads << to_string(t.in);
  }
  const std::array<double, 2> sizes{128, 64};
  for (const OperationTimes& t : rates.attention)
    EXPECT_NEAR(t.seconds.at(sizes), t.threads == 1 && t.compute == DType::kF32 ? 3e-5 : 1e-5, 1e-10);
}

// Ranks of several threads take the cores from each other: calls of several took twice as long by the clock.
TEST(CallsInTraining, OfDividedModelsCountWhereNobodyElseHasThem) {
  CallTimes split{"split_loss", 100, {}, {4e-6}}, norm{"norm", 100, {}, {9e-6}};
  const std::vector<CallTimes> alone{{"norm", 200, {}, {2e-6}}}, divided{norm, split};
  EXPECT_EQ(calls_beside(alone, divided, 1).size(), 2U);
  const std::vector<CallTimes> of_two_threads = calls_beside(alone, divided, 2);
  ASSERT_EQ(of_two_threads.size(), 1U);
  EXPECT_EQ(of_two_threads.front().operation, "split_loss");
  EXPECT_EQ(of_two_threads.front().seconds, split.seconds);
}

TEST(CallsInTraining, GradientsThatAreAddedUpAreFittedApart) {
  CpuRates rates = rates_of_two();
  rates.products.push_back({1, DType::kF32, Transpose::kYes, Transpose::kNo, Accumulate::kYes, flat(3, 1e-5), "s"});
  CallTimes first = product(Transpose::kYes, 2e5, 2e-5), later = product(Transpose::kYes, 3e5, 5e-5);
  std::get<MatmulShape>(later.shape).accumulate = Accumulate::kYes;
  fit_to_training(std::vector{first, later}, 0, 1, DType::kF32, rates);
  const std::array<double, 3> sides{128, 128, 128};
  for (const ProductTimes& t : rates.products) {
    if (t.threads != 1 || t.in != DType::kF32 || t.transpose_a == Transpose::kNo) continue;
    EXPECT_NEAR(t.seconds.at(sides), t.accumulate == Accumulate::kYes ? 5e-5 : 2e-5, 1e-10);
  }
}

// Small products have their operands at hand, where calls alone read theirs from afar: each size has its own ratio.
TEST(CallsInTraining, RatiosGoByBytes) {
  CpuRates rates = rates_of_two();
  fit_to_training(std::vector{product(Transpose::kNo, 49152, 0.5e-5), product(Transpose::kNo, 1e7, 1.5e-5)}, 0, 1, DType::kF32,
                  rates);
  const std::array<double, 3> small{64, 64, 64}, large{1024, 1024, 1024};
  EXPECT_NEAR(rates.products.front().seconds.at(small), 0.5e-5, 0.02e-5);
  EXPECT_NEAR(rates.products.front().seconds.at(large), 1.5e-5, 0.02e-5);
}

}  // namespace
}  // namespace trident
