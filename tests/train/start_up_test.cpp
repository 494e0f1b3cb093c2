#include "train/launch/start_up.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/host_name.h"
#include "tests/support/error_text.h"
#include "tests/support/meeting.h"
#include "train/config/train_config.h"
#include "train/launch/start_watch.h"
#include "train/run/run_together.h"

namespace trident {
namespace {

using testing::MeetingRank;
using testing::on_meeting_ranks;

struct StartUpEnd {
  int code = 0;
  bool silent = false;
  std::string message;
  int system_error = 0;
};

// Returns what becomes of every rank that runs `body(job)`.
template <class Body>
std::vector<StartUpEnd> on_ranks(int ranks, Body body) {
  std::vector<StartUpEnd> ended(static_cast<std::size_t>(ranks));
  on_meeting_ranks(std::vector<int>(ended.size(), 0), [&](MeetingRank& job, MeetingRank&) {
    StartUpEnd& mine = ended[static_cast<std::size_t>(job.rank())];
    try {
      body(job);
    } catch (const ReportedElsewhere& error) {
      mine = {static_cast<int>(error.code()), true, error.what(), error.system_error()};
    } catch (const Error& error) {
      mine = {static_cast<int>(error.code()), false, error.what(), error.system_error()};
    }
  });
  return ended;
}

StartUpFacts facts(const std::string& host,
                   const std::string& config = "{\"parallel\":{\"tensor\":2},\"precision\":{\"compute\":\"auto\"}}") {
  StartUpFacts f;
  f.host = host;
  f.build = "0123456789abcdef0123";
  f.instruction_set = "avx512 with AVX512-BF16";
  f.config = config;
  f.machine = {1.97, true, "2 cores", DeviceKind::kCpu, {{"this machine", {0}, 1000}}};
  f.device_why = "device = auto: no driver";
  return f;
}

TEST(StartUp, FactsSurviveTheExchange) {
  StartUpFacts f = facts("n\"1\"");
  f.machine.device = DeviceKind::kCuda;
  const StartUpFacts g = start_up_facts_from(to_text(f));
  EXPECT_EQ(g.host, f.host);
  EXPECT_EQ(g.build, f.build);
  EXPECT_EQ(g.instruction_set, f.instruction_set);
  EXPECT_EQ(g.config, f.config);
  EXPECT_EQ(g.machine.bf16_over_fp32, f.machine.bf16_over_fp32);
  EXPECT_EQ(g.machine.multiplies_fp16, f.machine.multiplies_fp16);
  EXPECT_EQ(g.machine.device, f.machine.device);
  EXPECT_EQ(g.machine.bytes(), f.machine.bytes());
  EXPECT_EQ(g.device_why, f.device_why);
}

TEST(StartUp, ThisProcessHasAnIdAndAHost) {
  EXPECT_GE(build_id().size(), 16u) << "linked without a build id: builds could not be told apart";
  EXPECT_FALSE(host_name().empty());
}

TEST(StartUp, AnErrorEndsAllAndRank0SaysWhose) {
  struct Row {
    int ranks;
    std::function<void(int rank)> step;
    StartUpEnd rank_0;
  };
  const Row rows[] = {
      {3, [](int) {}, {}},
      {4,
       [](int rank) {
         if (rank == 2) throw DataError("corpus.bin: not there; run trident data prepare");
       },
       {65, false, "rank 2 (" + host_name() + "): corpus.bin: not there; run trident data prepare"}},
      {3, [](int) { throw ConfigError("run.steps = -1: no"); }, {64, false, "run.steps = -1: no"}},
      // The first is quoted where each says another; the start is judged by the system's error.
      {3, [](int rank) { throw StorageError("disk " + std::to_string(rank / 2), ENOSPC); },
       {74, false, "rank 0 (" + host_name() + ") and 2 more: disk 0", ENOSPC}},
      {4,
       [](int rank) {
         if (rank > 0) throw StorageError("disk " + std::to_string(rank));
       },
       {74, false, "rank 1 (" + host_name() + ") and 2 more: disk 1"}}};
  for (const Row& row : rows) {
    const auto ended = on_ranks(row.ranks, [&](MeetingRank& job) { run_together(job, [&] { row.step(job.rank()); }); });
    EXPECT_EQ(ended[0].message, row.rank_0.message);
    for (const StartUpEnd& end : ended) {
      EXPECT_EQ(end.code, row.rank_0.code) << row.rank_0.message;
      EXPECT_EQ(end.system_error, row.rank_0.system_error) << row.rank_0.message;
      EXPECT_EQ(end.silent, end.code != 0 && &end != &ended[0]) << row.rank_0.message;
    }
  }
}

TEST(StartUp, ConfigurationsThatDifferAreNamed) {
  const auto ended = on_ranks(3, [](MeetingRank& job) {
    const bool other = job.rank() == 2;
    compare_start_up(job, facts(other ? "n2" : "n1", other ? "{\"parallel\":{\"tensor\":4}}" : "{\"parallel\":{\"tensor\":2}}"));
  });
  EXPECT_EQ(ended[0].message,
            "different configurations: parallel.tensor is 2 on rank 0 (n1) and 4 on rank 2 (n2); start all ranks with the same "
            "configuration");
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(ended[r].code, 64);
  EXPECT_TRUE(ended[1].silent && ended[2].silent);
}

// A configuration of 2 KB on thousands of ranks would be tens of megabytes on rank 0.
TEST(StartUp, OfConfigurationsThatDifferOneTravels) {
  const std::string config = "{\"run\":\"" + std::string(2000, 'x') + "\"}", other = "{\"run\":\"" + std::string(2000, 'y') + "\"}";
  const auto ended = on_ranks(5, [&](MeetingRank& job) {
    StartUpFacts mine = facts("n1", job.rank() == 3 || job.rank() == 2 ? other : config);
    const auto compare = [&] { compare_start_up(job, mine); };
    EXPECT_THROW(compare(), Error);
    ASSERT_EQ(job.gathered.size(), 1u);
    EXPECT_EQ(job.gathered[0].size() > 2000, job.rank() == 0 || job.rank() == 2) << job.rank();
    compare_start_up(job, facts("n1", config));
    EXPECT_EQ(job.gathered.size(), 1u) << "nothing to say, nothing to bring";
  });
  for (const StartUpEnd& e : ended) EXPECT_EQ(e.code, 0) << e.message;
}

// The whole of a rank's part in a start where all agree.
std::vector<int> calls_of_a_start(const std::vector<int>& nodes) {
  std::mutex mutex;
  std::set<int> calls;
  on_meeting_ranks(nodes, [&](MeetingRank& job, MeetingRank& node) {
    const StartUpFacts mine = facts(fmt::format("n{}", nodes[static_cast<std::size_t>(job.rank())]));
    run_together(job, [] {});
    const StartUpAgreement agreement = compare_start_up(job, mine);
    weakest(job, node, mine);
    of_rank_0(job, {1, 2, 3});
    EXPECT_TRUE(job.gathered.empty()) << "of every rank, at rank 0";
    EXPECT_TRUE(agreement.warnings.empty());
    const std::lock_guard lock(mutex);
    calls.insert(job.calls);
  });
  return {calls.begin(), calls.end()};
}

TEST(StartUp, ManyRanksTakeAsManyCallsAsFew) {
  const std::vector<int> few = calls_of_a_start({0, 1});
  EXPECT_EQ(few.size(), 1u) << "all ranks alike";
  std::vector<int> nodes(66);
  for (std::size_t r = 0; r < nodes.size(); ++r) nodes[r] = static_cast<int>(r) / 5;
  EXPECT_EQ(calls_of_a_start(nodes), few);
}

TEST(StartUp, WhatDiffersIsNamedWithItsRanks) {
  const auto line_of = [](const std::vector<StartUpFacts>& ranks) {
    const auto lines = start_up_conflicts(ranks);
    EXPECT_EQ(lines.size(), 1u);
    return lines.empty() ? "" : lines[0];
  };
  expect_parts(line_of({facts("a", "{\"x\":{\"y\":1}}"), facts("b", "{\"x\":{\"y\":1,\"z\":[2]}}")}),
               {"x.z is nothing on rank 0 (a) and [2] on rank 1 (b)"});
  std::vector<StartUpFacts> builds = {facts("n1"), facts("n1"), facts("n2"), facts("n2")};
  builds[2].build = builds[3].build = "fedcba9876543210";
  expect_parts(line_of(builds), {"0123456789ab on ranks 0-1 (n1); fedcba987654 on ranks 2-3 (n2)"});
  std::vector<StartUpFacts> devices = {facts("n1"), facts("n1"), facts("n2")};
  devices[2].machine.device = DeviceKind::kCuda;
  devices[2].device_why = "device = auto: 1 GPU, CUDA 13.0";
  expect_parts(line_of(devices), {"different devices: device = auto: no driver on ranks 0-1 (n1); device = auto: 1 GPU, CUDA 13.0 "
                                  "on rank 2 (n2)"});
}

TEST(StartUp, AMixedSetOfProcessors) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n2"), facts("n1")};
  EXPECT_TRUE(start_up_warnings(ranks).empty());
  ranks[1].instruction_set = "avx2";
  ASSERT_EQ(start_up_warnings(ranks).size(), 1u);
  EXPECT_TRUE(contains(start_up_warnings(ranks)[0], "avx2 on rank 1 (n2)")) << start_up_warnings(ranks)[0];
  EXPECT_TRUE(contains(start_up_warnings(ranks)[0], "on ranks 0,2 (n1)")) << start_up_warnings(ranks)[0];
  ranks[1].machine.bf16_over_fp32 = 0.49;
  EXPECT_TRUE(start_up_conflicts(ranks).empty());
  ASSERT_EQ(start_up_warnings(ranks).size(), 2u);
  EXPECT_EQ(
      start_up_warnings(ranks)[1],
      "some processors multiply bf16 no faster than fp32, and all ranks go by those: faster is bf16 on ranks 0,2 (n1); fp32 on "
      "rank 1 (n2)");
}

TEST(StartUp, AllHaveWhatRank0Has) {
  const std::vector<std::int32_t> of_0 = {0, 1, -1, 1 << 30, 256};
  std::vector<std::vector<std::int32_t>> got(3), none(3, of_0);
  on_ranks(3, [&](MeetingRank& job) {
    const auto i = static_cast<std::size_t>(job.rank());
    got[i] = of_rank_0(job, i == 0 ? of_0 : std::vector<std::int32_t>(i, 7));
    none[i] = of_rank_0(job, i == 0 ? std::vector<std::int32_t>() : of_0);
  });
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(got[r], of_0) << r;
    EXPECT_TRUE(none[r].empty()) << r;
  }
}

