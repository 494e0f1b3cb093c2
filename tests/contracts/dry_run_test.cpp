// A dry rank is the rank: the same entries in its arena, and it sends the same bytes, call by call.
#include "train/run/dry_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/dry/dry_ops.h"
#include "parallel/communicator/communicator.h"
#include "tests/contracts/contract_cases.h"
#include "tests/support/layout_run.h"
#include "tests/train/large_machine.h"
#include "train/config/option_table.h"
#include "train/plan/run_plan.h"
#include "train/run/run_report.h"

namespace trident::contracts {
namespace {

using testing::LayoutRun;
using testing::LayoutRunOptions;

std::vector<std::string> entries_of(const ArenaPlan& plan) {
  std::vector<std::string> entries;
  for (const ArenaPlan::Entry& e : plan.entries())
    entries.push_back(fmt::format("{} ({}) {}+{}", e.name, to_string(e.use), e.slot.offset, e.slot.bytes));
  return entries;
}

struct RankRun {
  std::vector<std::string> entries;
  std::array<double, kNumAxes> bytes_sent{};
};

class DryRun : public ::testing::TestWithParam<ContractCase> {};

TEST_P(DryRun, IsWhatEveryRankDoes) {
  std::map<int, RankRun> ranks;
  std::mutex mutex;
  LayoutRunOptions options;
  options.steps = 2;
  options.after_steps = [&](RankTrainer& trainer) {
    const std::lock_guard lock(mutex);
    ranks[trainer.context().rank()] = {entries_of(trainer.arena_plan()), trainer.context().bytes_sent()};
  };
  const LayoutRun run = testing::run_layout(config_of(GetParam()), {}, options);
  ASSERT_EQ(static_cast<int>(ranks.size()), GetParam().world());
  Doorbell doorbell;
  CpuDevice oracle(doorbell, {});
  for (const auto& [rank, seen] : ranks) {
    const trident::DryRun dry = dry_run(run.plan, rank, &oracle.ops(), DryWork::kStep);
    EXPECT_EQ(entries_of(dry.arena), seen.entries) << "rank " << rank;
    EXPECT_EQ(dry.arena.total_bytes(), run.high_water[static_cast<std::size_t>(rank)]) << "rank " << rank;
    EXPECT_EQ(dry.bytes_sent, seen.bytes_sent) << "rank " << rank;
  }
}

// One rank of a stage stands for all of them where traffic is predicted.
TEST_P(DryRun, RanksOfAStageSendTheSame) {
  LayoutRunOptions options;
  options.steps = 1;
  const RunPlan plan = testing::run_layout(config_of(GetParam()), {}, options).plan;
  std::vector<std::array<double, kNumAxes>> of_stage(static_cast<std::size_t>(plan.grid.degrees().pipeline));
  std::vector<bool> seen(of_stage.size());
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const auto stage = static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline);
    const trident::DryRun dry = dry_run(plan, rank, nullptr, DryWork::kStep);
    if (!seen[stage]) of_stage[stage] = dry.bytes_sent;
    seen[stage] = true;
    EXPECT_EQ(dry.bytes_sent, of_stage[stage]) << "rank " << rank;
  }
}

// ---- one rank of a stage stands for all: in its arena, its collectives and its products

// Records what is announced to a device, in order.
class Announcements final : public DryOps {
 public:
  Announcements() : DryOps(nullptr) {}
  std::int64_t prepare_matmul(const MatmulShape& shape) override {
    products.push_back(text(shape));
    return DryOps::prepare_matmul(shape);
  }
  PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t) override {
    products.push_back(fmt::format("{} and {}", text(shape), static_cast<int>(epilogue)));
    return {DryOps::prepare_matmul(shape), false};
  }
  std::int64_t attention_workspace(const AttentionShape& s) override {
    products.push_back(text(s));
    return DryOps::attention_workspace(s);
  }

  static std::string text(const MatmulShape& s) {
    return fmt::format("{}x{}x{} {}{} {}->{} {}", s.m, s.n, s.k, static_cast<int>(s.transpose_a), static_cast<int>(s.transpose_b),
                       to_string(s.in), to_string(s.out), static_cast<int>(s.accumulate));
  }
  static std::string text(const AttentionShape& s) {
    return fmt::format("attention {} {}/{} {}+{} {}+{} x {} {} {} {}", s.batch, s.query_heads, s.kv_heads, s.query_offset,
                       s.query_length, s.key_offset, s.key_length, s.head_dim, s.scale, s.causal, to_string(s.dtype));
  }

  std::vector<std::string> products;
};

