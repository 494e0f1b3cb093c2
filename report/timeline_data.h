// A step as a picture to zoom: rows of spans over time, drawn by assets/timeline.js.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/palette.h"

namespace trident {

struct TimelineSpan {
  static constexpr std::int32_t kNoNumber = -1;

  double start = 0, end = 0;  // seconds from the left end; those of a lane do not overlap and rise
  bool beside = false;  // in the lower lane of its row, for what runs beside; the upper one is tall
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

// The kinds of spans in every timeline of a page: one name and one colour each.
enum class SpanKind : std::int32_t {
  kForward,
  kForwardOdd,
  kBackward,
  kBackwardOdd,
  kWeights,
  kWaiting,
  kGather,
  kReduce,
  kUpdate,
  kNorm,
  kTie
};
inline constexpr std::size_t kNumSpanKinds = 11;

// All of them, for Timeline::kinds with spans whose kind is a SpanKind; leave_out_unused() then takes those away that no span is
// of.
std::array<LegendKey, kNumSpanKinds> span_kinds();

// Kinds that no span has go, and spans are numbered anew.
void leave_out_unused(Timeline& timeline);

}  // namespace trident
