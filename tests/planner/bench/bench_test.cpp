// What trident bench measures: every product of a step is counted once, whatever its layout was, and measuring changes nothing.
#include "planner/bench/bench.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "model/config/model_stats.h"
#include "model/declare.h"
#include "tests/support/layout_run.h"
#include "tests/support/no_gpus.h"
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

// Of the matrix products: forward, and two backward; the columns that pad the vocabulary are multiplied, too.
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
  // Gate and up, 2 x 96 columns, are read and 96 written for each token and layer; once more in the backward pass.
  EXPECT_DOUBLE_EQ(work.at("swiglu_forward").bytes, 2 * 4.0 * 3 * 96 * tokens * 16);
  EXPECT_EQ(work.at("attention_forward").calls, 16 * 8);
  EXPECT_GT(work.at("adamw").bytes, 7 * 4.0 * static_cast<double>(num_parameters(resolve_model(config))));
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
    EXPECT_EQ(report.floor_seconds(one), std::max(one.flops / report.matmul_flops, one.bytes / report.copy_bytes));
    seconds += one.seconds;
  }
  EXPECT_LE(seconds, report.metered_seconds);
  EXPECT_GT(report.step_seconds, 0);
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

TEST(Bench, AGpuThatIsNotThereIsRefused) {
  NoGpus gpus;
  TrainConfig config = config_of({});
  config.device = AskedDevice::kCuda;
  EXPECT_THROW(run_bench(config, {}, gpus), ConfigError);
}

}  // namespace
}  // namespace trident
