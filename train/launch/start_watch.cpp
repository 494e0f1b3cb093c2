#include "train/launch/start_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/clock.h"

namespace trident {

StartWatch::StartWatch(const char* stage, StartWatchOptions options)
    : options_(std::move(options)), stage_(stage), since_(monotonic_seconds()), next_line_(since_ + options_.first_seconds) {
  thread_ = std::thread([this] { watch(); });
}

StartWatch::~StartWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartWatch::next(const char* stage) {
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  since_ = monotonic_seconds();
  next_line_ = since_ + options_.first_seconds;
}

void StartWatch::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const double due = std::min(next_line_, since_ + options_.most_seconds) - monotonic_seconds();
    if (changed_.wait_for(lock, std::chrono::duration<double>(std::max(due, 0.0)), [this] { return ends_; })) return;
    const double now = monotonic_seconds(), seconds = now - since_;
    if (seconds >= options_.most_seconds) return options_.end(line(seconds));
    if (now < next_line_) continue;  // another stage has begun
    next_line_ = now + options_.every_seconds;
    if (options_.speaks) options_.warn(line(seconds));
  }
}

std::string StartWatch::line(double seconds) const {
  return fmt::format(
      "the job has not begun: for {:.0f} s this rank {}; see whether a rank is late or its disk hangs, or a stranger holds a "
      "connection to an MPI port (ss -tnp on each node, btl_tcp_if_include)",
      seconds, stage_);
}

}  // namespace trident
