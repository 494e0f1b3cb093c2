// The kinds of spans in every timeline of a page: one name and one colour each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "report/timeline_data.h"

namespace trident {

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
