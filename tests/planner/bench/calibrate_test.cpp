// Tests what calibration writes: every table that small models need, from calls that were measured, in a form that is read back.
#include "planner/bench/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "device/cpu/multiply_rates.h"
#include "planner/predict/forecast.h"
#include "planner/price/cpu_prices.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"
#include "train/plan/core_share.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

// As short as it can be: the numbers are rough, the tables are all there.
CpuRates quick() {
  CalibrateOptions options;
  options.seconds = 0, options.steps = 1, options.largest = 64, options.every = 2, options.program = TRIDENT_BINARY;
  return calibrate_cpu(options, [](const std::string&) {});
}

RunPlan plan_of(const std::string& text, const std::vector<std::string>& settings) {
  const TrainConfig config = parse_train_config(text, "test", plus({"run.dir=unused", "run.steps=1", "data.train=unused",
                                                                    "device=cpu", "run.threads_per_rank=1"}, settings));
  return make_run_plan(config, resolve_model(config), 0, kAnyMachine);
}

void expect_every_table(const CpuRates& rates) {
  const int cores = share_cores(std::array{usable_cores_of_this_process()}, 1).at_once();
  EXPECT_EQ(rates.cores, cores);
  EXPECT_EQ(rates.processor, processor_name());
  if (rates.has_peaks()) {
    const std::vector<MultiplyRate> core = measure_multiply_rates(0.05);  // this thread's, which may share a core at other times
    const auto expect_share = [](double share) { EXPECT_TRUE(share > 0.3 && share < 1.4) << share; };
    expect_share(rates.fp32_peak / core[0].flops);
    if (rates.bf16_peak > 0) expect_share(rates.bf16_peak / std::max(core[1].flops, core[2].flops));
  } else {
    EXPECT_NE(rates.disturbance, "");
  }
  const std::size_t ways = cores > 1 ? 2 : 1;
  EXPECT_EQ(rates.products.size(), ways * 2 * 4);
  EXPECT_EQ(rates.attention.size(), ways * 2 * 2);
  EXPECT_EQ(rates.memory.size(), 2U);
  for (const ProductTimes& t : rates.products) {
    expect_parts(t.source, {"measured by trident bench --calibrate, " + rates.processor});
    EXPECT_GT(t.seconds.values().back(), 2.0 * 64 * 64 * 64 / 1e13) << "faster than any core";
    EXPECT_LT(t.seconds.values().front(), 1e-3) << "a product of side 8";
  }
  EXPECT_GT(rates.memory.front().process_bytes, 5e6);
  EXPECT_LT(rates.memory.front().process_bytes, 1e9);
}

void expect_the_same_read_back(const CpuRates& rates) {
  const std::string text = to_json_text(to_json(rates));
  EXPECT_EQ(to_json_text(to_json(cpu_rates_from_json(parse_json(text, "written"), "written"))), text);
}

void expect_prices_of_other_models(const CpuRates& rates) {
  const std::string llama = testing::tiny_llama_config(), qwen3 = std::string(llama).replace(llama.find("llama"), 5, "qwen3");
  for (const std::string& text : {llama, testing::tiny_gpt2_config(), qwen3})
    for (const char* precision : {"fp32", "bf16"})
      for (const std::vector<std::string>& layout :
           {std::vector<std::string>{},
            {"parallel.tensor=2", "parallel.sequence_parallel=true", "recompute.policy=\"full\""},
            {"parallel.tensor=2", "recompute.head_chunk=8"},
            {"parallel.pipeline=2", "parallel.data=2", "parallel.zero=\"zero2\""},
            {"parallel.data=4", "parallel.zero=\"zero3\""}}) {
        std::vector<std::string> settings = layout;
        settings.push_back(std::string("precision.compute=") + '"' + precision + '"');
        const RunPlan plan = plan_of(text, settings);
        Forecast ranks;
        const ProcessPlan forecast = forecast_on_processors_here(plan, rates, ranks);
        EXPECT_GT(forecast.step_seconds, 1e-5);
        EXPECT_LT(forecast.step_seconds, 10);
        EXPECT_EQ(forecast.shares_cores, plan.world_size() > rates.cores);
        if (forecast.shares_cores)
          EXPECT_GE(forecast.step_seconds, forecast.cpu_seconds / rates.cores);
        else
          EXPECT_DOUBLE_EQ(forecast.step_seconds, ranks.price.seconds);
        EXPECT_GT(forecast.resident_bytes, forecast.arena_bytes);
      }
}

void expect_nothing_hidden_on_one_rank(const CpuRates& rates) {
  Forecast ranks;
  const ProcessPlan one = forecast_on_processors_here(plan_of(testing::tiny_llama_config(), {}), rates, ranks);
  EXPECT_NEAR(ranks.price.seconds / one.cpu_seconds, 1, 0.02);
}

TEST(Calibrate, MeasuresWhatModelsNeedThatItDidNotTrain) {
  const CpuRates rates = quick();
  expect_every_table(rates);
  expect_the_same_read_back(rates);
  expect_prices_of_other_models(rates);
  expect_nothing_hidden_on_one_rank(rates);
}

}  // namespace
}  // namespace trident