// Returns what weakest() says on every rank, for ranks on these nodes.
std::vector<MachineFacts> weakest_of(const std::vector<int>& nodes, const std::vector<StartUpFacts>& ranks) {
  std::vector<MachineFacts> machines(nodes.size());
  on_meeting_ranks(nodes, [&](MeetingRank& job, MeetingRank& node) {
    const auto r = static_cast<std::size_t>(job.rank());
    machines[r] = weakest(job, node, ranks[r]);
  });
  return machines;
}

TEST(StartUp, ThePlanCountsOnTheWeakest) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n2"), facts("n3")};
  ranks[1].machine.memory[0].bytes = 10;
  for (const MachineFacts& machine : weakest_of({0, 1, 2}, ranks)) {
    EXPECT_EQ(machine.bf16_over_fp32, 1.97);
    EXPECT_TRUE(machine.multiplies_fp16);
    EXPECT_EQ(machine.bytes_per_rank(), 10);
    EXPECT_EQ(machine.bytes(), 2010);
  }
  ranks[1].machine.bf16_over_fp32 = 0.49, ranks[2].machine.multiplies_fp16 = false;
  for (const MachineFacts& machine : weakest_of({0, 1, 2}, ranks)) {
    EXPECT_EQ(machine.bf16_over_fp32, 0.49) << "one node decides for all";
    EXPECT_FALSE(machine.multiplies_fp16);
  }
}

