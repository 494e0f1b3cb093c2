#include "train/start_up.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "core/host_name.h"
#include "tests/support/error_text.h"
#include "tests/support/meeting.h"
#include "train/train_config.h"

namespace trident {
namespace {

using testing::Meeting;

struct Ended {
  int code = 0;
  bool silent = false;
  std::string message;
};

// What becomes of every rank that runs `body(rank, exchange)`.
template <class Body> std::vector<Ended> on_ranks(int ranks, Body body) {
  Meeting meeting(ranks);
  std::vector<Ended> ended(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Ended& mine = ended[static_cast<std::size_t>(r)];
      try {
        body(r, [&, r](const std::string& text) { return meeting.exchange(r, text); });
      } catch (const ReportedElsewhere& error) {
        mine = {static_cast<int>(error.code()), true, error.what()};
      } catch (const Error& error) {
        mine = {static_cast<int>(error.code()), false, error.what()};
      }
    });
  }
  threads.clear();
  return ended;
}

StartUpFacts facts(const std::string& host, const std::string& config = "{\"parallel\":{\"tensor\":2},\"precision\":{\"compute\":\"auto\"}}") {
  StartUpFacts f;
  f.host = host;
  f.build = "0123456789abcdef0123";
  f.instruction_set = "avx512 with AVX512-BF16";
  f.config = config;
  f.machine = {true, true, "2 cores", DeviceKind::kCpu, {{"this machine", {0}, 1000}}};
  f.device_why = "device = auto: no driver";
  return f;
}

TEST(StartUp, FactsSurviveTheExchange) {
  StartUpFacts f = facts("n\"1\"");
  f.card = "n\"1\" 0000:17:00.0";
  f.machine.device = DeviceKind::kCuda;
  const StartUpFacts g = start_up_facts_from(to_text(f));
  EXPECT_EQ(g.host, f.host);
  EXPECT_EQ(g.build, f.build);
  EXPECT_EQ(g.instruction_set, f.instruction_set);
  EXPECT_EQ(g.config, f.config);
  EXPECT_EQ(g.machine.fast_bf16, f.machine.fast_bf16);
  EXPECT_EQ(g.machine.multiplies_fp16, f.machine.multiplies_fp16);
  EXPECT_EQ(g.machine.device, f.machine.device);
  EXPECT_EQ(g.machine.bytes(), f.machine.bytes());
  EXPECT_EQ(g.device_why, f.device_why);
  EXPECT_EQ(g.card, f.card);
}

TEST(StartUp, ThisProcessHasAnIdAndAHost) {
  EXPECT_GE(build_id().size(), 16u) << "linked without a build id: builds could not be told apart";
  EXPECT_FALSE(host_name().empty());
}

TEST(StartUp, NobodyEndsWhereAllSucceed) {
  for (const Ended& e : on_ranks(3, [](int r, const ExchangeTexts& exchange) { run_together(exchange, r, [] {}); })) EXPECT_EQ(e.code, 0);
}

TEST(StartUp, OneRanksErrorEndsAll) {
  const auto ended = on_ranks(4, [](int r, const ExchangeTexts& exchange) {
    run_together(exchange, r, [&] {
      if (r == 2) throw DataError("corpus.bin: not there; run trident data prepare");
    });
  });
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(ended[r].code, 65) << r;
    EXPECT_EQ(ended[r].silent, r != 0) << r;
  }
  EXPECT_TRUE(contains(ended[0].message, "rank 2 (" + host_name() + "): corpus.bin")) << ended[0].message;
}

TEST(StartUp, WhatAllSayIsSaidOnceWithoutANumber) {
  const auto ended =
      on_ranks(3, [](int r, const ExchangeTexts& exchange) { run_together(exchange, r, [] { throw ConfigError("run.steps = -1: no"); }); });
  EXPECT_EQ(ended[0].message, "run.steps = -1: no");
  EXPECT_EQ(ended[0].code, 64);
  EXPECT_TRUE(ended[1].silent && ended[2].silent);
}

