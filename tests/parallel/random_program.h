// Random programs of interleaved operations over several communicators and streams, the same on every rank, checked by value.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/no_allocation.h"
#include "tests/parallel/rank_context.h"

namespace trident::conformance {

struct Expectation {
  Values buffer;
  std::function<double(std::int64_t)> value;
};

// The communicators of a rank: the world, its halves, and pairs across the halves.
struct Axes {
  explicit Axes(RankContext& c)
      : half(c.world.split(ranks_of_color(c.world, [&](int r) { return r * 2 / c.world.size(); }), "half")),
        comb(c.world.split(every_nth(c.world, 2), "comb")) {}
  std::unique_ptr<Communicator> half, comb;
};

// Global ranks of the group of `rank` that its communicator number `which` spans.
inline std::vector<int> members(int which, int rank, int ranks) {
  std::vector<int> result;
  for (int r = 0; r < ranks; ++r)
    if (which == 0 || (which == 1 && r * 2 / ranks == rank * 2 / ranks) || (which == 2 && r % 2 == rank % 2)) result.push_back(r);
  return result;
}

inline void issue(Communicator& communicator, Stream& stream, const std::vector<int>& group, int kind, std::int64_t count, int salt,
           std::deque<Expectation>& pending) {
  const int n = communicator.size(), rank = communicator.rank();
  const auto mine = [me = group[static_cast<std::size_t>(rank)], salt](std::int64_t i) { return value(me, i + salt); };
  const auto of = [group, salt](std::int64_t r, std::int64_t i) { return value(group[static_cast<std::size_t>(r)], i + salt); };
  const auto sum = [group, of](std::int64_t i) {
    double s = 0;
    for (std::size_t r = 0; r < group.size(); ++r) s += of(static_cast<std::int64_t>(r), i);
    return s;
  };
  switch (kind) {
    case 0: {
      Expectation& e = pending.emplace_back(Values(DType::kF32, count, mine), sum);
      return communicator.all_reduce(stream, e.buffer.view(), ReduceOp::kSum);
    }
    case 1: {
      Expectation& in = pending.emplace_back(Values(DType::kBF16, n * count, mine), nullptr);
      Expectation& out = pending.emplace_back(Values(DType::kBF16, count), [=](std::int64_t i) { return sum(rank * count + i); });
      return communicator.reduce_scatter(stream, out.buffer.view(), in.buffer.view(), ReduceOp::kSum);
    }
    case 2: {
      Expectation& in = pending.emplace_back(Values(DType::kI32, count, mine), nullptr);
      Expectation& out =
          pending.emplace_back(Values(DType::kI32, n * count), [=](std::int64_t i) { return of(i / count, i % count); });
      return communicator.all_gather(stream, out.buffer.view(), in.buffer.view());
    }
    case 3: {
      const int root = salt % n;
      Expectation& e = pending.emplace_back(Values(DType::kU8, count, mine), [=](std::int64_t i) { return of(root, i); });
      return communicator.broadcast(stream, e.buffer.view(), root);
    }
    default: {
      if (n == 1) return;
      const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
      Expectation& in = pending.emplace_back(Values(DType::kF64, count, mine), nullptr);
      Expectation& out = pending.emplace_back(Values(DType::kF64, count), [=](std::int64_t i) { return of(previous, i); });
      const GroupScope scope(communicator);
      communicator.send(stream, in.buffer.view(), next);
      communicator.recv(stream, out.buffer.view(), previous);
    }
  }
}

inline void run_program(const RankLauncher& launch, int ranks, unsigned seed) {
  launch(ranks, [&](RankContext& c) {
    std::deque<Expectation> pending;  // outlives the communicators below; a deque keeps its elements in place
    const Axes axes(c);
    const std::array<Communicator*, 3> communicators = {&c.world, axes.half.get(), axes.comb.get()};
    std::mt19937 random(seed);  // the same draws on every rank
    std::mt19937 delay(seed * 100 + static_cast<unsigned>(c.world.rank()));
    for (int step = 0; step < 120; ++step) {
      const int which = static_cast<int>(random() % 3), kind = static_cast<int>(random() % 5),
                salt = static_cast<int>(random() % 50);
      const std::int64_t count = std::array{0, 1, 100, 700, 3001}[random() % 5];
      Stream& stream = *c.streams()[random() % 3];
      issue(*communicators[static_cast<std::size_t>(which)], stream, members(which, c.world.rank(), ranks), kind, count, salt,
            pending);
      if (random() % 10 == 0) c.queues[0]->wait(c.queues[1]->record());
      if (random() % 15 == 0) communicators[static_cast<std::size_t>(which)]->barrier();
      if (delay() % 8 == 0) std::this_thread::yield();
    }
    for (Stream* stream : c.streams()) stream->synchronize();
    for (const Expectation& e : pending)
      if (e.value) expect_values(e.buffer, e.value, "seed " + std::to_string(seed));
  });
}

// Operations of every kind, where from the second round on nothing may allocate.
inline void run_without_allocating(RankContext& c) {
  const int n = c.world.size(), next = (c.world.rank() + 1) % n, previous = (c.world.rank() + n - 1) % n;
  Values big(DType::kF32, n * 2000), slice(DType::kF32, 2000), other(DType::kF32, n * 2000);
  const auto round = [&] {
    for (Stream* stream : c.streams()) {
      c.world.all_reduce(*stream, big.view(), ReduceOp::kMax);
      c.world.reduce_scatter(*stream, slice.view(), big.view(), ReduceOp::kMax);
      c.world.all_gather(*stream, big.view(), slice.view());
      c.world.broadcast(*stream, big.view(), 1);
      c.world.all_to_all(*stream, other.view(), big.view());
      {
        const GroupScope group(c.world);
        for (int i = 0; i < 6; ++i) {
          c.world.send(*stream, big.range(500 * i, 500), next);
          c.world.recv(*stream, other.range(500 * i, 500), previous);
        }
      }
      stream->synchronize();
      c.world.barrier();
    }
  };
  round();
  const NoAllocationScope none("the test");
  round();
}

// More operations than a communicator keeps, none awaited: issuing waits for the oldest.
inline void queue_many(RankContext& c, std::int64_t elements, int rounds) {
  Values x(DType::kF32, elements, [](auto) { return 1.0; }), y(DType::kF32, elements * c.world.size());
  for (int i = 0; i < rounds; ++i) {
    c.world.all_gather(*c.queues[0], y.view(), x.view());
    c.world.reduce_scatter(*c.queues[0], x.view(), y.view(), ReduceOp::kMax);
  }
  c.queues[0]->synchronize();
  expect_values(x, [](auto) { return 1.0; }, "after all operations");
}

// `arrived` counts the ranks that came to a barrier, on whatever cores there are.
inline void meet_and_sum(RankContext& c, std::atomic<int>& arrived, int rounds, std::int64_t elements) {
  const int ranks = c.world.size();
  for (int round = 1; round <= rounds; ++round) {
    ++arrived;
    c.world.barrier();
    EXPECT_GE(arrived.load(), ranks * round);
    c.world.barrier();
  }
  Values x(DType::kI32, elements, [&](auto i) { return value(c.world.rank(), i); });
  c.world.all_reduce(c.compute, x.view(), ReduceOp::kSum);
  expect_values(x, [&](auto i) { return reduced(ReduceOp::kSum, ranks, i); }, "many ranks");
}

}  // namespace trident::conformance
