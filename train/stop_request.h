// Being asked to stop: SIGTERM, SIGUSR1 and SIGINT become a number that the training loop looks at between steps.
//
// Signals reach some ranks and not others, at different moments; ranks therefore agree on one number (the maximum over ranks) at a
// step boundary before anybody acts on it.
#pragma once

#include <array>
#include <csignal>
#include <semaphore>
#include <string>
#include <thread>

namespace trident {

// While alive, SIGTERM and SIGUSR1 only ask; so does the first SIGINT, the second ends the process at once. A SIGINT that was
// ignored (a background job of a shell) stays ignored. The destructor restores what was there. One object at a time in a process.
//
// The signals are blocked on the thread that makes the object, and on all that it starts meanwhile: matrix kernels (oneDNN 2.6's
// sgemm) use the stack pointer for memory of the heap, where a signal's frame would be written. A thread of the object takes them
// instead.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // The first signal that came, 0 if none. From any thread.
  int pending() const;

 private:
  void restore();

  static constexpr std::array kSignals = {SIGTERM, SIGUSR1, SIGINT};
  std::array<struct sigaction, kSignals.size()> before_{};
  sigset_t mask_before_{};
  std::binary_semaphore ends_{0};
  std::thread taker_;
};

// As shells count: 128 + signal.
int exit_code_of_signal(int signal);
// "SIGTERM"; "signal 40" for those without a name.
std::string signal_name(int signal);

}  // namespace trident
