// Tests what happens when ranks disagree, stay away, give up or throw: every rank ends, and the message says who and what.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/check.h"
#include "parallel/shared_memory/shared_memory_communicator.h"
#include "tests/parallel/thread_ranks.h"
#include "tests/support/error_text.h"

namespace trident::conformance {
namespace {

Failures run_failing(int ranks, double timeout, const std::function<void(RankContext&)>& body) {
  ThreadWorld world(ranks, timeout);
  return failures_of(static_cast<std::size_t>(ranks), [&](auto attempt) {
    run_thread_ranks(world, [&](int rank) {
      ThreadRank self(world, rank);
      RankContext context = self.context();
      attempt(rank, [&] { body(context); });
    });
  });
}

TensorView floats(std::vector<float>& x) { return {x.data(), DType::kF32, {static_cast<std::int64_t>(x.size())}}; }

TEST(CommunicatorFailure, ADisagreementNamesBothRanksAndBothOperations) {
  std::vector<std::vector<float>> buffers(2, std::vector<float>(1024));
  const Failures failure = run_failing(2, 30, [&](RankContext& c) {
    const auto tp = c.world.split(all_ranks(c.world), "tp");
    const TensorView x = floats(buffers[static_cast<std::size_t>(c.world.rank())]);
    for (int i = 0; i < 16; ++i) tp->barrier();
    if (tp->rank() == 1) tp->all_reduce(c.compute, x, ReduceOp::kSum);
    else tp->all_gather(c.compute, x, x.range(0, 512));
  });
  EXPECT_EQ(failure.error, "tp: rank 1 called all_reduce f32[1024] as operation 17 while rank 0 called all_gather f32[512]");
  for (const std::string& error : failure.per_rank) EXPECT_EQ(error, failure.error);
}

// Each kind of disagreement, large enough that moving data anyway would read beyond the shorter buffer.
TEST(CommunicatorFailure, CountDTypeReduceOpAndRootAreCompared) {
  struct Call {
    const char* words;
    std::function<void(RankContext&, TensorView)> call;
  };
  const Call base{"all_reduce f32[4000]", [](RankContext& c, TensorView x) { c.world.all_reduce(c.compute, x, ReduceOp::kSum); }};
  const std::vector<Call> others = {
      {"all_reduce f32[2000]",
       [](RankContext& c, TensorView x) { c.world.all_reduce(c.compute, x.range(0, 2000), ReduceOp::kSum); }},
      {"all_reduce i32[4000]",
       [](RankContext& c, TensorView x) {
         c.world.all_reduce(c.compute, {x.data(), DType::kI32, {4000}}, ReduceOp::kSum);
       }},
      {"all_reduce(max) f32[4000]", [](RankContext& c, TensorView x) { c.world.all_reduce(c.compute, x, ReduceOp::kMax); }},
      {"broadcast f32[4000] from rank 2", [](RankContext& c, TensorView x) { c.world.broadcast(c.compute, x, 2); }},
      {"barrier", [](RankContext& c, TensorView) { c.world.barrier(); }},
  };
  for (const Call& other : others) {
    std::vector<std::vector<float>> buffers(3, std::vector<float>(4000));
    const Failures failure = run_failing(3, 30, [&](RankContext& c) {
      const TensorView x = floats(buffers[static_cast<std::size_t>(c.world.rank())]);
      (c.world.rank() == 2 ? other : base).call(c, x);
    });
    EXPECT_EQ(failure.error.find("world: rank 2 called " + std::string(other.words) + " as operation 1 while rank "), 0u)
        << failure.error;
    expect_parts(failure.error, {base.words});
    for (const std::string& error : failure.per_rank) EXPECT_FALSE(error.empty());
  }
}

TEST(CommunicatorFailure, ADisagreementIsReportedEvenIfOthersNeverCome) {
  const Failures failure = run_failing(4, 30, [&](RankContext& c) {
    std::vector<float> mine(8);
    if (c.world.rank() == 1) c.world.broadcast(c.compute, floats(mine), 1);
    if (c.world.rank() == 3) c.world.all_reduce(c.compute, floats(mine), ReduceOp::kSum);
  });
  EXPECT_EQ(failure.error,
            "world: rank 3 called all_reduce f32[8] as operation 1 while rank 1 called broadcast f32[8] from rank 1");
  EXPECT_EQ(failure.per_rank[0], "");
}

TEST(CommunicatorFailure, MessagesMustAgreeInCountAndType) {
  for (const bool large : {false, true}) {
    const std::int64_t n = large ? 20000 : 4;
    std::vector<float> sent(static_cast<std::size_t>(n)), received(static_cast<std::size_t>(2 * n));
    const Failures failure = run_failing(2, 30, [&](RankContext& c) {
      if (c.world.rank() == 0) c.world.send(c.compute, floats(sent), 1);
      else c.world.recv(c.compute, floats(received), 0);
    });
    EXPECT_EQ(failure.error,
              fmt::format("world: rank 1 called recv f32[{}] from rank 0 as message 1 while rank 0 called send f32[{}] to rank 1",
                          2 * n, n));
  }
}

TEST(CommunicatorFailure, TheWatchdogNamesWhoIsMissing) {
  const Failures failure = run_failing(4, 0.3, [&](RankContext& c) {
    std::vector<float> x(8);
    c.world.barrier();
    const auto sub = c.world.split(backwards(c.world), "tp");  // group order 3, 2, 1, 0: messages speak of global ranks
    if (c.world.rank() == 1 || c.world.rank() == 2) return;
    sub->all_reduce(c.compute, floats(x), ReduceOp::kSum);
  });
  expect_parts(failure.error, {"s in all_reduce #1 over tp: ranks 2, 1 have not arrived"});
  EXPECT_TRUE(failure.error.find("rank 0 waited 0.") == 0 || failure.error.find("rank 3 waited 0.") == 0) << failure.error;
}

TEST(CommunicatorFailure, TheWatchdogSeesQueueStreamsAndMessages) {
  std::vector<float> x(2000);
  const Failures queue = run_failing(2, 0.3, [&](RankContext& c) {
    if (c.world.rank() == 1) return;
    c.world.broadcast(*c.queues[0], floats(x), 0);
    c.queues[0]->synchronize();
  });
  expect_parts(queue.error, {"broadcast #1 over world: rank 1 has not arrived"});
  const Failures send = run_failing(2, 0.3, [&](RankContext& c) {
    if (c.world.rank() == 1) c.world.send(c.compute, floats(x), 0);
  });
  expect_parts(send.error, {"send #1 to rank 0 over world: rank 0 has not received it"});
  const Failures ring = run_failing(2, 0.3, [&](RankContext& c) {
    if (c.world.rank() == 0) return;
    const GroupScope group(c.world);
    c.world.send(c.compute, floats(x), 0);
    c.world.recv(c.compute, floats(x), 0);
  });
  expect_parts(ring.error, {"has not received it; recv #1 from rank 0 over world: rank 0 has not sent"});
}

TEST(CommunicatorFailure, AThrowingRankIsNamedToItsPeersAndRethrown) {
  const Failures failure = run_failing(4, 30, [&](RankContext& c) {
    std::vector<float> x(3000);
    c.world.all_reduce(c.compute, floats(x), ReduceOp::kSum);
    if (c.world.rank() == 2) throw DataError("corpus.bin: too short");
    c.world.all_reduce(c.compute, floats(x), ReduceOp::kSum);
  });
  EXPECT_EQ(failure.error, "corpus.bin: too short");
  for (const int rank : {0, 1, 3})
    EXPECT_EQ(failure.per_rank[static_cast<std::size_t>(rank)], "rank 2 failed: corpus.bin: too short");
}

TEST(CommunicatorFailure, AnExceptionOfUnknownTypeEndsTheWorldToo) {
  ThreadWorld world(2, 30);
  EXPECT_THROW(run_on_threads(world, [](RankContext& c) {
                 if (c.world.rank() == 1) throw 42;
                 c.world.barrier();
               }),
               int);
}

TEST(CommunicatorFailure, AbortReachesEveryGroup) {
  const Failures failure = run_failing(4, 30, [&](RankContext& c) {
    const auto pair = c.world.split(neighbours(c.world, 2), "pair");
    if (c.world.rank() == 0) pair->abort("stop requested");
    else pair->barrier();
    c.world.barrier();
  });
  EXPECT_EQ(failure.error, "stop requested");
  for (const std::string& error : failure.per_rank) EXPECT_EQ(error, "stop requested");
}

TEST(CommunicatorFailure, LeavingWithOperationsPendingIsAFailure) {
  std::vector<float> x(3000), y(3000);
  const Failures failure = run_failing(2, 30, [&](RankContext& c) {
    if (c.world.rank() == 0) {
      c.world.all_reduce(*c.queues[0], floats(x), ReduceOp::kSum);
      return;
    }
    c.world.recv(c.compute, floats(y), 0);
  });
  EXPECT_EQ(failure.error.find("rank 0 left with operations pending: all_reduce #1 over world"), 0u) << failure.error;
}

TEST(CommunicatorFailure, AGroupLeftByAnExceptionIssuesNothing) {
  launch_threads(2, [](RankContext& c) {
    std::vector<float> x(4, 1.0f);
    try {
      const GroupScope group(c.world);
      c.world.all_reduce(c.compute, floats(x), ReduceOp::kSum);
      throw ConfigError("no");
    } catch (const ConfigError&) {
    }
    c.world.all_reduce(c.compute, floats(x), ReduceOp::kSum);
    EXPECT_EQ(x[0], 2.0f);
  });
}

TEST(CommunicatorFailure, MisuseIsRefused) {
  launch_threads(1, [](RankContext& c) {
    std::vector<float> x(8);
    std::vector<std::uint8_t> bytes(8);
    const TensorView v = floats(x);
    EXPECT_THROW(c.world.all_reduce(c.compute, {bytes.data(), DType::kU8, {8}}, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_reduce(c.compute, {nullptr, DType::kF32, {8}}, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_reduce(c.compute, {x.data(), DType::kF32, {8}, MemoryKind::kDevice}, ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.broadcast(c.compute, v, 1), InternalError);
    EXPECT_THROW(c.world.send(c.compute, v, 0), InternalError);
    EXPECT_THROW(c.world.all_gather(c.compute, v, v.range(0, 4)), InternalError);
    EXPECT_THROW(c.world.reduce_scatter(c.compute, v.range(0, 4), v.range(1, 4), ReduceOp::kSum), InternalError);
    EXPECT_THROW(c.world.all_to_all(c.compute, v, v), InternalError);
    EXPECT_THROW(c.world.group_end(), InternalError);
    const GroupScope group(c.world);
    EXPECT_THROW(c.world.barrier(), InternalError);
    c.world.all_reduce(c.compute, v, ReduceOp::kSum);
    EXPECT_THROW(c.world.all_reduce(*c.queues[0], v, ReduceOp::kSum), InternalError);
  });
}

// A rank throws at a random moment; everything ends quickly, and the first cause is what the caller sees. Under AddressSanitizer
// this shows that nobody touches memory which a leaving rank has freed.
TEST(CommunicatorFailure, ARankThatThrowsAtARandomPointEndsAll) {
  for (int seed = 0; seed < 40; ++seed) {
    const int ranks = 2 + seed % 4, thrower = seed * 7 % ranks, at = seed * 13 % 30;
    const Failures failure = run_failing(ranks, 30, [&](RankContext& c) {
      for (int i = 0; i < 30; ++i) {
        std::vector<float> x(i % 4 == 0 ? 6000 : 20),
            y(x.size() * static_cast<std::size_t>(ranks));  // freed while peers may be busy
        if (c.world.rank() == thrower && i == at) throw std::runtime_error("planted");
        if (i % 3 == 0) c.world.all_gather(c.compute, floats(y), floats(x));
        else c.world.all_reduce(c.compute, floats(x), ReduceOp::kSum);
        if (i % 5 == 0) c.world.barrier();
      }
    });
    EXPECT_EQ(failure.error, "planted");
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(failure.per_rank[static_cast<std::size_t>(r)],
                r == thrower ? "planted" : fmt::format("rank {} failed: planted", thrower));
  }
}

// Who asks for a group must be in it, and its members in the group that is split. Nobody waits for anybody.
TEST(CommunicatorFailure, GroupsOfOthersAreRefused) {
  const Failures without_me = run_failing(3, 30, [](RankContext& c) {
    if (c.world.rank() == 1) (void)c.world.split(std::vector<int>{0, 2}, "others");
  });
  expect_parts(without_me.per_rank[1], {"rank 1 of world is not among the members of the group that it asks for"});
  for (const int stranger : {-1, 3}) {
    const Failures with_stranger = run_failing(3, 30, [&](RankContext& c) {
      if (c.world.rank() == 1) (void)c.world.split(std::vector<int>{1, stranger}, "strangers");
    });
    expect_parts(with_stranger.per_rank[1], {fmt::format("rank {} of 3 ranks in world", stranger)});
  }
}

// Blocks of groups live as long as the world, so somebody who splits again and again comes to the end of the region: an error, and
// nothing is written behind it.
TEST(CommunicatorFailure, MoreGroupsThanThereIsRoomFor) {
  for (const int ranks : {2, 5}) {
    const std::uint64_t room = SharedWorld::region_bytes(ranks), most = room / GroupBlock::bytes(ranks);
    std::atomic<std::uint64_t> splits{0};
    const Failures failure = run_failing(ranks, 30, [&](RankContext& c) {
      for (std::uint64_t i = 0; i < 2 * most; ++i) {
        const auto group = c.world.split(neighbours(c.world, c.world.size()), "again");
        if (c.world.rank() == 0) ++splits;
      }
    });
    expect_parts(failure.error, {fmt::format("control blocks of all groups exceed {} bytes", room)});
    EXPECT_LE(splits, most);
    EXPECT_GE(splits, most / 2);
    for (const std::string& error : failure.per_rank) EXPECT_NE(error, "");
  }
}

}  // namespace
}  // namespace trident::conformance
