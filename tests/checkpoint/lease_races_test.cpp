// Leases when many want one at once, and when a process is killed or the disk fails at any call of taking one.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "tests/checkpoint/lease_place.h"
#include "tests/support/file_faults.h"

namespace trident {
namespace {

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
TEST_F(LeaseRaces, NeverTwoAtOnce) {
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

TEST_F(LeaseRaces, KilledAtEveryCallOfTakingIt) {
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
    EXPECT_EQ(folder_.names(), Names{lease_name(lease.generation())});
  }
  EXPECT_TRUE(finished);
  EXPECT_GE(calls, 8);
}

TEST_F(LeaseRaces, FailingAtEveryCallOfTakingIt) {
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
