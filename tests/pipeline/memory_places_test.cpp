// Places in a region: nothing that lives at one time overlaps, and how much more than the most alive is taken.
#include "pipeline/schedule/memory_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <span>

#include "core/check.h"

namespace trident {
namespace {

using Lifetimes = std::vector<Lifetime>;

bool at_one_time(const Lifetime& a, const Lifetime& b) { return a.begin <= b.end && b.begin <= a.end; }

void expect_valid(const Lifetimes& lifetimes, const Places& places) {
  ASSERT_EQ(places.offsets.size(), lifetimes.size());
  std::int64_t end = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const std::int64_t begin = places.offsets[i];
    ASSERT_GE(begin, 0);
    end = std::max(end, begin + lifetimes[i].bytes);
    for (std::size_t k = 0; k < i; ++k) {
      if (!at_one_time(lifetimes[i], lifetimes[k])) continue;
      const std::int64_t other = places.offsets[k];
      ASSERT_TRUE(begin + lifetimes[i].bytes <= other || other + lifetimes[k].bytes <= begin) << i << ", " << k;
    }
  }
  EXPECT_LE(end, places.bytes);
  EXPECT_GE(places.bytes, most_alive(lifetimes));
}

// The smallest region, by trying every order with every offset at which something could begin.
std::int64_t smallest_region(const Lifetimes& lifetimes) {
  std::set<std::int64_t> sums{0};
  for (const Lifetime& life : lifetimes) {
    const std::set<std::int64_t> before = sums;
    for (const std::int64_t sum : before) sums.insert(sum + life.bytes);
  }
  std::vector<std::int64_t> offsets(lifetimes.size());
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  const std::function<void(std::size_t, std::int64_t)> go = [&](std::size_t i, std::int64_t end) {
    if (end >= best) return;
    if (i == lifetimes.size()) {
      best = end;
      return;
    }
    for (const std::int64_t at : sums) {
      const auto placed = std::span(offsets).first(i);
      const bool free = std::none_of(placed.begin(), placed.end(), [&](const std::int64_t& other) {
        const Lifetime& there = lifetimes[static_cast<std::size_t>(&other - offsets.data())];
        return at_one_time(there, lifetimes[i]) && at < other + there.bytes && other < at + lifetimes[i].bytes;
      });
      if (!free) continue;
      offsets[i] = at;
      go(i + 1, std::max(end, at + lifetimes[i].bytes));
    }
  };
  go(0, 0);
  return best;
}

TEST(MemoryPlaces, NothingTakesNoBytes) {
  EXPECT_EQ(place({}).bytes, 0);
  const Places none = place(Lifetimes{{0, 0, 3}, {0, 1, 1}, {0, 1, 2}});
  EXPECT_EQ(none.bytes, 0);
}

TEST(MemoryPlaces, ALifetimeThatEndsBeforeItBeginsIsABug) {
  EXPECT_THROW(most_alive(Lifetimes{{1, 2, 1}}), InternalError);
  EXPECT_THROW(most_alive(Lifetimes{{-1, 1, 2}}), InternalError);
}

// One lane at the bottom, one at the top: 8 beside 2 is the most that is alive, and the 3s go where there is room.
TEST(MemoryPlaces, PairsTakeTwoLanes) {
  const Lifetimes pairs{{8, 0, 1}, {2, 1, 2}, {3, 2, 3}, {3, 3, 4}, {2, 4, 5}, {8, 5, 6}};
  EXPECT_EQ(most_alive(pairs), 10);
  const Places places = place(pairs);
  expect_valid(pairs, places);
  EXPECT_EQ(places.bytes, 10);
  EXPECT_EQ(places.offsets, (std::vector<std::int64_t>{0, 8, 0, 7, 0, 2}));
}

TEST(MemoryPlaces, WhereNeverMoreThanTwoAreAliveTheyTakeExactlyTheMostAlive) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    Lifetimes lifetimes;
    std::int64_t time = 0;
    for (int i = 0; i < 40; ++i) {  // begins strictly after the one before the last has ended
      const std::int64_t length = static_cast<std::int64_t>(random() % 3);
      lifetimes.push_back({static_cast<std::int64_t>(random() % 9), time, time + length});
      const std::int64_t earliest = lifetimes.size() > 1 ? lifetimes[lifetimes.size() - 2].end + 1 : time;
      time = std::max(time + static_cast<std::int64_t>(random() % 2), earliest);
    }
    const Places places = place(lifetimes);
    expect_valid(lifetimes, places);
    EXPECT_EQ(places.bytes, most_alive(lifetimes));
    EXPECT_EQ(place(lifetimes).offsets, places.offsets);
  }
}

TEST(MemoryPlaces, AreValidAndNearTheSmallest) {
  std::mt19937 random(2);
  int smallest = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    Lifetimes lifetimes;
    for (int i = 0; i < 6; ++i) {
      const auto begin = static_cast<std::int64_t>(random() % 6);
      lifetimes.push_back({1 + static_cast<std::int64_t>(random() % 5), begin, begin + static_cast<std::int64_t>(random() % 4)});
    }
    const Places places = place(lifetimes);
    expect_valid(lifetimes, places);
    const std::int64_t best = smallest_region(lifetimes);
    EXPECT_GE(places.bytes, best);
    EXPECT_LE(2 * places.bytes, 3 * best);
    smallest += places.bytes == best;
  }
  EXPECT_GT(smallest, kTrials * 9 / 10);
}

}  // namespace
}  // namespace trident
