// Being asked to stop: signals become a number that the training loop looks at between steps, and `trident data` between documents.
//
// Signals reach some ranks and not others, at different moments; ranks therefore agree on one number (the maximum over ranks) at a
// step boundary before anybody acts on it.
#pragma once

#include <csignal>
#include <cstdint>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace trident {

// A signal so soon after another is the same request: timeout(1), shells that pass signals on, and launchers whose process group
// was meant send it twice.
inline constexpr double kSameRequestSeconds = 0.25;

// While alive, the first of the given signals only asks; a second request, by any of them, ends the process at once. A SIGINT or
// SIGHUP that was ignored (a background job of a shell, nohup) stays ignored. The destructor restores what was there. One object at
// a time in a process.
//
// The signals are blocked on the thread that makes the object, and on all that it starts meanwhile: matrix kernels (oneDNN 2.6's
// sgemm) use the stack pointer for memory of the heap, where a signal's frame would be written. A thread of the object takes them
// instead.
class StopRequest {
 public:
  explicit StopRequest(std::vector<int> signals = {SIGTERM, SIGUSR1, SIGINT, SIGHUP},
                       double same_request_seconds = kSameRequestSeconds);
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // The first signal that came, 0 if none. From any thread.
  int pending() const;

 private:
  void restore();

  const std::vector<int> signals_;
  std::vector<struct sigaction> before_;  // of each
  sigset_t mask_before_{};
  std::binary_semaphore ends_{0};
  std::thread taker_;
};

// As shells count: 128 + signal.
int exit_code_of_signal(int signal);
// "SIGTERM"; "signal 40" for those without a name.
std::string signal_name(int signal);

// How a run came to its end, and what it has saved by then, the same on every rank.
struct RunEnd {
  int signal = 0;            // that ended it before its last step, or 0
  bool out_of_time = false;  // run.max_minutes ended it
  bool untrained = false;    // before the first update that the run ever made
  bool saved = false;        // what was trained last is in a checkpoint that a run can go on from
  bool weights = false;      // it is in one of weights alone
  bool begins_anew = false;  // it is in one, and the same command does not go on from it (checkpoint.resume "never")
  bool not_saved = false;    // it should be, and is not
  std::int64_t older = -1;   // then: the step of the newest checkpoint; -1: there is none
  std::string fault = "";    // RunCheckpoints::fault(), on rank 0

  int exit_code() const;
  std::string message() const;  // for any code; run.json keeps it
};

}  // namespace trident
