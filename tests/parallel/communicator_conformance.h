// What every communicator must do: one suite, instantiated once per transport.
//
// Data are small integers, exact in every dtype, so results are compared for equality. A transport adds a RankLauncher and
// INSTANTIATE_TEST_SUITE_P(name, CommunicatorConformance, ...); this header is included by one file per test executable.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/parallel/rank_context.h"

namespace trident::conformance {

struct Case {
  RankLauncher launch;
  int ranks;
  std::vector<int> nodes{};  // of every rank, if their sums are taken node by node
  enum class Sums : std::uint8_t { kInRankOrder, kInSomeOrder } sums = Sums::kInRankOrder;
  int every = 1;  // of the combinations of dtype, count and stream only every n-th, where all would take too long
};

inline constexpr std::array kReducible = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI64, DType::kI32};
inline constexpr std::array kMovable = {DType::kF32, DType::kBF16, DType::kU8, DType::kI64};
// Empty, one, odd, about the size of operands that travel inside a post, and large enough to be cut into blocks.
inline constexpr std::array<std::int64_t, 7> kCounts = {0, 1, 7, 1023, 1024, 2049, 20011};

inline std::string label(const char* what, DType dtype, std::int64_t count, const Stream& stream) {
  return std::string(what) + " " + std::string(to_string(dtype)) + "[" + std::to_string(count) + "] on " +
         std::string(stream.name());
}

class CommunicatorConformance : public testing::TestWithParam<Case> {
 protected:
  int ranks() const { return GetParam().ranks; }
  void run(const std::function<void(RankContext&)>& body) const { GetParam().launch(ranks(), body); }

  // Calls body(dtype, count, stream) for every combination.
  template <class DTypes, class F> void for_each_combination(RankContext& c, const DTypes& dtypes, F body) const {
    int number = 0;
    for (const DType dtype : dtypes)
      for (const std::int64_t count : kCounts)
        for (Stream* stream : c.streams())
          if (number++ % GetParam().every == 0) body(dtype, count, *stream);
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
    for_each_combination(c, kReducible, [&](DType dtype, std::int64_t count, Stream& stream) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        Values x(dtype, count, [&](auto i) { return value(c.world.rank(), i); });
        c.world.all_reduce(stream, x.view(), op);
        stream.synchronize();
        expect_values(x, [&](auto i) { return reduced(op, ranks(), i); }, label("all_reduce", dtype, count, stream));
      }
    });
  });
}

TEST_P(CommunicatorConformance, ReduceScatterApartAndInPlace) {
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank();
    for_each_combination(c, kReducible, [&](DType dtype, std::int64_t count, Stream& stream) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        const auto mine = [&](auto i) { return value(rank, i); };
        const auto expected = [&](auto i) { return reduced(op, n, rank * count + i); };
        Values in(dtype, n * count, mine), out(dtype, count);
        c.world.reduce_scatter(stream, out.view(), in.view(), op);
        stream.synchronize();
        expect_values(out, expected, label("reduce_scatter", dtype, count, stream));
        expect_values(in, mine, label("input of reduce_scatter", dtype, count, stream));
        c.world.reduce_scatter(stream, in.range(rank * count, count), in.view(), op);
        stream.synchronize();
        expect_values(in, [&](auto i) { return i / std::max<std::int64_t>(count, 1) == rank ? reduced(op, n, i) : mine(i); },
                      label("reduce_scatter in place", dtype, count, stream));
      }
    });
  });
}

