#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "core/check.h"
#include "core/clock.h"
#include "parallel/health/lifeline_thread.h"

namespace trident {

// Without its lifeline a rank would hold up nobody but be missed by all: it ends, as one that failed, and says so where it can.
// Little is called here that could fail as what came before did.
void LifelineThread::give_up(const char* why) noexcept {
  exit_code_ = exit_at_ || end_at_ ? exit_code_ : LifelineVerdict().exit_code;
  const double deadline = monotonic_seconds() + options_.grace_seconds;
  try {
    const std::string reason = fmt::format("its lifeline ended: {}", why);
    LifelineFailure message;
    message.exit_code = exit_code_;
    set_field(message.text, reason);
    if (!exit_at_) say_to_all(message);
    links_.clear();
    const std::string line = fmt::format("rank {} (host {}, pid {}) failed: {}; exit code {}", options_.rank, options_.host, getpid(),
                                         reason, exit_code_);
    LifelineVerdict verdict{line, exit_code_};
    if (!exit_at_ && !failed_self_ && options_.on_failure) options_.on_failure(verdict);
    const std::lock_guard lock(mutex_);
    if (!verdict_) verdict_ = std::move(verdict);
  } catch (...) {  // the process ends below
  }
  changed_.notify_all();
  if (!wait_for_end(deadline - monotonic_seconds())) _exit(exit_code_);
}

// Whether the process has come to its end by itself within `seconds`.
bool LifelineThread::wait_for_end(double seconds) noexcept {
  const double deadline = monotonic_seconds() + seconds;
  const auto is_asked = [&] {
    const std::lock_guard lock(mutex_);
    return std::any_of(orders_.begin(), orders_.end(), [](const Order& order) { return std::holds_alternative<End>(order); });
  };
  while (!end_at_ && !is_asked()) {
    if (monotonic_seconds() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace trident
