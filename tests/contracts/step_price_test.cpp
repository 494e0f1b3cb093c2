// The price of a step: every layout's parts add up, the programs run as the simulator of measured steps runs them, and each kind of
// work is in its part.
#include "planner/price/step_price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "pipeline/schedule/step_simulator.h"
#include "planner/predict/forecast.h"
#include "planner/price/cluster.h"
#include "planner/price/gpu_prices.h"
#include "tests/contracts/contract_cases.h"
#include "train/config/train_config.h"

namespace trident::contracts {
namespace {

// Seconds that make parts tell apart: products by FLOPs, everything else by calls.
struct SetPrices final : WorkPrices {
  bool joins = false;
  double flop = 1e-9, operation = 1e-3, tensor = 0, data = 0, message = 0, issue = 0, beside = 1;

  double device_seconds(const RecordedOperation& o) const override { return operation + flop * o.flops; }
  double issue_seconds(const RecordedOperation&) const override { return issue; }
  double seconds(const RecordedCollective& call, const GroupPlace& group) const override {
    EXPECT_EQ(group.size, call.size);
    if (call.operation == CommOperation::kRecv) return 0;
    if (call.operation == CommOperation::kSend) return message;
    return call.axis == Axis::kTensor ? tensor : call.axis == Axis::kData ? data : 0;
  }
  bool joins_groups() const override { return joins; }
  OverlapSlowdown slowdown() const override { return {beside, beside}; }
  double step_seconds() const override { return 0; }
};

RunPlan plan_of(const std::string& text) {
  const TrainConfig config = parse_train_config(text, "a layout", {"run.steps=1", "data.train=none"});
  const MachineFacts machine{.bf16_over_fp32 = 2, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 50}}};
  return make_run_plan(config, resolve_model(config), 0, machine);
}

RunPlan shipped(const std::string& file, const std::vector<std::string>& settings) {
  OptionValues values;
  const TrainConfig config = load_train_config(TRIDENT_SOURCE_DIR "/configs/" + file, settings, values);
  const MachineFacts machine{.bf16_over_fp32 = 2, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 50}}};
  return make_run_plan(config, resolve_model(config), 0, machine);
}

double part(const StepPrice& price, TimePart which) {
  double sum = 0;
  for (const TimeParts& rank : price.ranks) sum += rank[which];
  return sum;
}

class StepPriceOf : public ::testing::TestWithParam<ContractCase> {};

TEST_P(StepPriceOf, PartsAddUpToTheStepOnEveryRank) {
  const RunPlan plan = plan_of(config_of(GetParam()));
  SetPrices prices;
  prices.tensor = 2e-3, prices.data = 5e-3, prices.message = 3e-3, prices.issue = 1.1e-3, prices.beside = 1.25;
  const StepPrice price = forecast_run(plan, prices, nullptr).price;
  for (const TimeParts& rank : price.ranks) {
    EXPECT_NEAR(rank.total(), price.seconds, 1e-9 * price.seconds);
    for (const double seconds : rank.seconds) EXPECT_GE(seconds, -1e-9 * price.seconds);
  }
  ASSERT_LT(price.busiest(), price.ranks.size());
}

