// Properties of the generated schedules over all p <= 8, v <= 4, m <= 16, and published numbers.
#include "pipeline/schedule/schedule_generators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>

#include "core/check.h"
#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/schedule.h"
#include "pipeline/schedule/schedule_simulator.h"
#include "tests/pipeline/step_program_fixture.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

constexpr int kMaxRanks = 8, kMaxChunks = 4, kMaxMicroBatches = 16;

template <class Body> void for_all(Body body) {
  for (int p = 1; p <= kMaxRanks; ++p)
    for (int m = 1; m <= kMaxMicroBatches; ++m) body(p, m);
}

template <class Body> void for_all_interleaved(Body body) {
  for (int p = 1; p <= kMaxRanks; ++p)
    for (int v = 1; v <= kMaxChunks; ++v)
      for (int m = p; m <= kMaxMicroBatches; m += p) body(p, v, m);
}

// F = 1, B = 2.
ScheduleTimeline unit_time(const Schedule& schedule) { return simulate(schedule, uniform_costs(1, 1, 1)); }

TEST(Generators, CheckerAcceptsAll) {
  for_all([](int p, int m) {
    for (const Schedule& s : {make_gpipe(p, m), make_1f1b(p, m)}) EXPECT_EQ(fault_of_programs(s), "no error") << to_text(s);
    for (int v = 1; v <= kMaxChunks; ++v) {
      const Schedule s = make_forward_only(p, v, m);
      EXPECT_TRUE(s.forward_only());
      EXPECT_EQ(fault_of_programs(s), "no error") << to_text(s);
    }
  });
  for_all_interleaved([](int p, int v, int m) {
    const Schedule s = make_interleaved(p, v, m);
    EXPECT_EQ(fault_of_programs(s), "no error") << to_text(s);
  });
}

TEST(Generators, BubbleIsTheClosedFormula) {
  for_all([](int p, int m) {
    for (const Schedule& s : {make_gpipe(p, m), make_1f1b(p, m)}) {
      EXPECT_DOUBLE_EQ(unit_time(s).bubble_over_ideal(), (p - 1.0) / m) << to_text(s);
      EXPECT_DOUBLE_EQ(unit_time(s).bubble_rate(), (p - 1.0) / (m + p - 1)) << to_text(s);
    }
  });
  for_all_interleaved([](int p, int v, int m) {
    const Schedule s = make_interleaved(p, v, m);
    EXPECT_DOUBLE_EQ(unit_time(s).bubble_over_ideal(), (p - 1.0) / (v * m)) << to_text(s);
  });
}

TEST(Generators, MicroBatchesInFlightAreThePapers) {
  for_all([](int p, int m) {
    const InFlight gpipe = max_in_flight(make_gpipe(p, m)), one = max_in_flight(make_1f1b(p, m));
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(gpipe.per_virtual_stage[static_cast<std::size_t>(rank)], m);
      EXPECT_EQ(one.per_virtual_stage[static_cast<std::size_t>(rank)], std::min(m, p - rank));
    }
  });
  // Warm-up forwards plus one, counted over the rank's chunks.
  for_all_interleaved([](int p, int v, int m) {
    const InFlight peak = max_in_flight(make_interleaved(p, v, m));
    for (int rank = 0; rank < p; ++rank)
      EXPECT_EQ(peak.per_rank[static_cast<std::size_t>(rank)], std::min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1));
  });
  EXPECT_EQ(max_in_flight(make_forward_only(4, 2, 7)).per_rank, std::vector<int>(4, 1));
}

// Megatron's order: groups of p micro-batches, chunk by chunk, backwards with the chunks mirrored.
TEST(Generators, InterleavedOrderOfTheFirstRank) {
  EXPECT_EQ(to_text(make_interleaved(2, 2, 4)),
            "p=2 v=2 m=4\n"
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n");
}

TEST(Generators, OneRankAccumulatesGradients) {
  EXPECT_EQ(to_text(make_1f1b(1, 2)), "p=1 v=1 m=2\n0F0 0B0 0F1 0B1\n");
  EXPECT_EQ(to_text(make_gpipe(1, 2)), "p=1 v=1 m=2\n0F0 0F1 0B0 0B1\n");
  EXPECT_EQ(to_text(make_interleaved(1, 2, 2)), "p=1 v=2 m=2\n0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1\n");
  EXPECT_EQ(to_text(make_forward_only(1, 1, 2)), "p=1 v=1 m=2\n0F0 0F1\n");
}

TEST(Generators, InterleavedRefusesOtherMicroBatchCounts) {
  expect_parts(error_of<ConfigError>([] { make_interleaved(4, 2, 6); }),
               {"batch.global gives 6 micro-batches", "parallel.virtual_stages = 2", "multiple of parallel.pipeline = 4",
                "the nearest is 4", "--set parallel.schedule=1f1b --set parallel.virtual_stages=1"});
  expect_parts(error_of<ConfigError>([] { make_interleaved(4, 2, 7); }), {"the nearest is 8 "});
  expect_parts(error_of<ConfigError>([] { make_interleaved(4, 2, 1); }), {"the nearest is 4 "});
}

TEST(Generators, SchedulesAreMadeByName) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1f1b, ScheduleKind::kInterleaved})
    EXPECT_EQ(parse_name<ScheduleKind>(to_string(kind)), kind);
  EXPECT_EQ(parse_name<ScheduleKind>("zb-h1"), std::nullopt);
  EXPECT_EQ(make_schedule(ScheduleKind::kGpipe, 2, 1, 3), make_gpipe(2, 3));
  EXPECT_EQ(make_schedule(ScheduleKind::k1f1b, 2, 1, 3), make_1f1b(2, 3));
  EXPECT_EQ(make_schedule(ScheduleKind::kInterleaved, 2, 2, 4), make_interleaved(2, 2, 4));
  expect_parts(error_of<ConfigError>([] { make_schedule(ScheduleKind::k1f1b, 2, 3, 4); }),
               {"parallel.virtual_stages = 3: schedule 1f1b", "set it to 1", "parallel.schedule", "interleaved"});
  EXPECT_THROW(make_schedule(static_cast<ScheduleKind>(3), 2, 1, 4), InternalError) << "one that nobody gave a generator";
}

// Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), tables 5 and 9: 8, 8, 16 and 32 stages, 1F1B, milliseconds.
TEST(Simulator, BubbleRatesAreThePublishedOnes) {
  struct Row {
    int stages, micro_batches;
    double f, i, w, comm, rate;
  };
  for (const Row& r : {Row{8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431}, Row{8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985},
                       Row{8, 64, 18.546, 18.097, 9.321, 0.762, 0.124}, Row{8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347},
                       Row{8, 32, 29.802, 29.428, 19.53, 0.577, 0.1898}, Row{8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091},
                       Row{16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552}, Row{16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082},
                       Row{16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251}, Row{32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646},
                       Row{32, 128, 10.408, 10.204, 7.703, 0.408, 0.2168}, Row{32, 256, 10.402, 10.248, 7.698, 0.46, 0.1352}}) {
    const ScheduleTimeline t = simulate(make_1f1b(r.stages, r.micro_batches), uniform_costs(r.f, r.i, r.w, r.comm));
    EXPECT_NEAR(t.bubble_rate(), r.rate, 1e-4) << r.stages << " stages, " << r.micro_batches << " micro-batches";
  }
}

// Split backwards: W delayed past the next I keeps a second micro-batch in flight.
TEST(Simulator, WeightGradientsReleaseActivations) {
  const Schedule s = parse_schedule("p=1 v=1 m=2\n0F0 0I0 0F1 0I1 0W0 0W1\n");
  EXPECT_EQ(fault_of_programs(s), "no error");
  EXPECT_EQ(max_in_flight(s).per_virtual_stage, std::vector<int>{2});
  EXPECT_DOUBLE_EQ(simulate(s, uniform_costs(1, 2, 4)).makespan, 14);
}

TEST(Simulator, MessagesDelayTheirReader) {
  const ScheduleTimeline t = simulate(make_1f1b(2, 1), uniform_costs(1, 1, 1, 0.25));
  EXPECT_DOUBLE_EQ(t.ranks[1][0].start, 1.25);
  EXPECT_DOUBLE_EQ(t.makespan, 1 + 0.25 + 1 + 2 + 0.25 + 2);
}

TEST(Simulator, RefusesAScheduleThatBlocks) {
  const Schedule without_forward = parse_schedule("p=2 v=1 m=1\n0B0\n1F0 1B0\n");
  EXPECT_THROW(simulate(without_forward, uniform_costs(1, 1, 1)), InternalError);
}

TEST(Schedule, VirtualStagesGoRoundTheRanks) {
  const Schedule schedule = make_interleaved(4, 2, 4);
  EXPECT_EQ(schedule.num_virtual_stages(), 8);
  EXPECT_EQ(schedule.rank_of(5), 1);
  EXPECT_EQ(schedule.chunk_of(5), 1);
}

TEST(Schedule, OneForwardOneBackwardHasItsText) {
  EXPECT_EQ(to_text(make_1f1b(2, 3)),
            "p=2 v=1 m=3\n"
            "0F0 0F1 0B0 0F2 0B1 0B2\n"
            "1F0 1B0 1F1 1B1 1F2 1B2\n");
}

std::vector<int> blocks_of_stage(const UnitsOfStage& stages) {
  std::vector<int> counts;
  for (const auto& units : stages) counts.push_back(static_cast<int>(units.size()));
  --counts.front();  // the embedding
  --counts.back();   // the head
  return counts;
}

double largest_cost(const UnitsOfStage& stages, const std::vector<double>& costs) {
  double largest = 0;
  for (const auto& units : stages) {
    double sum = 0;
    for (const int unit : units) sum += costs[static_cast<std::size_t>(unit)];
    largest = std::max(largest, sum);
  }
  return largest;
}

