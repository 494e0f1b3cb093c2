// The price of a step: every layout's parts add up, the programs run as the simulator of measured steps runs them, and each kind of
// work is in its part.
#include "planner/price/step_price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "device/dry/dry_device.h"
#include "parallel/communicator/dry_communicator.h"
#include "pipeline/schedule/step_simulator.h"
#include "planner/bench/metered_device.h"
#include "planner/predict/forecast.h"
#include "planner/price/cluster.h"
#include "planner/price/gpu_prices.h"
#include "tests/contracts/contract_cases.h"
#include "tests/support/layout_run.h"
#include "tests/train/large_machine.h"
#include "train/config/train_config.h"
#include "train/plan/step_record.h"
#include "train/run/dry_run.h"
#include "train/run/rank_trainer.h"

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
  return make_run_plan(config, resolve_model(config), 0, kLargeMachine);
}

RunPlan shipped(const std::string& file, const std::vector<std::string>& settings) {
  OptionValues values;
  const TrainConfig config = load_train_config(TRIDENT_SOURCE_DIR "/configs/" + file, settings, values);
  return make_run_plan(config, resolve_model(config), 0, kLargeMachine);
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
                          },
                          plan.step_spec.overlap};
    const StepTimeline timeline = simulate(plan.step_programs, costs);
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

// The record of a step, which holds equal passes once, is the step: instruction by instruction and in its sums.

// Every call of a step, metered one by one: nothing is kept by instruction.
std::vector<OperationTotal> metered(const RunPlan& plan, int rank) {
  DryDevice device(nullptr);
  WorkMeter meter;
  const auto measured = make_metered_device(device, meter);
  RankTrainer trainer(plan, *measured, make_dry_world(rank, plan.world_size()));
  meter.start();
  trainer.step([](std::int64_t, std::int64_t, const SampleSpans&) {});
  std::map<std::string_view, OperationTotal> totals;
  for (const Work& work : meter.work()) totals[work.operation] = {work.operation, work.kind, work.calls, work.flops, work.bytes};
  std::vector<OperationTotal> list;
  for (const auto& [name, total] : totals) list.push_back(total);
  return list;
}

void expect_totals(const std::vector<OperationTotal>& sums, const std::vector<OperationTotal>& all) {
  ASSERT_EQ(sums.size(), all.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i].name, all[i].name);
    EXPECT_EQ(sums[i].calls, all[i].calls) << sums[i].name;
    EXPECT_NEAR(sums[i].flops, all[i].flops, 1e-12 * all[i].flops) << sums[i].name;  // sums beyond 2^53
    EXPECT_NEAR(sums[i].bytes, all[i].bytes, 1e-12 * all[i].bytes) << sums[i].name;
  }
}

void expect_same(const RunPlan& plan, int rank, DryWork work) {
  SCOPED_TRACE(::testing::Message() << "rank " << rank << (work == DryWork::kStep ? ", step" : ", evaluation"));
  const StepRecord record = record_step(plan, rank, nullptr, work);
  const StepRecord whole = record_step(plan, rank, nullptr, work, Interning::kOff);
  ASSERT_EQ(record.pass_of.size(), whole.pass_of.size());
  ASSERT_EQ(whole.passes.size(), whole.pass_of.size() + 1);
  EXPECT_EQ(record.passes.front(), whole.passes.front());
  for (std::size_t i = 0; i < record.pass_of.size(); ++i) ASSERT_EQ(record.pass(i), whole.pass(i)) << "instruction " << i;
  expect_totals(record.operations(), whole.operations());
  if (work == DryWork::kStep) expect_totals(record.operations(), metered(plan, rank));
  const std::array<double, kNumAxes> counted = dry_run(plan, rank, nullptr, work).bytes_sent;
  for (std::size_t axis = 0; axis < counted.size(); ++axis)
    EXPECT_DOUBLE_EQ(record.bytes_sent()[axis], counted[axis]) << to_string(static_cast<Axis>(axis));
}

TEST(StepRecord, IsTheWholeStepOfTheDemo) {
  const RunPlan plan = shipped("demo_2dp_4pp_4tp.json", {});
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage) {
    expect_same(plan, plan.grid.rank({.pipeline = stage}), DryWork::kStep);
    expect_same(plan, plan.grid.rank({.pipeline = stage}), DryWork::kEvaluation);
  }
}

TEST(StepRecord, IsTheWholeStepOf175BWithEightMicroBatches) {
  const RunPlan one = shipped("gpt3_175b_tp8_pp8.json", {});
  const RunPlan plan =
      shipped("gpt3_175b_tp8_pp8.json", {fmt::format("batch.global={}", 8 * one.config.batch.micro * one.grid.degrees().data)});
  ASSERT_EQ(plan.num_micro_batches, 8);
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage)
    expect_same(plan, plan.grid.rank({.pipeline = stage}), DryWork::kStep);
}