TEST_P(CommunicatorConformance, AllGatherApartAndInPlace) {
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank();
    for_each_combination(c, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
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
    for_each_combination(c, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
      for (int root = 0; root < c.world.size(); ++root) {
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
    for_each_combination(c, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
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
    for_each_combination(c, kMovable, [&](DType dtype, std::int64_t count, Stream& stream) {
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

// Every rank sends to every other, more messages than a transport is likely to keep in flight, and they arrive in order.
TEST_P(CommunicatorConformance, MessagesKeepTheirOrder) {
  constexpr int kMessages = 11;
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank();
    std::vector<Values> in, out;
    for (int k = 0; k < kMessages * n; ++k) {
      in.emplace_back(DType::kI32, 33 + k % kMessages,
                      [&](auto i) { return rank * 1000 + k % kMessages * 50 + static_cast<int>(i); });
      out.emplace_back(DType::kI32, 33 + k % kMessages);
    }
    for (int k = 0; k < kMessages * n; ++k)
      if (k / kMessages != rank) c.world.send(*c.queues[0], in[static_cast<std::size_t>(k)].view(), k / kMessages);
    for (int k = kMessages * n - 1; k >= 0; --k)  // peers in the other direction; messages of a peer in order
      if (const int peer = k / kMessages; peer != rank)
        c.world.recv(*c.queues[1], out[static_cast<std::size_t>(peer * kMessages + kMessages - 1 - k % kMessages)].view(), peer);
    c.queues[0]->synchronize();
    c.queues[1]->synchronize();
    for (int k = 0; k < kMessages * n; ++k)
      if (k / kMessages != rank)
        expect_values(out[static_cast<std::size_t>(k)],
                      [&](auto i) { return k / kMessages * 1000 + k % kMessages * 50 + static_cast<int>(i); }, "message");
  });
}

// One communicator on two queue streams and the compute stream; only the order of issue is common.
TEST_P(CommunicatorConformance, StreamsMayShareACommunicator) {
  constexpr int kOperations = 40;
  run([&](RankContext& c) {
    const int rank = c.world.rank();
    std::vector<Values> x;
    for (int k = 0; k < kOperations; ++k)
      x.emplace_back(DType::kF32, k % 3 == 0 ? 5000 : 10, [&](auto i) { return value(rank, i + k); });
    for (int k = 0; k < kOperations; ++k)
      c.world.all_reduce(*c.streams()[static_cast<std::size_t>(k * 7 % 5 % 3)], x[static_cast<std::size_t>(k)].view(),
                         ReduceOp::kSum);
    for (Stream* stream : c.streams()) stream->synchronize();
    for (int k = 0; k < kOperations; ++k)
      expect_values(x[static_cast<std::size_t>(k)], [&](auto i) { return reduced(ReduceOp::kSum, ranks(), i + k); }, "all_reduce");
  });
}

TEST_P(CommunicatorConformance, EventsOrderStreams) {
  run([&](RankContext& c) {
    Values x(DType::kF32, 9000, [&](auto i) { return value(c.world.rank(), i); });
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
      Values a(DType::kF32, 3000, [&](auto i) { return value(rank, i); }),
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
    for (const std::int64_t count : {3, 3000}) {
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
  const auto random = [](int rank, std::int64_t i) {
    const auto u = static_cast<std::uint32_t>(rank * 7919 + i * 104729 + 12345) * 2654435761u;
    return (static_cast<float>(u >> 8) / 16777216.0f - 0.5f) * static_cast<float>(1 << (u % 13));
  };
  if (GetParam().sums == Case::Sums::kInSomeOrder) GTEST_SKIP() << "this transport's library adds in an order of its own";
  run([&](RankContext& c) {
    const int n = c.world.size(), rank = c.world.rank();
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const std::int64_t count : {99, 4099}) {
        const auto rounded = [&](float x) {
          return dtype == DType::kBF16 ? to_float(to_bf16(x)) : dtype == DType::kF16 ? to_float(to_f16(x)) : x;
        };
        const auto element = [&](int r, std::int64_t i) {
          return rounded(random(r, i));
        };
        const std::vector<int> nodes = GetParam().nodes.empty() ? std::vector<int>(static_cast<std::size_t>(n)) : GetParam().nodes;
        const auto expected = [&](std::int64_t i) {
          std::vector<float> sums;  // of the nodes
          for (int r = 0; r < n; ++r) {
            const int node = nodes[static_cast<std::size_t>(r)];
            if (node == static_cast<int>(sums.size())) sums.push_back(element(r, i));
            else sums[static_cast<std::size_t>(node)] += element(r, i);
          }
          float sum = rounded(sums[0]);
          for (std::size_t node = 1; node < sums.size(); ++node) sum += rounded(sums[node]);
          return static_cast<double>(rounded(sum));
        };
        Values whole(dtype, n * count, [&](auto i) { return element(rank, i); }), slice(dtype, count);
        c.world.reduce_scatter(c.compute, slice.view(), whole.view(), ReduceOp::kSum);
        c.compute.synchronize();
        expect_values(slice, [&](auto i) { return expected(rank * count + i); }, "reduce_scatter");
        c.world.all_reduce(c.compute, whole.view(), ReduceOp::kSum);
        c.compute.synchronize();
        expect_values(whole, expected, "all_reduce");
      }
  });
}

TEST_P(CommunicatorConformance, BarriersAndTinyCollectivesStayInStep) {
  run([&](RankContext& c) {
    Values mine(DType::kI64, 1), seen(DType::kI64, c.world.size());
    for (int round = 1; round <= 20; ++round) {
      c.world.barrier();
      mine.set(0, round);
      c.world.all_gather(c.compute, seen.view(), mine.view());
      c.compute.synchronize();
      expect_values(seen, [&](auto) { return round; }, "all_gather between barriers");
    }
  });
}

}  // namespace trident::conformance
