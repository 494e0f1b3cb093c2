// What follows a command's end: every code, every history, and the waits, without a process or a clock.
#include "supervise/supervision.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>

#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "train/launch/failure_file.h"

namespace trident {
namespace {

TEST(Supervision, EveryExitCodeHasItsAnswer) {
  for (int code = 0; code < 256; ++code) {
    const bool by_signal = code > 128 && code <= 128 + SIGRTMAX;
    const bool restarted = code == 74 || code == 75 || code == 76 || code == 1 || code == 9 || code == 205 || by_signal;
    const NextMove next = what_follows({}, {}, {.code = code, .made_progress = true});
    EXPECT_EQ(next.restart, restarted) << code;
    EXPECT_EQ(may_be_restarted(code), restarted) << code;
    if (!next.restart) {
      EXPECT_EQ(next.exit_code, code);
    }
    EXPECT_EQ(describe_exit(code).rfind(std::to_string(code) + ": ", 0), 0u) << describe_exit(code);
  }
  EXPECT_EQ(describe_exit(137), "137: killed by SIGKILL");
}

// A run that saves at its end alone leaves nothing to go on from when it crashes.
TEST(Supervision, WhatSavesAtItsEndAloneIsStartedAgainAfterASaveOnly) {
  SupervisionRules rules;
  rules.saves_on_the_way = false;
  for (int code = 0; code < 256; ++code) {
    const NextMove next = what_follows(rules, {}, {.code = code});
    EXPECT_EQ(next.restart, code == 75) << code;
    EXPECT_EQ(next.exit_code, code);
    EXPECT_EQ(next.why.find("checkpoint.every is \"end\"") != std::string::npos, may_be_restarted(code) && code != 75) << next.why;
  }
}

TEST(Supervision, WaitsGrowToAMinute) {
  const double seconds[] = {0, 1, 2, 4, 8, 16, 32, 60, 60, 60};
  for (int idle = 0; idle < 10; ++idle) EXPECT_EQ(back_off_seconds(idle), seconds[idle]) << idle;
  EXPECT_EQ(back_off_seconds(2000000000), 60);
}

// One kill after the other, as the minutes pass: the history alone says how long to wait.
TEST(Supervision, ProgressTakesTheWaitAway) {
  const SupervisionRules patient{.max_restarts = {}, .max_idle_starts = 100};
  SupervisionHistory history;
  struct Row { int code; bool progress; double wait; };
  const Row rows[] = {{137, true, 0}, {137, false, 1}, {76, false, 2}, {74, false, 4}, {75, false, 0}, {139, false, 16},
                      {76, true, 0},  {76, true, 0},   {1, false, 1},  {205, false, 2}};
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const NextMove next = what_follows(patient, history, {.code = rows[i].code, .made_progress = rows[i].progress});
    ASSERT_TRUE(next.restart) << i;
    EXPECT_EQ(next.wait_seconds, rows[i].wait) << i;
    EXPECT_EQ(next.history.restarts, static_cast<int>(i) + 1);
    history = next.history;
  }
}

TEST(Supervision, ThreeStartsWithoutAStepEndWith93) {
  SupervisionHistory history;
  const auto ends = [&](int code, bool progress) {
    const NextMove next = what_follows({}, history, {.code = code, .made_progress = progress});
    history = next.history;
    return next.restart ? -1 : next.exit_code;
  };
  EXPECT_EQ(ends(137, false), -1);
  EXPECT_EQ(ends(76, false), -1);
  EXPECT_EQ(ends(76, true), -1) << "in a row means in a row";
  EXPECT_EQ(ends(76, false), -1);
  EXPECT_EQ(ends(75, false), -1);
  EXPECT_EQ(ends(74, false), 93);
  const NextMove last = what_follows({}, {.restarts = 2, .idle_starts = 2}, {.code = 76});
  expect_parts(last.why, {"3 starts in a row committed no new step"});
}

TEST(Supervision, WhoIsAskedToStopStartsNothing) {
  for (const int code : {0, 1, 74, 75, 76, 137, 138}) {
    const NextMove next = what_follows({}, {.restarts = 1, .idle_starts = 2}, {.code = code, .asked_to_stop = true});
    EXPECT_FALSE(next.restart);
    EXPECT_EQ(next.exit_code, code) << "not 93: it was not given its time";
  }
}

TEST(Supervision, RestartsAreCounted) {
  const SupervisionRules rules{.max_restarts = 2};
  EXPECT_TRUE(what_follows(rules, {.restarts = 1}, {.code = 76, .made_progress = true}).restart);
  const NextMove next = what_follows(rules, {.restarts = 2}, {.code = 76, .made_progress = true});
  EXPECT_FALSE(next.restart);
  EXPECT_EQ(next.exit_code, 76);
  expect_parts(next.why, {"--max-restarts 2"});
  EXPECT_FALSE(what_follows({.max_restarts = 0}, {}, {.code = 137, .made_progress = true}).restart);
}

TEST(FailureFile, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  const RunFailure failure{.rank = 3, .host = "n1", .cause = "was killed or crashed", .exit_code = 76, .step = 17,
                           .message = "rank \"3\"", .start = "a0"};
  EXPECT_EQ(failure_text(folder.path()), "");
  write_failure(folder.path(), failure);
  const std::string first = failure_text(folder.path());
  const auto read = failure_from(first);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->host, "n1");
  EXPECT_EQ(read->cause, failure.cause);
  EXPECT_EQ(read->exit_code, 76);
  EXPECT_EQ(read->step, 17);
  EXPECT_EQ(read->message, failure.message);
  EXPECT_EQ(read->start, "a0");
  write_failure(folder.path(), failure);
  EXPECT_NE(failure_text(folder.path()), first) << "another failure has another text";
  for (const char* text : {"", "{}", "[1]", R"({"rank": -1, "cause": "x"})", R"({"rank": "3", "cause": "x"})", R"({"rank": 3)",
                           "null", R"({"rank": 4294967296, "cause": "x"})", R"({"rank": 3, "cause": "x\u001b[2J"})",
                           R"({"rank": 3, "cause": "x", "host": "a\nb"})"})
    EXPECT_FALSE(failure_from(text)) << text;
  for (const std::string& odd : {first.substr(0, first.size() / 2), std::string(1 << 20, ' ') + first, std::string(100000, '[')}) {
    write_file(folder / "failure.json", odd);
    EXPECT_FALSE(failure_from(failure_text(folder.path()))) << odd.size() << " bytes";
  }
  remove_file(folder / "failure.json");
  ASSERT_EQ(::mkfifo((folder / "failure.json").c_str(), 0600), 0);
  EXPECT_EQ(failure_text(folder.path()), "") << "nor is a pipe waited for";
  remove_file(folder / "failure.json");
  write_failure(folder.path(), failure);
  write_failure(folder / "not_there", failure);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"failure.json"}) << "no folder is made for it";
}

}  // namespace
}  // namespace trident
