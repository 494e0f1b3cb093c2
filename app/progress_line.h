// How far a long command is: on a terminal one line drawn in place, elsewhere a line now and then.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "train/log/console.h"

namespace trident {

// Writes to a stream that outlives it; used by one thread.
class ProgressLine {
 public:
  ProgressLine(std::ostream& out, ConsoleMode mode, double start_seconds)
      : out_(out), mode_(mode), start_seconds_(start_seconds), drawn_seconds_(start_seconds) {}
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "[=====>     ]  45%  ETA 0:12  TEXT", five times a second at most; not on a terminal "45%  ETA 0:12  TEXT", every ten seconds
  // at most. The time left is extrapolated from the start.
  void update(std::int64_t done, std::int64_t total, const std::string& text, double now_seconds);
  // Takes the line away from a terminal.
  void finish();

 private:
  std::ostream& out_;
  ConsoleMode mode_;
  double start_seconds_, drawn_seconds_;
  bool shown_ = false;
};

}  // namespace trident