// Returns what a rank's step multiplies and communicates, a line for each instruction.
std::vector<std::string> calls_of(const StepRecord& record) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < record.pass_of.size(); ++i) {
    std::string line;
    for (const auto& call : record.pass(i).calls) {
      if (const auto* const c = std::get_if<RecordedCollective>(&call)) {
        line += fmt::format("{} over {} of {}: {} {}; ", to_string(c->operation), c->group, c->size, to_string(c->dtype),
                            c->operand_bytes);
      } else if (const auto& o = std::get<RecordedOperation>(call); const auto* m = std::get_if<MatmulShape>(&o.shape)) {
        line += fmt::format("{} {}; ", o.name, Announcements::text(*m));
      } else if (const auto* a = std::get_if<AttentionShape>(&o.shape)) {
        line += fmt::format("{} {}; ", o.name, Announcements::text(*a));
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

struct RankPlan {
  std::vector<std::string> arena, announced, calls;
};

RankPlan plan_of_rank(const RunPlan& plan, int rank) {
  Announcements oracle;
  const ArenaPlan arena = dry_run(plan, rank, &oracle, DryWork::kConstruct).arena;
  RankPlan seen{entries_of(arena), oracle.products, {}};
  seen.calls = calls_of(record_step(plan, rank, &oracle, DryWork::kStep));
  return seen;
}

class RanksOfAStage : public ::testing::TestWithParam<ContractCase> {};

TEST_P(RanksOfAStage, AreEqualInArenaCollectivesAndProducts) {
  LayoutRunOptions options;
  options.steps = 0;
  const RunPlan plan = testing::run_layout(config_of(GetParam()), {}, options).plan;
  std::vector<RankPlan> first(static_cast<std::size_t>(plan.grid.degrees().pipeline));
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const RankPlan seen = plan_of_rank(plan, rank);
    RankPlan& other = first[static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline)];
    if (other.arena.empty()) other = seen;
    EXPECT_FALSE(seen.announced.empty());
    EXPECT_EQ(seen.arena, other.arena) << "rank " << rank;
    EXPECT_EQ(seen.announced, other.announced) << "rank " << rank;
    EXPECT_EQ(seen.calls, other.calls) << "rank " << rank;
  }
  if (first.size() > 1) {
    EXPECT_NE(first.front().calls, first.back().calls) << "the embedding and the head are not told apart";
  }
}

// Beyond those of the other contracts: twelve ranks, a degree that divides nothing evenly.
std::vector<ContractCase> cases_of_stages() {
  std::vector<ContractCase> cases = contract_cases();
  std::ranges::copy(tuned_contract_cases(), std::back_inserter(cases));
  const ModelNumbers llama{.type = "llama"}, uneven{.type = "gpt2", .vocabulary = 131, .layers = 5, .kv_heads = 4, .ffn = 64,
                                                    .tied = true},
      olmo2{.type = "olmo2"};
  cases.push_back({.name = "dp3_pp2_tp2_sp_zero3", .model = llama, .tensor = 2, .pipeline = 2, .data = 3,
                   .sequence_parallel = true, .zero = "zero3"});
  cases.push_back({.name = "dp3_pp2_tp2_zero2_uneven_tied", .model = uneven, .tensor = 2, .pipeline = 2, .data = 3,
                   .zero = "zero2", .schedule = "gpipe", .layers = {2, 3}});
  cases.push_back({.name = "dp3_tp4_olmo2_zero1", .model = olmo2, .tensor = 4, .data = 3});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, RanksOfAStage, ::testing::ValuesIn(cases_of_stages()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Layouts, DryRun, ::testing::ValuesIn(contract_cases()), [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Tuned, DryRun, ::testing::ValuesIn(tuned_contract_cases()),
                         [](const auto& info) { return info.param.name; });

// The communication contract: the bytes of every operation of a training step, counted at the communicators' interface, are exactly
// what the layout calls for, and what the program predicts.

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
    ContractCase chunked = c;
    chunked.head_chunk = c.micro * c.sequence;  // where rows may be left out, backward alone makes logits
    Bytes expected = expected_bytes(chunked);
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

// Tests that sharding more takes no more memory: in planned bytes of every rank, over layouts and the shipped configurations.

std::vector<trident::DryRun> stages_of(RunPlan plan, ZeroPreset preset) {
  return dry_stages(with_policy(std::move(plan), policy_of(preset)), nullptr, DryWork::kStep);
}

std::int64_t bytes(const trident::DryRun& stage) { return stage.arena.total_bytes(); }

// Rank by rank, which is more than the largest of each.
void expect_order(const RunPlan& plan) {
  const auto ddp = stages_of(plan, ZeroPreset::kDdp), zero1 = stages_of(plan, ZeroPreset::kZero1);
  const auto zero2 = stages_of(plan, ZeroPreset::kZero2), zero3 = stages_of(plan, ZeroPreset::kZero3);
  const auto shard_grad_op = stages_of(plan, ZeroPreset::kShardGradOp);
  const auto over_data = static_cast<std::size_t>(Axis::kData);
  for (std::size_t stage = 0; stage < ddp.size(); ++stage) {
    EXPECT_LE(bytes(zero1[stage]), bytes(ddp[stage])) << "stage " << stage;
    EXPECT_LE(bytes(shard_grad_op[stage]), bytes(zero2[stage])) << "stage " << stage;
    EXPECT_LE(bytes(zero3[stage]), bytes(shard_grad_op[stage])) << "stage " << stage;
    // Whoever holds as much sends no more for it.
    if (bytes(zero3[stage]) == bytes(zero2[stage])) {
      EXPECT_EQ(zero3[stage].bytes_sent[over_data], zero2[stage].bytes_sent[over_data]) << "stage " << stage;
    }
    EXPECT_LE(shard_grad_op[stage].bytes_sent[over_data], zero3[stage].bytes_sent[over_data]) << "stage " << stage;
  }
}

RunPlan plan_of(const ContractCase& c) {
  const std::vector<std::string> settings{"run.dir=\"unused\"", "run.steps=9", "data.train=\"unused\"", "run.threads_per_rank=1"};
  const TrainConfig config = parse_train_config(config_of(c), "test", settings);
  return make_run_plan(config, resolve_model(config), 0, kLargeMachine);
}

std::vector<ContractCase> grid() {
  std::vector<ContractCase> cases;
  const ModelNumbers llama{.type = "llama", .layers = 8};
  const ModelNumbers small_vocabulary{.type = "llama", .vocabulary = 17, .hidden = 64, .layers = 8};
  const ModelNumbers gpt2{.type = "gpt2", .vocabulary = 131, .layers = 8, .kv_heads = 4, .ffn = 64, .tied = true};
  for (const int p : {1, 2, 4})
    for (const int v : {1, 2})
      for (const std::int64_t m : {1, 3, 8})
        for (const ModelNumbers& model : {llama, small_vocabulary, gpt2})
          for (const int data : {2, 3, 8}) {
            if (v > 1 && (p == 1 || m % p != 0)) continue;
            ContractCase c{.model = model};
            c.name = fmt::format("{}_v{}_pp{}_vs{}_m{}_dp{}", model.type, model.vocabulary, p, v, m, data);
            c.pipeline = p, c.chunks = v, c.micro_batches = m, c.data = data;
            c.schedule = v > 1 ? "interleaved" : m == 3 ? "gpipe" : "1f1b";
            c.recompute = data == 3 ? "full" : "none";
            c.compute_bytes = m == 8 ? 2 : 4;
            c.overlap = m > 1;
            if (p == 2 && v == 1) c.layers = {6, 2};
            if (p == 4 && v == 1) c.layers = {1, 4, 2, 1};
            cases.push_back(std::move(c));
          }
  return cases;
}

class ZeroOrder : public ::testing::TestWithParam<ContractCase> {};

TEST_P(ZeroOrder, MoreShardingTakesNoMoreMemory) { expect_order(plan_of(GetParam())); }

// zero2 takes less than zero1 exactly where the gradients that are alive at once and a shard of all are less than all.
TEST_P(ZeroOrder, Zero2SavesWhatTheGradientsAliveAtOnceLeave) {
  ContractCase c = GetParam();
  c.zero = "zero2";
  const RunPlan plan = plan_of(c);
  const auto zero1 = stages_of(plan, ZeroPreset::kZero1), zero2 = stages_of(plan, ZeroPreset::kZero2);
  for (int rank = 0; rank < c.pipeline; ++rank) {
    std::int64_t all = 0, shard = 0;
    for (const std::int64_t unit : expected_units(c, rank)) {
      all += expected_elements(c, unit);
      for (const ExpectedBucket& bucket : expected_buckets(c, unit)) shard += bucket.owned;
    }
    const std::int64_t saved = 4 * (all - shard - expected_regions(c, rank).gradients);
    const auto stage = static_cast<std::size_t>(rank);
    EXPECT_EQ(bytes(zero1[stage]) - bytes(zero2[stage]), saved) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, ZeroOrder, ::testing::ValuesIn(grid()), [](const auto& info) { return info.param.name; });

TEST(ZeroOrders, OfTheShippedConfigurations) {
  int checked = 0;
  for (const auto& file : std::filesystem::directory_iterator(TRIDENT_SOURCE_DIR "/configs")) {
    if (file.is_directory()) continue;  // what the planner knows of hardware
    SCOPED_TRACE(file.path().filename().string());
    OptionValues values;
    TrainConfig config = load_train_config(file.path().string(), {}, values);
    const std::int64_t ranks = config.parallel.pipeline * config.parallel.tensor * config.parallel.data.value_or(2);
    config.batch.global = std::max<std::int64_t>(config.batch.global, 2 * config.batch.micro);
    const RunPlan plan = make_run_plan(config, resolve_model(config), static_cast<int>(ranks), kLargeMachine);
    if (plan.grid.degrees().data > 1) expect_order(plan), ++checked;
  }
  EXPECT_GE(checked, 8);
}

// Tests what the start says of a choice. Where embedding and head are most of a rank, sharding more saves nothing.
TEST(ZeroOrders, TheStartNamesWhatNeedsAndSendsLess) {
  ContractCase c{.name = "", .model = {.type = "llama", .vocabulary = 131}, .pipeline = 2, .data = 2, .layers = {3, 1}};
  const auto line = [&](std::string_view zero) {
    c.zero = zero;
    return zero_line(plan_of(c)).text;
  };
  EXPECT_EQ(line("zero1"), "zero1 with 4 micro-batches: 0.13 MB sent over dp and 0.38 MB of model state per rank and step");
  for (const std::string zero : {"zero2", "shard_grad_op", "zero3"}) {
    EXPECT_EQ(line(zero), zero + " with 4 micro-batches: 0.32 MB sent over dp and 0.38 MB of model state per rank and step; zero1 "
                                 "would send 0.13 MB and hold 0.38 MB: zero1 is no worse in either");
    EXPECT_EQ(plan_of(c).notes.size(), zero == "zero2" ? 0u : 1u);
  }
  c.layers = {}, c.model.layers = 16, c.micro_batches = 8;
  EXPECT_EQ(line("zero3"), "zero3 with 8 micro-batches: 3.19 MB sent over dp and 0.70 MB of model state per rank and step; zero1 "
                           "would send 0.28 MB and hold 0.85 MB");
}

}  // namespace
}  // namespace trident::contracts
