// When instructions on streams run: against times worked out by hand, and against what must hold of any graph.
#include "tests/contracts/instruction_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/check.h"

namespace trident {
namespace {

TEST(InstructionGraph, AStreamRunsOneInstructionAtATime) {
  InstructionGraph graph;
  const int stream = graph.add_stream(0, StreamKind::kCompute);
  for (const double seconds : {1.0, 2.0, 0.0, 3.0}) graph.add_instruction(stream, seconds);
  const SimulatedTimes times = simulate(graph);
  EXPECT_EQ(times.start, (std::vector<double>{0, 1, 3, 3}));
  EXPECT_EQ(times.end, (std::vector<double>{1, 3, 3, 6}));
}

TEST(InstructionGraph, ADependencyWaitsForItsLag) {
  InstructionGraph graph;
  const int a = graph.add_stream(0, StreamKind::kCompute), b = graph.add_stream(1, StreamKind::kCompute);
  const int first = graph.add_instruction(a, 2), second = graph.add_instruction(a, 5);
  const int other = graph.add_instruction(b, 1), both = graph.add_instruction(b, 1);
  graph.add_dependency(first, other, 0.5);
  graph.add_dependency(second, both);
  const SimulatedTimes times = simulate(graph);
  EXPECT_EQ(times.start[static_cast<std::size_t>(other)], 2.5);
  EXPECT_EQ(times.start[static_cast<std::size_t>(both)], 7);  // not at 3.5, when its stream is free
}

// Rank 0: 4 s of compute beside 2 s of communication that starts with it; compute takes 1.5 times, communication 2 times as long
// while both run. Communication ends at 4 with 4/1.5 s of compute done; the rest runs alone: 4 + 4/3.
TEST(InstructionGraph, OverlapSlowsBothSidesWhileItLasts) {
  InstructionGraph graph;
  const int compute = graph.add_stream(0, StreamKind::kCompute), send = graph.add_stream(0, StreamKind::kCommunication);
  const int product = graph.add_instruction(compute, 4), message = graph.add_instruction(send, 2);
  const int elsewhere = graph.add_instruction(graph.add_stream(1, StreamKind::kCommunication), 2);
  const SimulatedTimes times = simulate(graph, {1.5, 2});
  EXPECT_DOUBLE_EQ(times.end[static_cast<std::size_t>(message)], 4);
  EXPECT_DOUBLE_EQ(times.end[static_cast<std::size_t>(product)], 4 + 4.0 / 3);
  EXPECT_EQ(times.end[static_cast<std::size_t>(elsewhere)], 2) << "another rank's communication is its own affair";
}

// A message that starts in the middle of a product: 3 s alone, then both slower.
TEST(InstructionGraph, OverlapBeginsInTheMiddle) {
  InstructionGraph graph;
  const int compute = graph.add_stream(0, StreamKind::kCompute), send = graph.add_stream(0, StreamKind::kCommunication);
  const int peer = graph.add_instruction(graph.add_stream(1, StreamKind::kCompute), 3);
  const int product = graph.add_instruction(compute, 5), message = graph.add_instruction(send, 10);
  graph.add_dependency(peer, message);
  const SimulatedTimes times = simulate(graph, {2, 4});
  EXPECT_DOUBLE_EQ(times.end[static_cast<std::size_t>(product)], 7);          // 3 + 2 * 2
  EXPECT_DOUBLE_EQ(times.end[static_cast<std::size_t>(message)], 3 + 4 + 9);  // of its 10 s, 1 s in the 4 s of overlap
}

TEST(InstructionGraph, WhatWaitsForItselfIsABug) {
  InstructionGraph graph;
  const int a = graph.add_instruction(graph.add_stream(0, StreamKind::kCompute), 1);
  const int b = graph.add_instruction(graph.add_stream(1, StreamKind::kCompute), 1);
  graph.add_dependency(a, b);
  graph.add_dependency(b, a);
  EXPECT_THROW(simulate(graph), InternalError);
  EXPECT_THROW(graph.add_dependency(0, 2), InternalError);
  EXPECT_THROW(graph.add_instruction(2, 1), InternalError);
  EXPECT_THROW(graph.add_instruction(0, -1), InternalError);
}

// Random graphs: nothing overlaps on a stream, nothing starts before its dependencies, nothing starts later than it must.
TEST(InstructionGraph, StartsAreTheEarliestPossible) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    InstructionGraph graph;
    const int streams = 1 + static_cast<int>(random() % 6), n = 1 + static_cast<int>(random() % 60);
    for (int s = 0; s < streams; ++s) graph.add_stream(s / 2, s % 2 ? StreamKind::kCommunication : StreamKind::kCompute);
    std::vector<int> previous_of(static_cast<std::size_t>(n), -1), last(static_cast<std::size_t>(streams), -1);
    for (int i = 0; i < n; ++i) {
      const auto s = random() % static_cast<unsigned>(streams);
      graph.add_instruction(static_cast<int>(s), static_cast<double>(random() % 5));
      previous_of[static_cast<std::size_t>(i)] = std::exchange(last[s], i);
    }
    for (int i = 1; i < n; ++i)
      if (random() % 2) graph.add_dependency(static_cast<int>(random() % static_cast<unsigned>(i)), i, random() % 3);
    const SimulatedTimes times = simulate(graph);
    std::vector<double> earliest(static_cast<std::size_t>(n), 0);
    for (const auto& d : graph.dependencies())
      earliest[static_cast<std::size_t>(d.after)] =
          std::max(earliest[static_cast<std::size_t>(d.after)], times.end[static_cast<std::size_t>(d.before)] + d.lag);
    for (std::size_t i = 0; i < earliest.size(); ++i) {
      const int previous = previous_of[i];
      const double free = previous < 0 ? 0 : times.end[static_cast<std::size_t>(previous)];
      ASSERT_EQ(times.start[i], std::max(free, earliest[i])) << "round " << round << ", instruction " << i;
      ASSERT_EQ(times.end[i], times.start[i] + graph.instructions()[i].seconds);
    }
  }
}

}  // namespace
}  // namespace trident