// Where streams do not slow each other down, every span is that of the engine that replays measured steps, with gathers and
// reductions that computing hides and with such as it waits for. Messages are shorter than passes: the engine has no queue of them.
TEST_P(StepPriceOf, RunsAsTheStepSimulatorDoes) {
  const RunPlan plan = plan_of(config_of(GetParam()));
  SetPrices prices;
  prices.tensor = 2e-3, prices.message = 3e-3, prices.issue = 1.1e-3;
  for (const double data : {5e-3, 0.7}) {
    prices.data = data;
    const Forecast forecast = forecast_run(plan, prices, nullptr);
    const auto seconds = [&](std::size_t rank, std::size_t at) {
      const StepRecord& record = forecast.step.records[rank];
      return price_pass(record.passes[static_cast<std::size_t>(record.pass_of[at])], plan.grid, prices).total();
    };
    const StepCosts costs{[&](int rank, std::size_t at, const Instruction& i) {
                            return i.is_send() || i.is_receive() ? 0.0 : seconds(static_cast<std::size_t>(rank), at);
                          },
                          [&](int src, int dst) {
                            const auto& sender = plan.step_programs[static_cast<std::size_t>(src)].instructions;
                            const auto sends = [dst](const Instruction& i) { return i.is_send() && i.peer == dst; };
                            const auto at = std::find_if(sender.begin(), sender.end(), sends) - sender.begin();
                            return seconds(static_cast<std::size_t>(src), static_cast<std::size_t>(at));
                          }};
    const StepTimeline timeline = simulate(plan.step_programs, costs, plan.step_spec.overlap);
    const double near = 1e-11 * timeline.makespan;
    double outside = 0;
    for (std::size_t rank = 0; rank < plan.step_programs.size(); ++rank) {
      outside = std::max(outside, price_pass(forecast.step.records[rank].passes.front(), plan.grid, prices).total());
      const auto& instructions = plan.step_programs[rank].instructions;
      for (std::size_t at = 0; at < instructions.size(); ++at) {
        if (instructions[at].is_receive()) continue;
        EXPECT_NEAR(forecast.price.spans[rank][at].start, timeline.ranks[rank][at].start, near) << rank << ", " << at;
        if (instructions[at].is_send()) continue;
        EXPECT_NEAR(forecast.price.spans[rank][at].end, timeline.ranks[rank][at].end, near) << rank << ", " << at;
      }
    }
    EXPECT_NEAR(forecast.price.seconds - outside, timeline.makespan, near);
    EXPECT_NEAR(forecast.price.bubble_over_ideal, timeline.bubble_over_ideal(), 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StepPriceOf, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Tuned, StepPriceOf, ::testing::ValuesIn(tuned_contract_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(StepPrice, RecomputationIsTheForwardOfTheBlocksAgain) {
  const auto forecast = [](const std::string& recompute) {
    const std::vector<std::string> settings = {"recompute.policy=" + recompute, "parallel.pipeline=1", "parallel.data=1"};
    return forecast_run(shipped("demo_2dp_4pp_4tp.json", settings), SetPrices(), nullptr).price;
  };
  const StepPrice none = forecast("none"), selective = forecast("selective"), full = forecast("full");
  EXPECT_EQ(part(none, TimePart::kRecompute), 0);
  EXPECT_GT(part(selective, TimePart::kRecompute), 0);
  EXPECT_GT(part(full, TimePart::kRecompute), 2 * part(selective, TimePart::kRecompute));
  EXPECT_NEAR(part(full, TimePart::kCompute), part(none, TimePart::kCompute), 1e-9);
  EXPECT_NEAR(full.seconds - none.seconds, part(full, TimePart::kRecompute), 1e-9 * full.seconds);
}

// 12 ranks in pipelines of 3: messages, gathers and the host's issuing have parts of their own.
TEST(StepPrice, EachCauseHasItsPart) {
  const std::vector<std::string> layout = {"parallel.tensor=2", "parallel.pipeline=3", "parallel.data=2", "parallel.zero=zero3",
                                           "batch.global=20",     "batch.micro=2"};
  const RunPlan plan = shipped("demo_2dp_4pp_4tp.json", layout);
  SetPrices free;
  const StepPrice base = forecast_run(plan, free, nullptr).price;
  EXPECT_EQ(part(base, TimePart::kTensor), 0);
  EXPECT_EQ(part(base, TimePart::kLaunch), 0);
  EXPECT_LT(part(base, TimePart::kPipeline), 0.01 * base.seconds);  // copies beside messages
  const auto grows = [&](TimePart which, auto change) {
    SetPrices prices;
    change(prices);
    const StepPrice price = forecast_run(plan, prices, nullptr).price;
    EXPECT_GT(part(price, which), part(base, which) + 0.01 * base.seconds) << to_string(which);
    EXPECT_GT(price.seconds, base.seconds) << to_string(which);
  };
  grows(TimePart::kTensor, [](SetPrices& p) { p.tensor = 0.01; });
  grows(TimePart::kPipeline, [](SetPrices& p) { p.message = 0.2; });
  grows(TimePart::kData, [](SetPrices& p) { p.data = 0.5; });
  grows(TimePart::kLaunch, [](SetPrices& p) { p.issue = 0.1; });
}

// Buckets of a unit start once where prices say so; a bucket for each tensor then costs what one bucket does.
TEST(StepPrice, BucketsOfAGroupStartOnce) {
  const auto data = [](bool joins, const std::string& bucket) {
    SetPrices prices;
    prices.data = 0.1;  // a call, whatever its bytes
    prices.joins = joins;
    const std::vector<std::string> settings = {"parallel.pipeline=1", "parallel.tensor=1", "parallel.sequence_parallel=false",
                                               "parallel.zero=zero3", "parallel.bucket_mb=" + bucket};
    return part(forecast_run(shipped("demo_2dp_4pp_4tp.json", settings), prices, nullptr).price, TimePart::kData);
  };
  EXPECT_GT(data(false, "1"), 1.5 * data(false, "1000"));
  EXPECT_NEAR(data(true, "1"), data(true, "1000"), 0.01 * data(true, "1000"));  // updates are by bucket
}

TEST(StepPrice, GroupsLieWhereTheGridPutsThem) {
  const ProcessGrid grid({.tensor = 4, .data = 3, .pipeline = 5});
  const auto place = [&](Axis axis, const char* group, int size) {
    RecordedCollective call;
    call.axis = axis, call.group = group, call.size = size;
    return place_of(call, grid);
  };
  EXPECT_EQ(place(Axis::kTensor, "tp", 4).stride, 1);
  EXPECT_EQ(place(Axis::kTensor, "tp[2:2]", 2).stride, 2);
  EXPECT_EQ(place(Axis::kData, "dp (gather)", 3).stride, 4);
  EXPECT_EQ(place(Axis::kPipeline, "pp (forward)", 5).stride, 12);
}

// A GPU's prices: Llama-3 70B's step on 80 GB GPUs is priced within what such GPUs can do.
TEST(StepPrice, GpusAreNoFasterThanTheirPeak) {
  const PriceBook book = shipped_price_book();
  const GpuRates* const h100 = find_profile(book.hardware, "H100-SXM5-80GB");
  ASSERT_NE(h100, nullptr);
  const RunPlan plan = shipped("gpt3_175b_tp8_pp8.json", {"batch.global=512"});
  const GpuPrices prices(*h100, {8, h100->nvlink, h100->network});
  const Forecast forecast = forecast_run(plan, prices, nullptr);
  double flops = 0;
  for (const StepRecord& record : forecast.step.records)
    for (const OperationTotal& o : record.operations()) flops += o.flops;
  const double of_peak = flops / static_cast<double>(plan.grid.degrees().pipeline) / forecast.price.seconds / h100->peak_16bit;
  EXPECT_LT(of_peak, 0.85);
  EXPECT_GT(of_peak, 0.25);
}

}  // namespace
}  // namespace trident::contracts