TEST(StartUp, SeveralErrorsAreCounted) {
  const auto ended = on_ranks(4, [](int r, const ExchangeTexts& exchange) {
    run_together(exchange, r, [&] {
      if (r > 0) throw StorageError("disk " + std::to_string(r));
    });
  });
  EXPECT_TRUE(contains(ended[0].message, "rank 1 ")) << ended[0].message;
  EXPECT_TRUE(contains(ended[0].message, "and 2 more")) << ended[0].message;
  EXPECT_EQ(ended[3].code, 74);
}

BroadcastText from_rank_0(const ExchangeTexts& exchange) {
  return [&](const std::string& text) { return exchange(text).front(); };
}

TEST(StartUp, ConfigurationsThatDifferAreNamed) {
  const auto ended = on_ranks(3, [](int r, const ExchangeTexts& exchange) {
    compare_start_up(exchange, from_rank_0(exchange), r, facts(r == 2 ? "n2" : "n1", r == 2 ? "{\"parallel\":{\"tensor\":4}}" : "{\"parallel\":{\"tensor\":2}}"));
  });
  EXPECT_EQ(ended[0].message,
            "different configurations: parallel.tensor is 2 on rank 0 (n1) and 4 on rank 2 (n2); start all ranks with the same configuration");
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(ended[r].code, 64);
  EXPECT_TRUE(ended[1].silent && ended[2].silent);
}

// A configuration of 2 KB on thousands of ranks would be tens of megabytes on each.
TEST(StartUp, ConfigurationsThatAreRank0sDoNotTravel) {
  const std::string config = "{\"run\":\"" + std::string(2000, 'x') + "\"}";
  on_ranks(3, [&](int r, const ExchangeTexts& exchange) {
    const ExchangeTexts measured = [&](const std::string& mine) {
      EXPECT_EQ(mine.size() > 2000, r == 0);
      return exchange(mine);
    };
    const std::vector<StartUpFacts> all = compare_start_up(measured, from_rank_0(exchange), r, facts("n1", config));
    EXPECT_EQ(all[0].config, config);
    EXPECT_EQ(all[2].host, "n1");
  });
}

TEST(StartUp, AKeyThatOnlyOneHasIsNamed) {
  const auto lines = start_up_conflicts({facts("a", "{\"x\":{\"y\":1}}"), facts("b", "{\"x\":{\"y\":1,\"z\":[2]}}")});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "x.z is nothing on rank 0 (a) and [2] on rank 1 (b)")) << lines[0];
}

TEST(StartUp, AnotherBuildIsNamed) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n1"), facts("n2"), facts("n2")};
  ranks[2].build = ranks[3].build = "fedcba9876543210";
  const auto lines = start_up_conflicts(ranks);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "0123456789ab on ranks 0-1 (n1); fedcba987654 on ranks 2-3 (n2)")) << lines[0];
}

TEST(StartUp, NodesWithAndWithoutCardsAreNamed) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n1"), facts("n2")};
  ranks[2].machine.device = DeviceKind::kCuda;
  ranks[2].device_why = "device = auto: 1 card, CUDA 13.0";
  const auto lines = start_up_conflicts(ranks);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "different devices: device = auto: no driver on ranks 0-1 (n1); device = auto: 1 card, CUDA 13.0 on rank 2 (n2)")) << lines[0];
}

TEST(StartUp, AMixedSetOfProcessors) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n2"), facts("n1")};
  EXPECT_TRUE(start_up_warnings(ranks).empty());
  ranks[1].instruction_set = "avx2";
  ASSERT_EQ(start_up_warnings(ranks).size(), 1u);
  EXPECT_TRUE(contains(start_up_warnings(ranks)[0], "avx2 on rank 1 (n2)")) << start_up_warnings(ranks)[0];
  EXPECT_TRUE(contains(start_up_warnings(ranks)[0], "on ranks 0,2 (n1)")) << start_up_warnings(ranks)[0];
  EXPECT_TRUE(start_up_conflicts(ranks).empty()) << "both have bf16";

  ranks[1].machine.fast_bf16 = false;
  ASSERT_EQ(start_up_conflicts(ranks).size(), 1u);
  EXPECT_TRUE(contains(start_up_conflicts(ranks)[0], "precision.compute = auto")) << start_up_conflicts(ranks)[0];
  for (StartUpFacts& f : ranks) f.config = "{\"precision\":{\"compute\":\"bf16\"}}";
  EXPECT_TRUE(start_up_conflicts(ranks).empty()) << "said, not guessed";
}

