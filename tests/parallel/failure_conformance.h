// Tests that ranks which disagree, give up or throw end every rank of any communicator, with a message that says who and what: one
// suite, instantiated once per transport. This header is included by one file per test executable.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "tests/parallel/rank_context.h"
#include "tests/support/error_text.h"

namespace trident::conformance {

struct FailureCase {
  std::string name;
  std::vector<int> nodes;  // of every rank
  // Runs `body` on every rank of a new world, whose watchdog waits for so long.
  std::function<Failures(double timeout, const std::function<void(RankContext&)>& body)> run;
  int seeds = 10;  // of the moments at which a rank throws
  enum class Barriers : std::uint8_t { kCompared, kApart } barriers = Barriers::kCompared;  // with other operations
};

inline void PrintTo(const FailureCase& one, std::ostream* out) { *out << one.name; }
inline std::string name_of_case(const ::testing::TestParamInfo<FailureCase>& info) { return info.param.name; }

class CommunicatorFailures : public ::testing::TestWithParam<FailureCase> {
 protected:
  int size() const { return static_cast<int>(GetParam().nodes.size()); }
  Failures run(const std::function<void(RankContext&)>& body) const { return GetParam().run(30, body); }
  // Every rank says why it ended: of two on one node both in the same words.
  void expect_all_end(const Failures& failures) const {
    const bool alike = size() == 2 && GetParam().nodes.front() == GetParam().nodes.back();
    for (const std::string& error : failures.per_rank) EXPECT_TRUE(alike ? error == failures.error : !error.empty()) << error;
  }
  // Goes on until the failure reaches this rank, and throws it.
  [[noreturn]] static void go_on(RankContext& rank, Stream& stream) {
    stream.synchronize();
    for (;;) rank.world.barrier();
  }
};

// Transports whose communicators end although operations are under way.
class PendingFailures : public CommunicatorFailures {};

TEST_P(CommunicatorFailures, ADisagreementNamesBothRanksAndBothOperations) {
  constexpr int kEarlier = 16;
  const int last = size() - 1, part = 1200 / size();
  const Failures failures = run([&](RankContext& c) {
    const auto tp = c.world.split(all_ranks(c.world), "tp");
    Values x(DType::kF32, 1200);
    for (int i = 0; i < kEarlier; ++i) tp->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    if (tp->rank() == last) tp->all_reduce(c.compute, x.view(), ReduceOp::kSum);
    else tp->all_gather(c.compute, x.view(), x.range(tp->rank() * part, part));
    go_on(c, c.compute);
  });
  EXPECT_EQ(failures.error.find(fmt::format("tp: rank {} called all_reduce f32[1200] as operation {} while rank ", last,
                                            kEarlier + 1)), 0u) << failures.error;
  expect_parts(failures.error, {fmt::format("called all_gather f32[{}]", part)});
  expect_all_end(failures);
}

// The last rank, or all of its node, calls something else: large enough that moving data anyway would read beyond the shorter one.
TEST_P(CommunicatorFailures, CountDTypeReduceOpAndRootAreCompared) {
  const int last = size() - 1;
  std::vector<std::pair<std::string, std::function<void(RankContext&, TensorView)>>> others{
      {"all_reduce f32[2000]",
       [](RankContext& c, TensorView x) { c.world.all_reduce(*c.queues[0], x.range(0, 2000), ReduceOp::kSum); }},
      {"all_reduce i32[40000]",
       [](RankContext& c, TensorView x) {
         c.world.all_reduce(*c.queues[0], {x.data(), DType::kI32, {40000}, x.where()}, ReduceOp::kSum);
       }},
      {"all_reduce(max) f32[40000]", [](RankContext& c, TensorView x) { c.world.all_reduce(*c.queues[0], x, ReduceOp::kMax); }},
      {fmt::format("broadcast f32[40000] from rank {}", last),
       [=](RankContext& c, TensorView x) { c.world.broadcast(*c.queues[0], x, last); }},
  };
  if (GetParam().barriers == FailureCase::Barriers::kCompared)
    others.emplace_back("barrier", [](RankContext& c, TensorView) { c.world.barrier(); });
  const std::vector<int>& nodes = GetParam().nodes;
  for (const auto& [words, call] : others) {
    const Failures failures = run([&, &call = call](RankContext& c) {
      Values x(DType::kF32, 40000);
      const bool differs = nodes.front() == nodes.back() ? c.world.rank() == last
                                                         : nodes[static_cast<std::size_t>(c.world.rank())] == nodes.back();
      if (differs) call(c, x.view());
      else c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
      go_on(c, *c.queues[0]);
    });
    expect_parts(failures.error, {"world: rank ", " called " + words + " as operation 1 while rank ", "all_reduce f32[40000]"});
    expect_all_end(failures);
  }
}

TEST_P(CommunicatorFailures, MessagesMustAgreeInCountAndType) {
  for (const int n : {4, 20000}) {
    const Failures failures = run([&](RankContext& c) {
      Values x(DType::kF32, 2 * n);
      if (c.world.rank() == 0) c.world.send(*c.queues[0], x.range(0, n), 1);
      if (c.world.rank() == 1) c.world.recv(*c.queues[0], x.view(), 0);
      go_on(c, *c.queues[0]);
    });
    EXPECT_EQ(failures.error,
              fmt::format("world: rank 1 called recv f32[{}] from rank 0 as message 1 while rank 0 called send f32[{}] to rank 1",
                          2 * n, n));
  }
}

TEST_P(CommunicatorFailures, AThrowingRankIsNamedToItsPeersAndRethrown) {
  const Failures failures = run([](RankContext& c) {
    Values x(DType::kF32, 3000);
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    c.compute.synchronize();
    if (c.world.rank() == 1) throw DataError("corpus.bin: too short");
    c.world.all_reduce(*c.queues[1], x.view(), ReduceOp::kSum);
    c.queues[1]->synchronize();
  });
  EXPECT_EQ(failures.error, "corpus.bin: too short");
  for (std::size_t rank = 0; rank < failures.per_rank.size(); ++rank)
    EXPECT_EQ(failures.per_rank[rank], rank == 1 ? "corpus.bin: too short" : "rank 1 failed: corpus.bin: too short");
}

TEST_P(CommunicatorFailures, AbortReachesEveryGroup) {
  const Failures failures = run([](RankContext& c) {
    const auto pair = c.world.split(neighbours(c.world, 2), "pair");
    if (c.world.rank() == 0) pair->abort("stop requested");
    else pair->barrier();
    c.world.barrier();
  });
  EXPECT_EQ(failures.error, "stop requested");
  for (const std::string& error : failures.per_rank) EXPECT_EQ(error, "stop requested");
}

// Left without a wait; the communicator goes while its operation is under way.
TEST_P(PendingFailures, LeavingWithOperationsPendingIsAFailure) {
  const Failures failures = run([](RankContext& c) {
    Values x(DType::kF32, 3000);
    if (c.world.rank() == 0) return c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kSum);
    if (c.world.rank() < c.world.size() - 1) return;
    for (;;) c.world.recv(c.compute, x.view(), 0);
  });
  EXPECT_EQ(failures.error.find("rank 0 left with operations pending: all_reduce #1 over world"), 0u) << failures.error;
}

