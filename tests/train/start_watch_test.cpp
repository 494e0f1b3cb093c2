// A job that does not get going says so, and ends.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "tests/support/error_text.h"
#include "train/launch/start_watch.h"

namespace trident {
namespace {

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