TEST(StartUp, AllHaveWhatRank0Has) {
  const std::vector<std::int32_t> of_0 = {0, 1, -1, 1 << 30, 256};
  std::vector<std::vector<std::int32_t>> got(3), none(3, of_0);
  on_ranks(3, [&](int r, const ExchangeTexts& exchange) {
    const auto i = static_cast<std::size_t>(r);
    const BroadcastText broadcast = [&](const std::string& mine) { return exchange(mine).front(); };
    got[i] = of_rank_0(broadcast, r, r == 0 ? of_0 : std::vector<std::int32_t>(i, 7));
    none[i] = of_rank_0(broadcast, r, r == 0 ? std::vector<std::int32_t>() : of_0);
  });
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(got[r], of_0) << r;
    EXPECT_TRUE(none[r].empty()) << r;
  }
}

TEST(StartUp, ThePlanCountsOnTheWeakest) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n2")};
  ranks[1].machine.memory[0].bytes = 10;
  const auto weakest = [&] { return trident::weakest(ranks[0].machine, ranks); };
  EXPECT_TRUE(weakest().fast_bf16);
  EXPECT_EQ(weakest().bytes_per_rank(), 10);
  EXPECT_TRUE(weakest().multiplies_fp16);
  ranks[1].machine.fast_bf16 = ranks[1].machine.multiplies_fp16 = false;
  EXPECT_FALSE(weakest().fast_bf16);
  EXPECT_FALSE(weakest().multiplies_fp16);
}

TEST(StartUp, RanksOfAMachineShareItsMemory) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n1"), facts("n2")};
  ranks[1].machine.memory[0].bytes = 900;
  const std::vector<MemoryPool> memory = weakest(ranks[0].machine, ranks).memory;
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].name, "n1");
  EXPECT_EQ(memory[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(memory[0].bytes, 900) << "what all see of it";
  EXPECT_EQ(memory[1].ranks, (std::vector<int>{2}));
  EXPECT_EQ(memory[1].bytes, 1000);
  EXPECT_EQ(weakest(ranks[0].machine, {ranks[0], ranks[1]}).memory[0].name, "this machine");

  ranks[0].machine.device = DeviceKind::kCuda;
  ranks[0].machine.memory = {{"card 0", {0, 1, 2}, 5}};
  EXPECT_EQ(weakest(ranks[0].machine, ranks).bytes(), 5) << "of cards all know";
}

TEST(StartUp, TensorGroupsThatSpanNodesAreWarnedAbout) {
  const ProcessGrid grid(ParallelDegrees{.tensor = 4, .context = 1, .data = 2, .pipeline = 1});
  const std::vector<StartUpFacts> hosts = {facts("n1"), facts("n1"), facts("n1"), facts("n1"), facts("n2"), facts("n2"), facts("n2"), facts("n2")};
  EXPECT_EQ(topology_warning(grid, {0, 0, 0, 0, 1, 1, 1, 1}, hosts), "");
  const std::string warning = topology_warning(grid, {0, 0, 0, 1, 1, 1, 1, 1}, hosts);
  EXPECT_TRUE(contains(warning, "1 of 2 tensor-parallel groups span nodes (ranks 0-3 (n1))")) << warning;
  const std::string spread = topology_warning(grid, {0, 1, 0, 1, 0, 1, 0, 1}, hosts);
  EXPECT_TRUE(contains(spread, "2 of 2 tensor-parallel groups")) << spread;
}

}  // namespace
}  // namespace trident