TEST(StartUp, RanksOfAMachineShareItsMemory) {
  std::vector<StartUpFacts> ranks = {facts("n1"), facts("n2"), facts("n1")};
  ranks[2].machine.memory[0].bytes = 900;
  const std::vector<MachineFacts> machines = weakest_of({0, 1, 0}, ranks);
  for (const MachineFacts& machine : machines) {
    EXPECT_EQ(machine.bytes(), 1900);
    EXPECT_EQ(machine.bytes_per_rank(), 450);
    ASSERT_EQ(machine.memory.size(), 1u) << "of its own node";
  }
  for (const std::size_t r : {0u, 2u}) {
    EXPECT_EQ(machines[r].memory[0].name, "n1");
    EXPECT_EQ(machines[r].memory[0].ranks, (std::vector<int>{0, 2}));
    EXPECT_EQ(machines[r].memory[0].bytes, 900) << "what all see of it";
  }
  EXPECT_EQ(machines[1].memory[0].ranks, (std::vector<int>{1}));
  EXPECT_EQ(machines[1].memory[0].bytes, 1000);
  EXPECT_EQ(weakest_of({0, 0}, ranks)[1].memory[0].name, "this machine");

  for (StartUpFacts& f : ranks) f.machine.device = DeviceKind::kCuda, f.machine.memory = {{"GPU 0", {0, 1, 2}, 5}};
  for (const MachineFacts& machine : weakest_of({0, 1, 0}, ranks)) EXPECT_EQ(machine.bytes(), 5) << "of GPUs all know";
}

