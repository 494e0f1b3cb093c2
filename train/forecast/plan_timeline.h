// A simulated step as the timeline of a report.
#pragma once

#include <cstddef>

#include "train/forecast/forecast.h"
#include "train/report/timeline_data.h"

namespace trident {

// A row for each pipeline stage: above what its rank computes, below its gathers and reductions. More than so many computes: those
// that follow each other for one micro-batch of a virtual stage are one span.
inline constexpr std::size_t kMostTimelineSpans = 60'000;
Timeline timeline_of(const RunPlan& plan, const Forecast& forecast, std::size_t most_spans = kMostTimelineSpans);

}  // namespace trident
