// Tests what every communicator must do: one suite, instantiated once per transport.
//
// Data are small integers, exact in every dtype, so results are compared for equality. A transport adds a RankLauncher and
// INSTANTIATE_TEST_SUITE_P(name, CommunicatorConformance, ...); this header is included by one file per test executable.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/parallel/rank_context.h"

namespace trident::conformance {

struct Case {
  RankLauncher launch;
  int ranks;
  std::vector<int> nodes{};  // of every rank, if their sums are taken node by node
  enum class Sums : std::uint8_t { kInRankOrder, kInSomeOrder } sums = Sums::kInRankOrder;
  // Where all would take too long, only every n-th combination of dtype, count and stream runs, from `first` on.
  int every = 1, first = 0;
  // Longer operands are left out, or cut where a test has one length only: those of one rank, and those that hold a part of each.
  std::int64_t most_elements = 1 << 20, most_of_all_ranks = std::int64_t{1} << 40;
  int most_repetitions = 100;  // of tests that do the same many times
};

// The largest operand of an operation holds this.
enum class Holds : std::uint8_t { kOneRanks, kAllRanks };

inline constexpr std::array kReducible = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI64, DType::kI32};
inline constexpr std::array kMovable = {DType::kF32, DType::kBF16, DType::kU8, DType::kI64};
// Empty, one, odd, about the size of operands that travel inside a post, and large enough to be cut into blocks.
inline constexpr std::array<std::int64_t, 7> kCounts = {0, 1, 7, 1023, 1024, 2049, 20011};

inline std::string label(const char* what, DType dtype, std::int64_t count, const Stream& stream) {
  return std::string(what) + " " + std::string(to_string(dtype)) + "[" + std::to_string(count) + "] on " +
         std::string(stream.name());
}

inline void PrintTo(const Case& one, std::ostream* out) { *out << one.ranks << " ranks"; }

// All ranks of a world, or of a large one the first two, the last two and some between.
inline std::vector<int> some_ranks(int n) {
  constexpr int kMost = 16;
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r)
    if (n <= kMost || r < 2 || r >= n - 2 || r % (n / 4) == 1) ranks.push_back(r);
  return ranks;
}

inline float rounded_to(DType dtype, float x) {
  return dtype == DType::kBF16 ? to_float(to_bf16(x)) : dtype == DType::kF16 ? to_float(to_f16(x)) : x;
}

// Values have very different sizes, so that the order of additions shows.
inline float random_summand(DType dtype, int rank, std::int64_t i) {
  const auto u = static_cast<std::uint32_t>(rank * 7919 + i * 104729 + 12345) * 2654435761u;
  return rounded_to(dtype, (static_cast<float>(u >> 8) / 16777216.0f - 0.5f) * static_cast<float>(1 << (u % 13)));
}

// The sum of the ranks' element `i`, taken over each node's ranks and then over the nodes. `nodes`: of every rank.
inline double rank_order_sum(DType dtype, const std::vector<int>& nodes, std::int64_t i) {
  std::vector<float> sums;  // of the nodes
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    const float x = random_summand(dtype, static_cast<int>(r), i);
    if (nodes[r] == static_cast<int>(sums.size())) sums.push_back(x);
    else sums[static_cast<std::size_t>(nodes[r])] += x;
  }
  float sum = rounded_to(dtype, sums[0]);
  for (std::size_t node = 1; node < sums.size(); ++node) sum += rounded_to(dtype, sums[node]);
  return static_cast<double>(rounded_to(dtype, sum));
}

class CommunicatorConformance : public ::testing::TestWithParam<Case> {
 protected:
  int ranks() const { return GetParam().ranks; }
  void run(const std::function<void(RankContext&)>& body) const { GetParam().launch(ranks(), body); }

  // One of so many combinations runs. Sanitizers, under which all would take minutes, see every fifth on more than two ranks: every
  // dtype, count and stream is still among them, as 5 divides none of their numbers.
  int every() const {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (ranks() > 2) return std::max(GetParam().every, 5);
#endif
    return GetParam().every;
  }

  // The length of an operand that is not among kCounts.
  std::int64_t at_most(std::int64_t count) const { return std::min(count, GetParam().most_elements); }
  int repetitions(int wanted) const { return std::min(wanted, GetParam().most_repetitions); }

  // Calls body(dtype, count, stream) for every combination.
  template <class DTypes, class F> void for_each_combination(RankContext& c, Holds largest, const DTypes& dtypes, F body) const {
    const int step = every(), first = GetParam().first;
    const std::int64_t parts = largest == Holds::kAllRanks ? ranks() : 1;
    int number = 0;
    for (const DType dtype : dtypes)
      for (const std::int64_t count : kCounts)
        for (Stream* stream : c.streams())
          if (++number > first && (number - 1 - first) % step == 0 && count <= GetParam().most_elements &&
              count * parts <= GetParam().most_of_all_ranks)
            body(dtype, count, *stream);
  }
};

