// How far a long command is: on a terminal one line drawn in place, elsewhere a line now and then.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "app/subcommands.h"
#include "core/clock.h"

namespace trident {

// Writes to the context's standard error, so that what the command prints stays what it is. Used by one thread; lines that a log
// writes meanwhile take its place.
class ProgressLine {
 public:
  // `command`: what it is called on the line.
  ProgressLine(const CommandContext& context, std::string command, double start_seconds = monotonic_seconds());
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "eval  312/1024 windows  30%  ETA 0:12" with `text` in the middle, five times a second at most; not on a terminal the same
  // every 30 seconds at most. The time left is extrapolated from when nothing was done; a `total` of 0 is not known, and neither is
  // the time left.
  void update(std::int64_t done, std::int64_t total, const std::string& text, double now_seconds = monotonic_seconds());
  // The same with the text "312/1024 windows", or with the rate "1.2 GB/s".
  void count(std::int64_t done, std::int64_t total, const std::string& things);
  void bytes(std::int64_t done, std::int64_t total);
  // Takes the line away from a terminal.
  void finish();

 private:
  std::ostream& out_;
  const bool in_place_;
  std::string command_;
  double start_seconds_, due_seconds_;
  bool shown_ = false;
};

}  // namespace trident