// The least possible largest stage, over all ways to give blocks first..L to the stages left.
double brute_force(const std::vector<double>& costs, int first, int stages_left, double embedding) {
  const int num_layers = static_cast<int>(costs.size()) - 2;
  if (stages_left == 1)
    return std::accumulate(costs.begin() + first, costs.end(), embedding);
  double best = std::numeric_limits<double>::infinity(), stage = embedding;
  for (int end = first + 1; end <= num_layers + 1 - (stages_left - 1); ++end) {
    stage += costs[static_cast<std::size_t>(end - 1)];
    best = std::min(best, std::max(stage, brute_force(costs, end, stages_left - 1, 0)));
  }
  return best;
}

std::vector<double> equal_blocks(int num_layers, double embedding = 0, double head = 0) {
  std::vector<double> costs(static_cast<std::size_t>(num_layers) + 2, 1.0);
  costs.front() = embedding;
  costs.back() = head;
  return costs;
}

TEST(Partition, UnitsAreInModelOrder) {
  EXPECT_EQ(partition_balanced(equal_blocks(4), 2, 1), (UnitsOfStage{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(partition_balanced(equal_blocks(3), 1, 1), (UnitsOfStage{{0, 1, 2, 3, 4}}));
}

TEST(Partition, EmbeddingAndHeadCount) {
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(8, 0, 2), 2, 1)), (std::vector<int>{5, 3}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(6, 1, 1), 4, 1)), (std::vector<int>{1, 2, 2, 1}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(126, 1, 1), 16, 4)).front(), 1);
}

// Among equal maxima: even, then fewest blocks where most micro-batches are in flight.
TEST(Partition, TiesAreBrokenOneWay) {
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(5), 4, 1)), (std::vector<int>{1, 1, 1, 2}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(10), 4, 1)), (std::vector<int>{2, 2, 3, 3}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(10), 2, 2)), (std::vector<int>{2, 2, 3, 3}));
  EXPECT_EQ(blocks_of_stage(partition_balanced(equal_blocks(7, 0, 100), 3, 1)), (std::vector<int>{3, 3, 1}));
}

TEST(Partition, IsOptimal) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 400; ++trial) {
    const int num_stages = 1 + static_cast<int>(random() % 4), num_layers = num_stages + static_cast<int>(random() % 5);
    std::vector<double> costs;
    for (int unit = 0; unit < num_layers + 2; ++unit) costs.push_back(static_cast<double>(random() % 8));
    const UnitsOfStage stages = partition_balanced(costs, num_stages, 1);
    EXPECT_EQ(largest_cost(stages, costs), brute_force(costs, 1, num_stages, costs.front()));
    int next = 0;
    for (const int count : blocks_of_stage(stages)) EXPECT_GE(count, 1);
    for (const auto& units : stages)
      for (const int unit : units) EXPECT_EQ(unit, next++);
    EXPECT_EQ(next, num_layers + 2);
  }
}

TEST(Partition, FewerLayersThanStagesIsRefused) {
  const std::string expected =
      "model layers = 7: fewer than parallel.pipeline = 4 x parallel.virtual_stages = 2 stages, and each needs at least one; use a "
      "product of at most 7";
  EXPECT_EQ(error_of<ConfigError>([] { partition_balanced(equal_blocks(7), 4, 2); }), expected);
  EXPECT_EQ(error_of<ConfigError>([] { partition_explicit(std::vector<std::int64_t>{}, 7, 4, 2); }), expected);
}

TEST(Partition, ExplicitCounts) {
  EXPECT_EQ(partition_explicit(std::vector<std::int64_t>{1, 3}, 4, 2, 1), (UnitsOfStage{{0, 1}, {2, 3, 4, 5}}));
}

TEST(Partition, ExplicitCountsAreValidated) {
  const auto error = [](std::vector<std::int64_t> layers) {
    return error_of<ConfigError>([&] { partition_explicit(layers, 8, 2, 2); });
  };
  const std::string remedy = "; give 4 counts of at least 1 that add up to the model's 8 layers, or null for a balanced split";
  EXPECT_EQ(error({4, 4}), "parallel.layers = [4, 4]: 2 counts for parallel.pipeline = 2 x parallel.virtual_stages = 2" + remedy);
  EXPECT_EQ(error({2, 2, 2, 1}), "parallel.layers = [2, 2, 2, 1]: the sum is 7" + remedy);
  EXPECT_EQ(error({2, 2, 2, 3}), "parallel.layers = [2, 2, 2, 3]: the sum is too large" + remedy);
  EXPECT_EQ(error({0, 2, 3, 3}), "parallel.layers = [0, 2, 3, 3]: 0 is less than 1" + remedy);
  expect_parts(error({std::numeric_limits<std::int64_t>::max(), 1, 1, 1}), {"the sum is too large"});
}

}  // namespace
}  // namespace trident