TEST_P(CommunicatorFailures, AGroupLeftByAnExceptionIssuesNothing) {
  const Failures failures = run([](RankContext& c) {
    Values x(DType::kF32, 4, [](auto) { return 1.0; });
    try {
      const GroupScope group(c.world);
      c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
      if (c.world.rank() == 0) c.world.send(c.compute, x.view(), 1);
      throw ConfigError("no");
    } catch (const ConfigError&) {
    }
    c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
    c.compute.synchronize();
    EXPECT_EQ(x.at(0), static_cast<double>(c.world.size()));
  });
  EXPECT_EQ(failures.error, "");
}

// Everything ends quickly, and the first cause is what the caller sees. Under AddressSanitizer this shows that nobody touches
// memory which a leaving rank has freed.
TEST_P(CommunicatorFailures, ARankThatThrowsAtARandomPointEndsAll) {
  constexpr int kCalls = 20;
  for (int seed = 0; seed < GetParam().seeds; ++seed) {
    const int ranks = size(), thrower = seed * 7 % ranks, at = seed * 13 % kCalls;
    const Failures failures = run([&](RankContext& c) {
      for (int i = 0; i < kCalls; ++i) {
        Values x(DType::kF32, i % 4 == 0 ? 6000 : 20), y(DType::kF32, x.count() * ranks);  // freed while peers may be busy
        if (c.world.rank() == thrower && i == at) throw std::runtime_error("planted");
        if (i % 3 == 0) c.world.all_gather(c.compute, y.view(), x.view());
        else c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
        c.compute.synchronize();
        if (i % 5 == 0) c.world.barrier();
      }
    });
    EXPECT_EQ(failures.error, "planted");
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(failures.per_rank[static_cast<std::size_t>(r)],
                r == thrower ? "planted" : fmt::format("rank {} failed: planted", thrower));
  }
}

}  // namespace trident::conformance