TEST_P(CommunicatorConformance, KnowsItsPlace) {
  run([&](RankContext& c) {
    EXPECT_EQ(c.world.size(), ranks());
    EXPECT_GE(c.world.rank(), 0);
    EXPECT_LT(c.world.rank(), ranks());
  });
}

TEST_P(CommunicatorConformance, AllReduce) {
  run([&](RankContext& c) {
    for_each_combination(c, Holds::kOneRanks, kReducible, [&](DType dtype, std::int64_t count, Stream& stream) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        Values x(dtype, count, [&](auto i) { return summand(c.world.rank(), i); });
        c.world.all_reduce(stream, x.view(), op);
        stream.synchronize();
        expect_values(x, [&](auto i) { return reduced(op, ranks(), i, summand); }, label("all_reduce", dtype, count, stream));
      }
    });
  });
}

TEST_P(CommunicatorConformance, ReduceScatterApartAndInPlace) {
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank();
    for_each_combination(c, Holds::kAllRanks, kReducible, [&](DType dtype, std::int64_t count, Stream& stream) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        const auto mine = [&](auto i) { return summand(rank, i); };
        const auto expected = [&](auto i) { return reduced(op, n, rank * count + i, summand); };
        Values in(dtype, n * count, mine), out(dtype, count);
        c.world.reduce_scatter(stream, out.view(), in.view(), op);
        stream.synchronize();
        expect_values(out, expected, label("reduce_scatter", dtype, count, stream));
        expect_values(in, mine, label("input of reduce_scatter", dtype, count, stream));
        c.world.reduce_scatter(stream, in.range(rank * count, count), in.view(), op);
        stream.synchronize();
        const auto half_reduced = [&](auto i) {
          return i / std::max<std::int64_t>(count, 1) == rank ? reduced(op, n, i, summand) : mine(i);
        };
        expect_values(in, half_reduced,
                      label("reduce_scatter in place", dtype, count, stream));
      }
    });
  });
}

TEST_P(CommunicatorConformance, AllGatherApartAndInPlace) {
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank();
    for_each_combination(c, Holds::kAllRanks, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
      const auto expected = [&](auto i) { return value(static_cast<int>(i / count), i % count); };
      Values in(dtype, count, [&](auto i) { return value(rank, i); }), out(dtype, n * count), both(dtype, n * count);
      c.world.all_gather(stream, out.view(), in.view());
      for (std::int64_t i = 0; i < count; ++i) both.set(rank * count + i, value(rank, i));
      c.world.all_gather(stream, both.view(), both.range(rank * count, count));
      stream.synchronize();
      expect_values(out, expected, label("all_gather", dtype, count, stream));
      expect_values(both, expected, label("all_gather in place", dtype, count, stream));
    });
  });
}

TEST_P(CommunicatorConformance, BroadcastFromEveryRoot) {
  run([&](RankContext& c) {
    for_each_combination(c, Holds::kOneRanks, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
      for (const int root : some_ranks(c.world.size())) {
        Values x(dtype, count, [&](auto i) { return value(c.world.rank(), i); });
        c.world.broadcast(stream, x.view(), root);
        stream.synchronize();
        expect_values(x, [&](auto i) { return value(root, i); }, label("broadcast", dtype, count, stream));
      }
    });
  });
}

TEST_P(CommunicatorConformance, AllToAll) {
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank();
    for_each_combination(c, Holds::kAllRanks, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
      Values in(dtype, n * count, [&](auto i) { return value(rank, i); }), out(dtype, n * count);
      c.world.all_to_all(stream, out.view(), in.view());
      stream.synchronize();
      expect_values(out, [&](auto i) { return value(static_cast<int>(i / count), rank * count + i % count); },
                    label("all_to_all", dtype, count, stream));
    });
  });
}

TEST_P(CommunicatorConformance, RingInAGroupInEitherOrder) {
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank(), next = (rank + 1) % n, previous = (rank + n - 1) % n;
    if (n == 1) return;
    for_each_combination(c, Holds::kOneRanks, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
      for (const bool send_first : {true, false}) {
        Values in(dtype, count, [&](auto i) { return value(rank, i); }), out(dtype, count);
        {
          const GroupScope group(c.world);
          if (send_first) c.world.send(stream, in.view(), next);
          c.world.recv(stream, out.view(), previous);
          if (!send_first) c.world.send(stream, in.view(), next);
        }
        stream.synchronize();
        expect_values(out, [&](auto i) { return value(previous, i); }, label("ring", dtype, count, stream));
      }
    });
  });
}

