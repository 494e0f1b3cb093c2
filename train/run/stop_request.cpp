#include "train/run/stop_request.h"

#include <atomic>
#include <cmath>
#include <ctime>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace trident {
namespace {

// All that a signal handler can reach: written by it, read and reset by the one StopRequest there is.
std::atomic<int> pending_signal{0};
std::atomic<std::int64_t> asked_at{0}, same_request{0};  // nanoseconds
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free, "signal handlers take no locks");

std::int64_t monotonic_nanoseconds() {
  struct timespec now {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // a signal handler may call it
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

// The handlers keep each other out (sa_mask).
extern "C" void note_signal(int signal) {
  int none = 0;
  if (pending_signal.compare_exchange_strong(none, signal)) {
    asked_at = monotonic_nanoseconds();
    return;
  }
  if (monotonic_nanoseconds() - asked_at < same_request) return;
  struct sigaction terminate {};
  terminate.sa_handler = SIG_DFL;
  sigaction(signal, &terminate, nullptr);
  raise(signal);  // delivered when this handler returns
}

}  // namespace

StopRequest::StopRequest(std::vector<int> signals, double same_request_seconds) : signals_(std::move(signals)), before_(signals_.size()) {
  TRIDENT_CHECK(!installed.exchange(true), "a second StopRequest in this process");
  pending_signal = 0;
  same_request = std::llround(1e9 * same_request_seconds);
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;  // file and socket calls go on as if nothing had happened
  sigemptyset(&action.sa_mask);
  for (const int signal : signals_) sigaddset(&action.sa_mask, signal);
  sigset_t taken;
  sigemptyset(&taken);
  for (std::size_t i = 0; i < signals_.size(); ++i) {
    sigaction(signals_[i], nullptr, &before_[i]);
    if ((signals_[i] == SIGINT || signals_[i] == SIGHUP) && before_[i].sa_handler == SIG_IGN) continue;
    sigaction(signals_[i], &action, nullptr);
    sigaddset(&taken, signals_[i]);
  }
  pthread_sigmask(SIG_BLOCK, &taken, &mask_before_);
  try {
    taker_ = std::thread([this, taken] {
      pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);
      ends_.acquire();
    });
  } catch (const std::system_error& error) {
    restore();
    throw ConfigError(fmt::format("no thread for signals: {}; raise ulimit -u", error.what()));
  }
}

StopRequest::~StopRequest() {
  ends_.release();
  taker_.join();
  restore();
}

void StopRequest::restore() {
  for (std::size_t i = 0; i < signals_.size(); ++i) sigaction(signals_[i], &before_[i], nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  installed = false;
}

int StopRequest::pending() const { return pending_signal.load(); }

int exit_code_of_signal(int signal) { return 128 + signal; }

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  return abbreviation != nullptr ? std::string("SIG") + abbreviation : fmt::format("signal {}", signal);
}

int RunEnd::exit_code() const {
  if (not_saved) return exit_status(ExitCode::kStorage);
  if ((signal != 0 || out_of_time) && saved) return exit_status(ExitCode::kRequeue);
  return signal != 0 ? exit_code_of_signal(signal) : 0;
}

std::string RunEnd::message() const {
  const std::string why = signal != 0   ? "stopped by " + signal_name(signal)
                          : out_of_time ? "run.max_minutes is over"
                                        : "the run is over";
  if (untrained) return why + " before the first step; the same command begins with it";
  if (not_saved)
    return why + ", and its last checkpoint could not be written; " +
           (older >= 0 ? fmt::format("the newest one is of step {}", older) : "there is no other");
  if (saved) return why + "; all is saved";
  if (weights) return why + "; its weights are saved, and no run goes on from weights alone (checkpoint.content)";
  if (begins_anew)
    return why + "; all is saved, and the same command begins anew; with checkpoint.resume=auto it goes on from there";
  return why + " at the end of a step; nothing is saved, as was said when it began";
}

}  // namespace trident
