// The communication contract: the bytes of every operation of a training step, counted at the communicators' interface, are exactly
// what the layout calls for, and what the program predicts.
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>

#include "parallel/communicator/communicator.h"
#include "tests/contracts/contract_cases.h"
#include "tests/support/layout_run.h"
#include "train/run/dry_run.h"

namespace trident::contracts {
namespace {

using testing::LayoutRun;
using testing::LayoutRunOptions;

struct Counted {
  Bytes bytes_times_n;  // "tp all_reduce 2": of groups of two ranks
  Bytes bytes() const {
    Bytes sum;
    for (const auto& [key, value] : bytes_times_n) {
      const auto space = key.rfind(' ');
      const std::int64_t n = std::stoll(key.substr(space + 1));
      EXPECT_EQ(value % n, 0) << key;
      sum[key.substr(0, space)] += value / n;
    }
    std::erase_if(sum, [](const auto& entry) { return entry.second == 0; });
    return sum;
  }
};

void count(ParallelContext& context, const std::vector<SubAxis>& partial_axes, Counted& counted) {
  const auto add = [&](Axis axis, const Communicator& communicator) {
    const CommCounters& counters = communicator.counters();
    for (std::size_t i = 0; i < kNumCommOperations; ++i) {
      const auto operation = static_cast<CommOperation>(i);
      if (counters.calls[i] == 0) continue;
      counted.bytes_times_n[fmt::format("{} {} {}", to_string(axis), to_string(operation), counters.group_size)] +=
          counters.bytes_times_n[i];
    }
  };
  add(Axis::kTensor, context.tensor());
  add(Axis::kData, context.data_reduce());
  add(Axis::kData, context.data_gather());
  add(Axis::kPipeline, context.pipeline(Direction::kForward));
  add(Axis::kPipeline, context.pipeline(Direction::kBackward));
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline}) add(axis, context.statistics(axis));
  for (const SubAxis& axis : partial_axes) add(axis.axis, context.partial(axis));
}

std::pair<LayoutRun, Bytes> run_and_count(const ContractCase& c, const std::vector<std::string>& settings = {}) {
  Counted counted;
  std::mutex mutex;
  LayoutRunOptions options;
  options.steps = 2;
  options.after_steps = [&](RankTrainer& trainer) {
    const std::lock_guard lock(mutex);
    count(trainer.context(), trainer.plan().partial_axes, counted);
  };
  LayoutRun run = testing::run_layout(config_of(c), settings, options);
  return {std::move(run), counted.bytes()};
}

class CommunicationContract : public ::testing::TestWithParam<ContractCase> {};

TEST_P(CommunicationContract, CountsAreWhatTheLayoutCallsFor) {
  const ContractCase& c = GetParam();
  const auto [run, counted] = run_and_count(c);
  EXPECT_EQ(counted, expected_bytes(c));

  const std::array<double, kNumAxes> predicted = step_bytes_sent(run.plan);
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    double sum = 0;
    for (const auto& [key, bytes] : counted) {
      if (key.starts_with(to_string(static_cast<Axis>(axis)))) sum += static_cast<double>(bytes);
    }
    EXPECT_EQ(predicted[axis], sum) << "predicted over " << to_string(static_cast<Axis>(axis));
    EXPECT_EQ(run.bytes_sent[axis], sum) << "reported over " << to_string(static_cast<Axis>(axis));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, CommunicationContract, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });

// A word more of every message of statistics, and one message over dp on the last stage.
TEST(CommunicationOfCounts, IsAWordPerMessageAndOneMessageOfTheLastStage) {
  for (const ContractCase& c : contract_cases()) {
    if (c.name != "tp2_sp_pp2_dp2_zero1_bf16") continue;
    Bytes expected = expected_bytes(c);
    expected["tp all_reduce"] += 8 * 8;  // 8 ranks, 2 x (2 - 1) / 2 x 8 bytes of each
    expected["dp all_reduce"] += 8 * 8 + 4 * 8;
    expected["pp all_reduce"] += 8 * 8;
    const auto [run, counted] = run_and_count(c, {"data.eod_mask_loss=true"});
    EXPECT_EQ(counted, expected);
    EXPECT_EQ(step_bytes_sent(run.plan), run.bytes_sent);
    return;
  }
  FAIL() << "the layout is not among the cases";
}

// The numbers of docs/design/communication.md's example.
TEST(CommunicationExample, IsWhatTheDocumentSays) {
  for (const ContractCase& c : contract_cases()) {
    if (c.name != "tp2_sp_pp2_dp2_zero1_bf16") continue;
    EXPECT_EQ(expected_elements(c, 0), 4096);
    EXPECT_EQ(expected_elements(c, 1), 3968);
    EXPECT_EQ(expected_elements(c, c.model.layers + 1), 4224);
    const Bytes expected = {{"tp all_gather", 110592},     {"tp reduce_scatter", 73728}, {"tp all_reduce", 15744},
                            {"dp reduce_scatter", 193536}, {"dp all_gather", 96768},     {"dp all_reduce", 9088},
                            {"pp send", 8192},             {"pp all_reduce", 9088}};
    EXPECT_EQ(run_and_count(c).second, expected);
    return;
  }
  FAIL() << "the example's layout is not among the cases";
}

}  // namespace
}  // namespace trident::contracts
