// Work that several threads share: all of it is done, by as many as can be had.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "core/for_each_index.h"
#include "planner/search/layout_search.h"
#include "tests/support/sanitized.h"

namespace trident {
namespace {

TEST(ForEachIndex, DoesEachOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> done(1000);
    for_each_index(done.size(), threads, [&](std::size_t i) { ++done[i]; });
    for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
  }
}

TEST(ForEachIndex, WhatOneThrowsComesOut) {
  const auto work = [](std::size_t i) {
    if (i == 50) throw std::runtime_error("50");
  };
  EXPECT_THROW(for_each_index(100, 3, work), std::runtime_error);
}

// A stack of a thread takes 8 MB of address space.
[[noreturn]] void without_room_for_threads() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{4} << 20);
  const rlimit limit{most, most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
  std::atomic<int> done = 0;
  for_each_index(100, 64, [&](std::size_t) { ++done; });
  _exit(done == 100 ? 0 : 1);
}

TEST(ForEachIndex, IsDoneByThoseThreadsThatCanBeHad) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers need more address space than this test leaves";
  EXPECT_EXIT(without_room_for_threads(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trident