// Every rank sends to every other (of many: to some), more messages than a transport is likely to keep in flight, and they arrive
// in order: one after another; and all of a pair at once, long ones among them, of which a transport may hold only a part.
TEST_P(CommunicatorConformance, MessagesKeepTheirOrder) {
  const int messages = repetitions(11);
  const auto content = [](int from, int k, std::int64_t i) { return from * 1000 + k * 50 + static_cast<int>(i); };
  for (const std::int64_t longest : {std::int64_t{0}, at_most(5000)})
    run([&](RankContext& c) {
      const int n = c.world.size(), rank = c.world.rank();
      const auto count = [&](int k) { return longest > 0 && k % 3 == 0 ? longest + k : 33 + k; };
      const std::vector<int> distances = some_ranks(n);  // 0 is the rank itself
      const auto at = [&](std::size_t d, int k) { return d * static_cast<std::size_t>(messages) + static_cast<std::size_t>(k); };
      std::vector<Values> in, out;
      for (const int distance : distances)
        for (int k = 0; k < messages; ++k) {
          in.emplace_back(DType::kI32, count(k), [&](auto i) { return content(rank, k, i + distance); });
          out.emplace_back(DType::kI32, count(k));
        }
      const auto send = [&](std::size_t d, int k, Stream& stream) {
        c.world.send(stream, in[at(d, k)].view(), (rank + distances[d]) % n);
      };
      const auto recv = [&](std::size_t d, int k, Stream& stream) {
        c.world.recv(stream, out[at(d, k)].view(), (rank + n - distances[d]) % n);
      };
      for (std::size_t d = 1; d < distances.size(); ++d) {
        std::optional<GroupScope> at_once;
        if (longest > 0) at_once.emplace(c.world);
        for (int k = 0; k < messages; ++k) {
          send(d, k, *c.queues[0]);
          recv(d, k, *c.queues[longest > 0 ? 0 : 1]);
        }
      }
      c.queues[0]->synchronize();
      c.queues[1]->synchronize();
      for (std::size_t d = 1; d < distances.size(); ++d)
        for (int k = 0; k < messages; ++k)
          expect_values(out[at(d, k)],
                        [&](auto i) { return content((rank + n - distances[d]) % n, k, i + distances[d]); },
                        "message " + std::to_string(k) + " from " + std::to_string(distances[d]) + " ranks before");
    });
}

// One communicator on two queue streams and the compute stream; only the order of issue is common.
TEST_P(CommunicatorConformance, StreamsMayShareACommunicator) {
  const int operations = repetitions(40);
  run([&](RankContext& c) {
    const int rank = c.world.rank();
    std::vector<Values> x;
    for (int k = 0; k < operations; ++k)
      x.emplace_back(DType::kF32, k % 3 == 0 ? at_most(5000) : 10, [&](auto i) { return value(rank, i + k); });
    for (int k = 0; k < operations; ++k)
      c.world.all_reduce(*c.streams()[static_cast<std::size_t>(k * 7 % 5 % 3)], x[static_cast<std::size_t>(k)].view(),
                         ReduceOp::kSum);
    for (Stream* stream : c.streams()) stream->synchronize();
    for (int k = 0; k < operations; ++k)
      expect_values(x[static_cast<std::size_t>(k)], [&](auto i) { return reduced(ReduceOp::kSum, ranks(), i + k); }, "all_reduce");
  });
}

TEST_P(CommunicatorConformance, EventsOrderStreams) {
  run([&](RankContext& c) {
    Values x(DType::kF32, at_most(9000), [&](auto i) { return value(c.world.rank(), i); });
    c.world.all_reduce(*c.queues[0], x.view(), ReduceOp::kMax);
    c.queues[1]->wait(c.queues[0]->record());
    c.world.broadcast(*c.queues[1], x.view(), 0);
    c.compute.wait(c.queues[1]->record());
    c.compute.synchronize();
    expect_values(x, [&](auto i) { return reduced(ReduceOp::kMax, ranks(), i); }, "after the event");
  });
}

TEST_P(CommunicatorConformance, CollectivesInAGroup) {
  run([&](RankContext& c) {
    const int rank = c.world.rank();
    for (Stream* stream : c.streams()) {
      Values a(DType::kF32, at_most(3000), [&](auto i) { return value(rank, i); }),
          b(DType::kI64, 3, [&](auto i) { return value(rank, i); });
      {
        const GroupScope outer(c.world);
        c.world.all_reduce(*stream, a.view(), ReduceOp::kSum);
        const GroupScope inner(c.world);
        c.world.all_reduce(*stream, b.view(), ReduceOp::kMax);
      }
      stream->synchronize();
      expect_values(a, [&](auto i) { return reduced(ReduceOp::kSum, ranks(), i); }, "first of a group");
      expect_values(b, [&](auto i) { return reduced(ReduceOp::kMax, ranks(), i); }, "second of a group");
    }
  });
}