TEST(StartUp, TensorGroupsThatSpanNodesAreWarnedAbout) {
  const ProcessGrid grid(ParallelDegrees{.tensor = 4, .context = 1, .data = 2, .pipeline = 1});
  const auto warning = [&](const std::vector<int>& nodes) {
    std::string of_rank_0;
    on_meeting_ranks(nodes, [&](MeetingRank& job, MeetingRank&) {
      const std::string line = topology_warning(job, grid, nodes, job.rank() < 4 ? "n1" : "n2");
      EXPECT_EQ(job.rank() == 0 || line.empty(), true) << "rank 0 says it";
      if (job.rank() == 0) of_rank_0 = line;
      for (const std::string& host : job.gathered) EXPECT_EQ(host.empty(), job.rank() >= 4) << "of the group that is named";
    });
    return of_rank_0;
  };
  EXPECT_EQ(warning({0, 0, 0, 0, 1, 1, 1, 1}), "");
  const std::string one = warning({0, 0, 0, 1, 1, 1, 1, 1});
  EXPECT_TRUE(contains(one, "1 of 2 tensor-parallel groups span nodes (ranks 0-3 (n1))")) << one;
  const std::string spread = warning({0, 1, 0, 1, 0, 1, 0, 1});
  EXPECT_TRUE(contains(spread, "2 of 2 tensor-parallel groups")) << spread;
}

// A job that does not get going says so, and ends.

class Said {
 public:
  StartWatchOptions options(bool speaks) {
    StartWatchOptions options;
    options.speaks = speaks;
    options.first_seconds = options.every_seconds = 0.02;
    options.most_seconds = 1e9;
    options.warn = [this](const std::string& line) { add(line); };
    options.end = [this](const std::string& line) {
      add("end: " + line);
      ended = true;
    };
    return options;
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void wait_for(std::size_t count) {
    while (lines().size() < count) std::this_thread::yield();
  }
  std::atomic<bool> ended{false};

 private:
  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
  }
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(StartWatch, SaysWhatTheRankDoesAndSaysItAgain) {
  Said said;
  {
    StartWatch watch("joins", said.options(true));
    said.wait_for(2);
    watch.next("reads");
    const std::size_t before = said.lines().size();
    said.wait_for(before + 2);  // one may have been on its way
  }
  const std::vector<std::string> lines = said.lines();
  expect_parts(lines.front(), {"s this rank joins; see whether"});
  expect_parts(lines.back(), {"s this rank reads; see whether"});
  EXPECT_FALSE(said.ended);
}

TEST(StartWatch, EndsAJobThatStandsStillAlsoWhereItIsSilent) {
  Said said;
  StartWatchOptions options = said.options(false);
  options.most_seconds = 0.05;
  StartWatch watch("joins", options);
  while (!said.ended) std::this_thread::yield();
  ASSERT_EQ(said.lines().size(), 1u);
  const std::string line = said.lines().front();
  EXPECT_TRUE(std::regex_search(line, std::regex("^end: the job has not begun: for [0-9]+ s this rank joins"))) << line;
}

TEST(StartWatch, AStageThatMovesOnIsNotEnded) {
  Said said;
  StartWatchOptions options = said.options(false);
  options.most_seconds = 1000;
  const double start = monotonic_seconds();
  {
    StartWatch watch("joins", options);
    watch.next("reads");
  }
  EXPECT_LT(monotonic_seconds() - start, 100) << "who destroys it does not wait for a line";
  EXPECT_TRUE(said.lines().empty());
}

}  // namespace
}  // namespace trident
