// Signals that ask, and one that insists. Ends of processes happen in forked children.
#include "train/stop_request.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "core/check.h"

namespace trident {
namespace {

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

TEST(StopRequest, NothingIsPendingAtFirst) { EXPECT_EQ(StopRequest().pending(), 0); }

TEST(StopRequest, EachSignalAsksAndTheProcessGoesOn) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    const StopRequest request;
    raise(signal);
    EXPECT_EQ(request.pending(), signal);
  }
}

TEST(StopRequest, TheFirstSignalCounts) {
  const StopRequest request;
  raise(SIGUSR1);
  raise(SIGTERM);
  raise(SIGTERM);
  raise(SIGUSR1);
  EXPECT_EQ(request.pending(), SIGUSR1);
}

TEST(StopRequest, ASecondInterruptEndsTheProcess) {
  EXPECT_EQ(fatal_signal([] {
              const StopRequest request;
              raise(SIGINT);
              if (request.pending() == SIGINT) raise(SIGINT);
            }),
            SIGINT);
}

TEST(StopRequest, AnInterruptAfterAnotherSignalStillAsks) {
  EXPECT_EQ(fatal_signal([] {
              const StopRequest request;
              raise(SIGUSR1);
              raise(SIGINT);
            }),
            0);
}

TEST(StopRequest, AnIgnoredInterruptStaysIgnored) {
  EXPECT_EQ(fatal_signal([] {
              std::signal(SIGINT, SIG_IGN);
              const StopRequest request;
              raise(SIGINT);
              raise(SIGINT);
              if (request.pending() != 0) raise(SIGKILL);
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
    raise(SIGINT);
  }
  const StopRequest request;
  EXPECT_EQ(request.pending(), 0);
  raise(SIGINT);  // the first one of this request
  EXPECT_EQ(request.pending(), SIGINT);
}

TEST(StopRequest, ThereIsOneAtATime) {
  const StopRequest request;
  EXPECT_THROW(StopRequest(), InternalError);
  raise(SIGTERM);
  EXPECT_EQ(request.pending(), SIGTERM);  // the first one still holds the handlers
}

TEST(StopRequest, ExitCodesAndNames) {
  EXPECT_EQ(exit_code_of_signal(SIGUSR1), 138);
  EXPECT_EQ(exit_code_of_signal(SIGTERM), 143);
  EXPECT_EQ(exit_code_of_signal(SIGINT), 130);
  EXPECT_EQ(signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(40), "signal 40");
}

}  // namespace
}  // namespace trident
