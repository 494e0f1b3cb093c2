// A signal that asks, and a second one that insists. Ends of processes happen in forked children.
#include "train/run/stop_request.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "core/check.h"
#include "tests/mpi/child_process.h"
#include "tests/support/error_text.h"
#include "tests/support/no_threads.h"

namespace trident {
namespace {

const std::vector<int> kSignals{SIGTERM, SIGUSR1, SIGINT};

// The signal that ended a child that ran `body`; 0 if it returned.
int fatal_signal(const std::function<void()>& body) {
  const int pid = fork();
  if (pid == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

struct sigaction action_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action;
}

void count_hits(int) {}

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// To the process, as launchers and people send signals; returns when a thread has taken it.
void send(int signal) {
  kill(getpid(), signal);
  sigset_t waiting;
  for (int i = 0; i < 60'000 && sigpending(&waiting) == 0 && sigismember(&waiting, signal) != 0; ++i) nap();
}

int first_pending(const StopRequest& request) {
  for (int i = 0; i < 60'000 && request.pending() == 0; ++i) nap();
  return request.pending();
}

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) != 0;
}

TEST(StopRequest, NothingIsPendingAtFirst) { EXPECT_EQ(StopRequest().pending(), 0); }

TEST(StopRequest, EachSignalAsksAndTheProcessGoesOn) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) {
    const StopRequest request;
    send(signal);
    EXPECT_EQ(first_pending(request), signal);
  }
}

TEST(StopRequest, TheFirstSignalCounts) {
  const StopRequest request(kSignals, 600);
  send(SIGUSR1);
  EXPECT_EQ(first_pending(request), SIGUSR1);
  for (const int later : {SIGUSR1, SIGTERM, SIGTERM, SIGINT}) send(later);
  EXPECT_EQ(request.pending(), SIGUSR1);
}

TEST(StopRequest, ASecondOneOfAnyKindEndsTheProcess) {
  for (const int first : kSignals) {
    for (const int second : kSignals) {
      EXPECT_EQ(fatal_signal([&] {
                  const StopRequest request(kSignals, 0);
                  send(first);
                  if (first_pending(request) != first) return;
                  send(second);
                  for (int i = 0; i < 60'000; ++i) nap();
                }),
                second)
          << first;
    }
  }
}

// timeout(1) signals its child and then the group that the child is in.
TEST(StopRequest, WhatIsSentTwiceAtOnceIsOneRequest) {
  for (const int signal : kSignals) {
    EXPECT_EQ(fatal_signal([&] {
                const StopRequest request(kSignals, 30);
                for (int i = 0; i < 3; ++i) send(signal);
                if (first_pending(request) != signal) raise(SIGKILL);
              }),
              0);
  }
  // And by itself: long enough for machines, short enough for a person who means it.
  EXPECT_EQ(fatal_signal([] {
              const StopRequest request;
              send(SIGTERM);
              if (first_pending(request) != SIGTERM) return;
              std::this_thread::sleep_for(std::chrono::milliseconds(300));
              send(SIGINT);
              for (int i = 0; i < 60'000; ++i) nap();
            }),
            SIGINT);
}

TEST(StopRequest, AnIgnoredInterruptStaysIgnored) {
  EXPECT_EQ(fatal_signal([] {
              std::signal(SIGINT, SIG_IGN);
              const StopRequest request(kSignals, 0);
              send(SIGINT);
              send(SIGINT);
              if (request.pending() != 0) raise(SIGKILL);
            }),
            0);
}

// nohup: the terminal may go.
TEST(StopRequest, OtherSignalsAndAnIgnoredHangUp) {
  EXPECT_EQ(fatal_signal([] {
              std::signal(SIGHUP, SIG_IGN);
              const StopRequest request({SIGHUP, SIGTERM}, 0);
              send(SIGHUP);
              if (request.pending() != 0) raise(SIGKILL);
              send(SIGTERM);
              if (first_pending(request) != SIGTERM) raise(SIGKILL);
            }),
            0);
  EXPECT_EQ(fatal_signal([] {
              const StopRequest request({SIGHUP});
              send(SIGHUP);
              if (first_pending(request) != SIGHUP) raise(SIGKILL);
            }),
            0);
}

TEST(StopRequest, TheDestructorRestoresWhatWasThere) {
  struct sigaction mine {}, before {};
  mine.sa_handler = count_hits;
  sigaction(SIGUSR1, &mine, &before);
  {
    const StopRequest request;
    EXPECT_NE(action_of(SIGUSR1).sa_handler, count_hits);
    EXPECT_NE(action_of(SIGTERM).sa_handler, SIG_DFL);
    EXPECT_NE(action_of(SIGUSR1).sa_flags & SA_RESTART, 0);
  }
  EXPECT_EQ(action_of(SIGUSR1).sa_handler, count_hits);
  EXPECT_EQ(action_of(SIGTERM).sa_handler, SIG_DFL);
  EXPECT_EQ(action_of(SIGINT).sa_handler, SIG_DFL);
  sigaction(SIGUSR1, &before, nullptr);

  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    EXPECT_EQ(fatal_signal([&] {
                { const StopRequest request; }
                raise(signal);
              }),
              signal);
  }
}

TEST(StopRequest, ANewOneStartsAfresh) {
  {
    const StopRequest request;
    send(SIGINT);
    EXPECT_EQ(first_pending(request), SIGINT);
  }
  const StopRequest request;
  EXPECT_EQ(request.pending(), 0);
  send(SIGINT);  // the first one of this request
  EXPECT_EQ(first_pending(request), SIGINT);
}

TEST(StopRequest, ThereIsOneAtATime) {
  const StopRequest request;
  EXPECT_THROW(StopRequest(), InternalError);
  send(SIGTERM);
  EXPECT_EQ(first_pending(request), SIGTERM);  // the first one still holds the handlers
}

// A handler that runs on the stack of a thread inside a matrix kernel destroys the heap.
TEST(StopRequest, ThreadsThatComputeAreNotInterrupted) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    EXPECT_FALSE(is_blocked(signal));
    const StopRequest request;
    EXPECT_TRUE(is_blocked(signal));
    bool in_thread = false;
    std::thread([&] { in_thread = is_blocked(signal); }).join();
    EXPECT_TRUE(in_thread);
  }
  EXPECT_FALSE(is_blocked(SIGTERM));
}

TEST(StopRequest, ExitCodesAndNames) {
  EXPECT_EQ(exit_code_of_signal(SIGUSR1), 138);
  EXPECT_EQ(exit_code_of_signal(SIGTERM), 143);
  EXPECT_EQ(exit_code_of_signal(SIGINT), 130);
  EXPECT_EQ(signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(40), "signal 40");
}

TEST(StopRequest, WithoutAThreadSaysSoAndLeavesAllAsItWas) {
  ChildProcess probe(forbid_threads);
  if (!probe.wait()) GTEST_SKIP() << "this system does not limit threads";
  ChildProcess child([] {
    const auto before = action_of(SIGTERM).sa_handler;
    forbid_threads();
    for (int i = 0; i < 2; ++i) {  // the second is not refused as a second one
      const std::string text = error_of<ConfigError>([] { StopRequest(); });
      if (!text.starts_with("no thread for signals: ") || !text.ends_with("; raise ulimit -u")) throw std::runtime_error(text);
    }
    return action_of(SIGTERM).sa_handler == before && !is_blocked(SIGTERM);
  });
  EXPECT_TRUE(child.wait());
}

}  // namespace
}  // namespace trident
