// Who may save into a folder: one run at a time, whatever is killed, hangs or starts at the same moment.
#include "checkpoint/lease.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "tests/checkpoint/lease_place.h"
#include "tests/support/error_text.h"
#include "tests/support/file_faults.h"

namespace trident {
namespace {

using test::Child, test::kAtOnce, test::kPatient, test::kQuick, test::Leases, test::Names;

bool is_lost(const Lease& lease) {
  try {
    lease.refuse_if_lost();
  } catch (const ConfigError&) {
    return true;
  }
  return false;
}

bool within_a_while(const std::function<bool()>& ready) {
  for (const double start = monotonic_seconds(); !ready() && monotonic_seconds() - start < 60;)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return ready();
}

TEST(LeaseRecords, AreReadBackAndNothingElseIs) {
  LeaseRecord record{.holder = this_process("a token"), .generation = 1234567890123, .done = true, .counter = 987654321};
  const std::string text = to_text(record);
  const auto back = lease_from(text);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->holder, record.holder);
  EXPECT_EQ(back->generation, record.generation);
  EXPECT_EQ(back->counter, record.counter);
  EXPECT_TRUE(back->done);
  EXPECT_GT(record.holder.started, 0);
  EXPECT_EQ(record.holder.pid, ::getpid());
  for (std::size_t size = 0; size + 1 < text.size(); ++size) EXPECT_FALSE(lease_from(text.substr(0, size)).has_value()) << size;
  for (const char* other : {"[]", "{}", R"({"format":"trident-lease"})", R"({"format":7,"state":"held","counter":"1"})"})
    EXPECT_FALSE(lease_from(other).has_value()) << other;
}

TEST_F(Leases, TurnsAreCounted) {
  for (std::int64_t generation = 1; generation <= 3; ++generation) {
    EXPECT_LT(seconds_to_take(generation), kAtOnce);
    EXPECT_TRUE(record_at(generation).done);
  }
  for (const char* name :
       {"lease-00000009.json.bak", "lease-9.json", "lease-00000000.json", "lease-.json", "lease-99999999999999999999.json"})
    write_file(folder_ / name, "x");
  leave(123456789, [](LeaseRecord& record) { record.done = true; });
  const Lease lease(folder_.path(), "mine", kQuick);
  EXPECT_EQ(newest_lease(folder_.path())->generation, 123456790);
}

TEST_F(Leases, AFolderInUseIsRefused) {
  const Lease lease(folder_.path(), "one", kQuick);
  const Names before = folder_.names();
  expect_error<ConfigError>([&] { const Lease second(folder_.path(), "two", kQuick); },
                            {"checkpoint.dir = " + folder_.path(), fmt::format("pid {} on ", ::getpid()), "another run saves there",
                             fmt::format("kill -USR1 {}", ::getpid()), "another folder"});
  EXPECT_EQ(folder_.names(), before);
}

TEST_F(Leases, OfAProcessThatIsGoneIsTakenAtOnce) {
  Child child([&] {
    const Lease lease(folder_.path(), "theirs", kQuick);
    ::raise(SIGKILL);
  });
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(record_at(1).done);
  EXPECT_LT(seconds_to_take(2), kAtOnce);  // a zombie
  leave(3, [pid = child.pid()](LeaseRecord& record) { record.holder.pid = pid; });
  child.wait();
  EXPECT_LT(seconds_to_take(4), kAtOnce);
  leave(5, [](LeaseRecord& record) { --record.holder.started; });  // this pid, of another process then
  EXPECT_LT(seconds_to_take(6), kAtOnce);
}

// kill -9 returns before the process is gone: it is waited for.
TEST_F(Leases, OfAProcessThatIsDyingIsTakenWhenItIsGone) {
  Child child([&] {
    const Lease lease(folder_.path(), "theirs", kQuick);
    ::usleep(500'000);
    ::raise(SIGKILL);
  });
  while (!is_there(folder_ / lease_name(1))) ::usleep(10'000);
  LeaseOptions options = kQuick;
  options.ending_seconds = 10;
  EXPECT_LT(seconds_to_take(2, options), kAtOnce);
  child.wait();
}

class Elsewhere : public Leases, public ::testing::WithParamInterface<int> {
 protected:
  static void move(LeaseRecord& record) {
    switch (GetParam()) {
      case 0: record.holder.host += "2"; break;
      case 1: record.holder.pid_namespace = "pid:[1]"; break;  // a container that has this host's name
      case 2: record.holder.host += "2", record.holder.boot = "another"; break;
      case 3: record.holder.boot = "another"; break;  // a host that has this one's name
      default: record.holder.boot.clear();  // a kernel that does not say
    }
  }
};

TEST_P(Elsewhere, ACounterThatStaysIsThatOfADeadHolder) {
  leave(1, [](LeaseRecord& record) { move(record), record.holder.pid = 1; });
  std::string said;
  LeaseOptions options = kQuick;
  options.say = [&](const std::string& line) { said += line + "|"; };
  const double start = monotonic_seconds();
  const Lease lease(folder_.path(), "mine", options);
  const double seconds = monotonic_seconds() - start;
  EXPECT_GE(seconds, 0.3);
  EXPECT_LT(seconds, kAtOnce);
  EXPECT_EQ(newest_lease(folder_.path())->generation, 2);
  expect_parts(said, {"pid 1 on "});
  EXPECT_EQ(std::ranges::count(said, '|'), 1) << said;
}

TEST_P(Elsewhere, ACounterThatMovesIsThatOfARun) {
  std::atomic<bool> ends = false;
  leave(1, move);
  std::thread holder([&] {
    for (std::int64_t counter = 1; !ends; ++counter) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      leave(1, [&](LeaseRecord& record) { move(record), record.counter = counter; });
    }
  });
  expect_error<ConfigError>([&] { const Lease lease(folder_.path(), "mine", kPatient); }, {"another run saves there", "pid "});
  ends = true;
  holder.join();
  EXPECT_EQ(folder_.names(), Names{lease_name(1)});
}

INSTANTIATE_TEST_SUITE_P(All, Elsewhere, ::testing::Range(0, 5));

TEST_F(Leases, WhatIsNoLeaseIsWatchedLikeOneOfAnotherHost) {
  write_file(folder_ / lease_name(1), "{\"format\":");
  EXPECT_GE(seconds_to_take(2, kQuick), 0.3);
}

// The real counter, as a watcher on another node sees it.
TEST_F(Leases, TheCounterMovesWhileTheRunLives) {
  const Lease lease(folder_.path(), "mine", kQuick);
  const std::int64_t first = record_at(1).counter;
  const double start = monotonic_seconds();
  while (record_at(1).counter < first + 3 && monotonic_seconds() - start < 60)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(record_at(1).counter, first + 3);
  EXPECT_FALSE(record_at(1).done);
}

// As a watcher on another host sees it: the counter stays, and the file is locked.
TEST_F(Leases, OneThatIsNotRenewedYetIsKeptByItsLock) {
  LeaseOptions options = kQuick;
  options.renews = false;
  std::optional<Lease> lease(std::in_place, folder_.path(), "theirs", options);
  LeaseRecord elsewhere = record_at(1);
  elsewhere.holder.host.back() = '~';
  const auto in_place = [&] { std::ofstream(folder_ / lease_name(1), std::ios::in) << to_text(elsewhere); };
  in_place();
  expect_error<ConfigError>([&] { const Lease second(folder_.path(), "mine", kQuick); }, {"another run saves there", "~"});
  EXPECT_EQ(record_at(1).counter, 0);
  elsewhere.holder = this_process("theirs");
  --elsewhere.holder.started;  // on a copy of this virtual machine, where its pid is another process
  in_place();
  expect_error<ConfigError>([&] { const Lease second(folder_.path(), "mine", kQuick); }, {"another run saves there"});
  ++elsewhere.holder.started;
  in_place();
  EXPECT_TRUE(lease->renew());
  const double start = monotonic_seconds();
  while (record_at(1).counter == 0 && monotonic_seconds() - start < 60) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(record_at(1).counter, 0);
  lease.reset();
  EXPECT_TRUE(record_at(1).done);
  lease.emplace(folder_.path(), "theirs", options);
  leave(3, [](LeaseRecord& record) { record.done = true; });
  EXPECT_FALSE(lease->renew()) << "somebody has had a later turn";
}

// A start with the token of the one before it need not wait, and the one before it, should it live, commits nothing.
TEST_F(Leases, WhoStartsARunAgainHandsItsTokenOn) {
  leave(1, [](LeaseRecord& record) { record.holder.host += "2", record.holder.token = "mine"; });
  EXPECT_LT(seconds_to_take(2), kAtOnce);

  Lease first(folder_.path(), "shared", kQuick);
  make_temporary_folder(folder_ / temporary_name(10, "t"));
  Manifest manifest;
  manifest.state.updates = manifest.state.batches = 10;
  EXPECT_NO_THROW(first.check());
  const Lease second(folder_.path(), "shared", kQuick);
  EXPECT_EQ(newest_lease(folder_.path())->generation, 4);
  const std::vector<std::string> says{"checkpoint.dir = ", fmt::format("pid {} on ", ::getpid()), "has taken the folder over",
                                      "this run ends"};
  expect_error<ConfigError>([&] { commit_checkpoint(folder_.path(), temporary_name(10, "t"), 10, manifest, &first); }, says);
  EXPECT_FALSE(folder_exists(folder_ / checkpoint_name(10)));
  const double start = monotonic_seconds();
  while (!is_lost(first) && monotonic_seconds() - start < 60) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect_error<ConfigError>([&] { first.refuse_if_lost(); }, says);
}

// Nobody has taken it over, so that the same run may begin again.
TEST_F(Leases, ThatSomebodyRemovedAreAFaultOfTheStorage) {
  Lease lease(folder_.path(), "mine", kQuick);
  std::filesystem::remove(folder_ / lease_name(1));
  expect_error<StorageError>([&] { lease.check(); }, {"checkpoint.dir = ", lease_name(1), "was removed", "start it again"});
  leave(1, [](LeaseRecord& record) { record.holder.host += "2"; });  // of a run that began after the folder was removed
  expect_error<ConfigError>([&] { lease.check(); }, {"has taken the folder over"});
}

TEST_F(Leases, ALostTurnIsNoticedWithoutACommit) {
  const Lease first(folder_.path(), "shared", kQuick);
  {
    const Lease second(folder_.path(), "shared", kQuick), third(folder_.path(), "shared", kQuick);
    EXPECT_EQ(folder_.names(), Names{lease_name(3)});
    const double start = monotonic_seconds();
    while (!is_lost(first) && monotonic_seconds() - start < 60) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(is_lost(first));
    EXPECT_FALSE(is_lost(third));
  }
  EXPECT_TRUE(record_at(3).done);
}

// A disk that did not answer has not said that another run has the folder.
TEST_F(Leases, ALookThatFailsLosesNoTurn) {
  Lease lease(folder_.path(), "mine", kQuick);
  for (const int generation : {1, 2}) {
    {
      const FailingLook look(lease_name(generation));
      EXPECT_TRUE(contains(error_of<StorageError>([&] { lease.check(); }), "Input/output error")) << generation;
      const std::int64_t before = record_at(1).counter;
      EXPECT_TRUE(within_a_while([&] { return record_at(1).counter > before + 1; }));
    }
    EXPECT_NO_THROW(lease.check());
    EXPECT_FALSE(is_lost(lease));
  }
}

TEST_F(Leases, ACommitOfWhoHoldsItIsMade) {
  Lease lease(folder_.path(), "mine", kQuick);
  make_temporary_folder(folder_ / temporary_name(10, "t"));
  Manifest manifest;
  manifest.state.updates = manifest.state.batches = 10;
  commit_checkpoint(folder_.path(), temporary_name(10, "t"), 10, manifest, &lease);
  EXPECT_EQ(open_manifest(folder_ / checkpoint_name(10)).state.updates, 10);
}

TEST_F(Leases, ADiskThatHangsIsNamedAndTheTurnStays) {
  std::mutex mutex;
  std::string warned;
  LeaseOptions options = kQuick;
  options.warn = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    warned += line;
  };
  Lease lease(folder_.path(), "mine", options);
  {
    const FileFault fault(Fault::kHang, 0);
    ASSERT_TRUE(fault.happens());
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  const auto text = [&] {
    const std::lock_guard lock(mutex);
    return warned;
  };
  for (const double start = monotonic_seconds(); text().empty() && monotonic_seconds() - start < 60;)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect_parts(text(), {"lease-00000001.json: was not renewed for ", "the disk is slow", "may take the folder over"});
  expect_parts(text(), {folder_.path()});
  EXPECT_NO_THROW(lease.check());
}

// Whatever hangs: the thread in the middle of a renewal, or the words that it is done. The end comes, with one line; the folder is
// as a killed run leaves it until the disk works again.
TEST_F(Leases, ADiskThatHangsAtTheEndIsNotWaitedForWithoutALimit) {
  for (const double renew_seconds : {0.001, 1000.0}) {
    SCOPED_TRACE(renew_seconds);
    std::string warned;
    LeaseOptions options = kPatient;
    options.renew_seconds = renew_seconds;
    options.release_seconds = 0.05;
    options.warn = [&](std::string_view line) { warned += std::string(line) + "|"; };
    std::optional<Lease> lease(std::in_place, folder_.path(), "mine", options);
    const std::int64_t generation = newest_lease(folder_.path())->generation;
    {
      const FileFault fault(Fault::kHang, 0);
      ASSERT_TRUE(renew_seconds > 1 || fault.happens());
      lease.reset();
      EXPECT_FALSE(record_at(generation).done);
    }
    for (const char* part :
         {"the disk did not take within 0 s that this run is done: it hangs", "what is saved is saved", "waits 30 s"})
      EXPECT_NE(warned.find(part), std::string::npos) << part << " in " << warned;
    EXPECT_EQ(std::ranges::count(warned, '|'), 1) << warned;
    for (int ms = 0; ms < 60'000 && !record_at(generation).done; ++ms) ::usleep(1000);
    EXPECT_TRUE(record_at(generation).done);
  }
}

TEST_F(Leases, ARefusedStartLeavesNoTrace) {
  Lease(folder_.path(), "mine", kQuick).withdraw();
  EXPECT_EQ(folder_.names(), Names{});
  seconds_to_take(1);
  Lease(folder_.path(), "mine", kQuick).withdraw();
  EXPECT_TRUE(record_at(2).done);
}

// Leases when many want one at once, and when a process is killed or the disk fails at any call of taking one.

using test::Child, test::kAtOnce, test::kPatient, test::kQuick, test::Names;
class LeaseRaces : public test::Leases {};

// Twenty processes see at the same moment that the holder is dead: one has the folder afterwards.
TEST_F(LeaseRaces, OfManyThatTakeOverAtOnceOneWins) {
  constexpr int kProcesses = 20, kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const bool elsewhere = round % 2 == 1;
    const std::int64_t generation = 10 * round + 1;
    leave(generation, [&](LeaseRecord& record) {
      if (elsewhere)
        record.holder.host += "2";
      else
        --record.holder.started;
    });
    std::array<int, 2> news{}, go{};
    ASSERT_EQ(::pipe(news.data()), 0);
    ASSERT_EQ(::pipe(go.data()), 0);
    {
      std::vector<Child> children;
      for (int i = 0; i < kProcesses; ++i) {
        children.emplace_back([&] {
          char byte = 0;
          ::close(go[1]);
          (void)!::read(go[0], &byte, 1);  // ends for all at once, when the writer closes it
          std::unique_ptr<Lease> lease;
          try {
            lease = std::make_unique<Lease>(folder_.path(), fmt::format("of {}", i), kQuick);
            byte = 'w';
          } catch (const ConfigError&) {
            byte = 'r';
          } catch (const Error&) {
            byte = '?';
          }
          (void)!::write(news[1], &byte, 1);
          for (;;) ::pause();
        });
      }
      ::close(go[0]);
      ::close(go[1]);
      std::string answers;
      for (char byte = 0; std::ssize(answers) < kProcesses && ::read(news[0], &byte, 1) == 1;) answers += byte;
      std::ranges::sort(answers);
      EXPECT_EQ(answers, std::string(kProcesses - 1, 'r') + "w");
      EXPECT_EQ(folder_.names(), Names{lease_name(generation + 1)});
    }
    ::close(news[0]);
    ::close(news[1]);
  }
}

// While this one looks at turn 1, turns 2 and 3 come and 1 and 2 go: it must not take a number again that was passed.
TEST_F(LeaseRaces, ANumberThatWasPassedIsNotTakenAgain) {
  leave(1, [](LeaseRecord& record) { record.done = true; });
  const BeforeOpen others(lease_name(1), [&] {
    remove_file(folder_ / lease_name(1));
    leave(3, [](LeaseRecord&) {});
  });
  expect_error<ConfigError>([&] { const Lease lease(folder_.path(), "mine", kQuick); }, {"another run saves there"});
  EXPECT_EQ(folder_.names(), Names{lease_name(3)});
}

// Processes that take it, go in where only one may be, and leave or are killed there.
TEST_F(LeaseRaces, TwoNeverHoldItAtOnce) {
  constexpr int kProcesses = 8, kTurns = 12;
  const TemporaryFolder inside;
  std::vector<Child> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      const std::string mine = fmt::format("{}/{}", inside.path(), ::getpid());
      for (int turn = 0; turn < kTurns;) {
        try {
          const Lease lease(folder_.path(), mine, kQuick);
          ++turn;
          (void)!::write(::open(mine.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666), "", 0);
          ::usleep(random() % 2000);
          for (const auto& other : std::filesystem::directory_iterator(inside.path())) {
            const pid_t pid = std::atoi(other.path().filename().c_str());
            std::string status;
            try {
              status = pid == ::getpid() ? "" : read_file(fmt::format("/proc/{}/stat", pid));
            } catch (const Error&) {
            }
            const bool alive = status.find(") ") != std::string::npos && status[status.find(") ") + 2] != 'Z';
            if (alive) ::_exit(2);  // somebody else is inside
          }
          if (i % 2 == 1 && turn == kTurns / 2) ::raise(SIGKILL);
          std::filesystem::remove(mine);
        } catch (const ConfigError&) {
          ::usleep(500);
        }
      }
    });
  }
  int killed = 0, done = 0;
  for (Child& child : children) {
    const int status = child.wait();
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 1 : 0;
    done += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  EXPECT_EQ(killed, kProcesses / 2);
  EXPECT_EQ(done, kProcesses / 2);
}