// A dry step counts every target, on stages without a loss too, and so has its optimizer.
TEST(StepRecord, CountedTargetsLeaveEveryStageItsOperations) {
  const RunPlan plain = shipped("demo_2dp_4pp_4tp.json", {});
  RunPlan counts = shipped("demo_2dp_4pp_4tp.json", {"data.eod_mask_loss=true"});
  expect_same(counts, counts.grid.rank({.pipeline = counts.grid.degrees().pipeline - 1}), DryWork::kStep);
  counts.leaves_rows_out = false;
  for (int stage = 0; stage < plain.grid.degrees().pipeline; ++stage) {
    const int rank = plain.grid.rank({.pipeline = stage});
    expect_totals(record_step(counts, rank, nullptr, DryWork::kStep).operations(),
                  record_step(plain, rank, nullptr, DryWork::kStep).operations());
  }
}

// The operand of a collective is the whole one, whichever side of the call has it: what a rank of n sends follows from it.
TEST(StepRecord, CollectivesSayTheirWholeOperand) {
  const RunPlan plan = shipped("demo_2dp_4pp_4tp.json", {"parallel.zero=zero3"});
  std::set<CommOperation> seen;
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage) {
    const StepRecord record = record_step(plan, plan.grid.rank({.pipeline = stage}), nullptr, DryWork::kStep);
    for (const PassRecord& pass : record.passes)
      for (const auto& call : pass.calls) {
        const auto* const c = std::get_if<RecordedCollective>(&call);
        if (c == nullptr || c->operation == CommOperation::kRecv || c->operation == CommOperation::kBarrier) continue;
        seen.insert(c->operation);
        const std::int64_t times = c->operation == CommOperation::kSend        ? c->size
                                   : c->operation == CommOperation::kAllReduce ? 2 * (c->size - 1)
                                                                               : c->size - 1;
        EXPECT_EQ(c->sent_bytes_times_n, times * c->operand_bytes) << to_string(c->operation) << " over " << c->group;
      }
  }
  for (const CommOperation operation :
       {CommOperation::kAllGather, CommOperation::kReduceScatter, CommOperation::kAllReduce, CommOperation::kSend})
    EXPECT_TRUE(seen.contains(operation)) << to_string(operation);
}

// The record is small because twice the micro-batches run the same passes.
TEST(StepRecord, MoreMicroBatchesBringNoNewPasses) {
  const RunPlan plan = shipped("demo_2dp_4pp_4tp.json", {}),
                twice = shipped("demo_2dp_4pp_4tp.json", {fmt::format("batch.global={}", 2 * plan.config.batch.global)});
  const StepRecord record = record_step(plan, 0, nullptr, DryWork::kStep), more = record_step(twice, 0, nullptr, DryWork::kStep);
  EXPECT_EQ(more.passes.size(), record.passes.size());
  EXPECT_GT(more.pass_of.size(), record.pass_of.size());
  EXPECT_LT(record.passes.size(), record.pass_of.size());
}

// These decide all of a pass: its kind; what kind of layer its unit is, and whether the first or the last of its virtual stage,
// which take what was received; whether gradients are overwritten; which reduction is the last.
using PassKey = std::tuple<InstructionKind, int, bool, bool, bool, bool>;
PassKey key_of(const StepProgram& program, const Instruction& it, int last_unit) {
  if (it.unit == Instruction::kNone) return {it.kind, -1, false, false, false, false};
  bool first = true, last = true;
  for (const Instruction& other : program.instructions) {
    if (!other.is_compute() || other.virtual_stage != it.virtual_stage) continue;
    first = first && other.unit >= it.unit;
    last = last && other.unit <= it.unit;
  }
  const int layer = it.unit == 0 ? 0 : it.unit == last_unit ? 2 : 1;
  const bool reduces = it.kind == InstructionKind::kReduceGradients;
  return {
      it.kind, layer, it.is_compute() && first, it.is_compute() && last, it.is_compute() && it.overwrites(), reduces && it.last()};
}

class StepRecordOf : public ::testing::TestWithParam<ContractCase> {};

TEST_P(StepRecordOf, EveryRankIsItsStep) {
  testing::LayoutRunOptions options;
  options.steps = 0;
  const RunPlan plan = testing::run_layout(config_of(GetParam()), {}, options).plan;
  const int last_unit = plan.step_programs.back().units.back();
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    expect_same(plan, rank, DryWork::kStep);
    if (!GetParam().tuning.empty()) continue;  // not all blocks have adapters
    const StepRecord record = record_step(plan, rank, nullptr, DryWork::kStep);
    const StepProgram& program = plan.step_programs[static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline)];
    std::map<PassKey, std::int32_t> pass_of_key;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& it = program.instructions[i];
      // Where micro-batches are reduced one by one, a backward also adds what was reduced before, of whichever unit lay in its
      // place.
      if (plan.zero.grad_sync_every > 0 && it.is_compute() && !it.is_forward()) continue;
      const auto [known, is_new] = pass_of_key.emplace(key_of(program, it, last_unit), record.pass_of[i]);
      EXPECT_EQ(known->second, record.pass_of[i]) << to_string(it) << " is not the pass of its kind";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StepRecordOf, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Tuned, StepRecordOf, ::testing::ValuesIn(tuned_contract_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trident::contracts