// Colors interleave and keys reverse the order; the parent and both generations of children stay usable together.
TEST_P(CommunicatorConformance, SplitByColorAndKey) {
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank(), color = rank % 2;
    const auto half = c.world.split(ranks_of_color(c.world, [](int r) { return r % 2; }, Order::kBackward), "half");
    const int members = (n - color + 1) / 2;
    ASSERT_EQ(half->size(), members);
    EXPECT_EQ(half->name(), "half");
    EXPECT_EQ(half->rank(), members - 1 - rank / 2);
    const auto alone = half->split(neighbours(*half, 1), "alone");
    EXPECT_EQ(alone->size(), 1);
    for (const std::int64_t count : {std::int64_t{3}, at_most(3000)}) {
      Values x(DType::kF32, count, [&](auto i) { return value(rank, i); }), y = x, z = x;
      c.world.all_reduce(*c.queues[0], y.view(), ReduceOp::kSum);
      half->all_reduce(c.compute, x.view(), ReduceOp::kSum);
      alone->all_reduce(c.compute, z.view(), ReduceOp::kSum);
      c.queues[0]->synchronize();
      c.compute.synchronize();
      const auto expected = [&](auto i) {
        double sum = 0;
        for (int r = color; r < n; r += 2) sum += value(r, i);
        return sum;
      };
      expect_values(x, expected, "half");
      expect_values(y, [&](auto i) { return reduced(ReduceOp::kSum, n, i); }, "world");
      expect_values(z, [&](auto i) { return value(rank, i); }, "alone");
    }
  });
}

// Sums in rank order, f32 accumulation and one rounding: the bits of the plain loop, on every rank. Ranks of several nodes: the
// bits of that loop over each node's ranks and then over the nodes.
TEST_P(CommunicatorConformance, SumsHaveTheBitsOfTheRankOrderLoop) {
  if (GetParam().sums == Case::Sums::kInSomeOrder) GTEST_SKIP() << "this transport's library adds in an order of its own";
  struct Sums {
    DType dtype;
    std::int64_t count;  // of a rank's part
    std::vector<double> values;
  };
  const int n = ranks();
  const std::vector<int> nodes = GetParam().nodes.empty() ? std::vector<int>(static_cast<std::size_t>(n)) : GetParam().nodes;
  // Once, and not on every rank: over hundreds of ranks these are millions of additions.
  std::vector<Sums> expected;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const std::int64_t wanted : n <= 16 ? std::array<std::int64_t, 2>{99, 4099} : std::array<std::int64_t, 2>{3, 67}) {
      const std::int64_t count = std::min(wanted, GetParam().most_of_all_ranks / n);
      Sums& sums = expected.emplace_back(Sums{dtype, count, {}});
      for (std::int64_t i = 0; i < n * count; ++i) sums.values.push_back(rank_order_sum(dtype, nodes, i));
    }
  run([&](RankContext& c) {
    const int rank = c.world.rank();
    for (const Sums& sums : expected) {
      const DType dtype = sums.dtype;
      const std::int64_t count = sums.count;
      const auto sum = [&](std::int64_t i) { return sums.values[static_cast<std::size_t>(i)]; };
      Values whole(dtype, n * count, [&](auto i) { return random_summand(dtype, rank, i); }), slice(dtype, count);
      c.world.reduce_scatter(c.compute, slice.view(), whole.view(), ReduceOp::kSum);
      c.compute.synchronize();
      expect_values(slice, [&](auto i) { return sum(rank * count + i); }, "reduce_scatter");
      c.world.all_reduce(c.compute, whole.view(), ReduceOp::kSum);
      c.compute.synchronize();
      expect_values(whole, sum, "all_reduce");
    }
  });
}

TEST_P(CommunicatorConformance, BarriersAndTinyCollectivesStayInStep) {
  run([&](RankContext& c) {
    Values mine(DType::kI64, 1), seen(DType::kI64, c.world.size());
    for (int round = 1; round <= repetitions(20); ++round) {
      c.world.barrier();
      mine.set(0, round);
      c.world.all_gather(c.compute, seen.view(), mine.view());
      c.compute.synchronize();
      expect_values(seen, [&](auto) { return round; }, "all_gather between barriers");
    }
  });
}

}  // namespace trident::conformance