TEST_F(LeaseRaces, AKillAtAnyCallLeavesItToTheNext) {
  bool finished = false;
  int calls = 0;
  for (; !finished && calls < 60; ++calls) {
    SCOPED_TRACE(calls);
    Child child([&] {
      const FileFault fault(Fault::kKill, calls);
      const Lease lease(folder_.path(), "theirs", {.renew_seconds = 100});
    });
    const int status = child.wait();
    finished = WIFEXITED(status);
    const double start = monotonic_seconds();
    const Lease lease(folder_.path(), "mine", kPatient);
    EXPECT_LT(monotonic_seconds() - start, kAtOnce - 1);
    EXPECT_EQ(folder_.names(), Names{lease_name(newest_lease(folder_.path())->generation)});
  }
  EXPECT_TRUE(finished);
  EXPECT_GE(calls, 8);
}

TEST_F(LeaseRaces, AFailureOfAnyCallLeavesItToTheNext) {
  bool reached = true;
  int failed = 0;
  for (int call = 0; reached && call < 60; ++call) {
    SCOPED_TRACE(call);
    std::string what;
    {
      const FileFault fault(Fault::kError, call, EIO);
      try {
        const Lease lease(folder_.path(), "mine", {.renew_seconds = 100});
      } catch (const Error& error) {
        what = error.what();
      }
      reached = fault.happened();
    }
    if (!what.empty()) ++failed;
    EXPECT_TRUE(what.empty() || (what.find(folder_.path()) != what.npos && what.find("Input/output error") != what.npos)) << what;
    const Lease lease(folder_.path(), "mine", {});  // at once
    EXPECT_LE(folder_.names().size(), 2u);          // what the disk did not let it remove
  }
  EXPECT_GE(failed, 5);
}

}  // namespace
}  // namespace trident
