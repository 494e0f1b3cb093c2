// A step as a picture to zoom: rows of spans over time, drawn by assets/timeline.js.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/palette.h"

namespace trident {

enum class TimelineLane : std::uint8_t {
  kUpper,
  kLower
};  // of a row: the upper one is tall, the lower one for what runs beside it

struct TimelineSpan {
  static constexpr std::int32_t kNoNumber = -1;

  double start = 0, end = 0;  // seconds from the left end; those of a lane do not overlap and rise
  TimelineLane lane = TimelineLane::kUpper;
  std::int32_t kind = 0;            // index into kinds
  std::string what;                 // for the tooltip: "forward of block 3"
  std::int32_t number = kNoNumber;  // of the micro-batch: in the tooltip, and on the span where it fits
};

struct TimelineRow {
  std::string name;  // short: "stage 0"
  std::vector<TimelineSpan> spans;
};

struct Timeline {
  std::string title;
  std::vector<LegendKey> kinds;
  std::vector<TimelineRow> rows;
};

// {"title", "end": nanoseconds, "kinds": [[name, hue], ...], "what": [texts], "rows": [{"name", "lanes": [lane, lane]}]}; a lane is
// {"start", "length", "kind", "what", "number"}, arrays of integers: nanoseconds, indices into kinds and texts. Safe in a script.
std::string timeline_json(const Timeline& timeline);

}  // namespace trident
