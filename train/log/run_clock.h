// The clock of one start of a run, by which its JSONL logs and its console tell time.
#pragma once

#include <string>

#include "core/clock.h"

namespace trident {

class RunClock {
 public:
  double elapsed() const { return monotonic_seconds() - start_; }  // seconds of this start

  // "14:03:59", local time.
  static std::string time_of_day() { return local_time_text("%H:%M:%S"); }
  // `object`, a line of JSON without its end, with "time" (unix seconds, UTC) and "elapsed_s" as its last members, and the end.
  std::string stamped(std::string object) const;

 private:
  double start_ = monotonic_seconds();
};

}  // namespace trident
