// What `trident plan --cluster --html` writes: the report with the step as a timeline to zoom, memory over its time, and where time
// and memory go.
#pragma once

#include <cstddef>
#include <string>

#include "train/forecast/cluster_report.h"
#include "train/report/report_page.h"

namespace trident {

ReportPage page_of(const ClusterReport& report);

// A row for each pipeline stage: above what its rank computes, below its gathers and reductions. More than so many computes: those
// that follow each other for one micro-batch of a virtual stage are one span.
inline constexpr std::size_t kMostTimelineSpans = 60'000;
Timeline timeline_of(const RunPlan& plan, const Forecast& forecast, std::size_t most_spans = kMostTimelineSpans);

// GB of the device over the seconds of a step, of some of the stages.
LinePlot memory_over_time(const ClusterReport& report);

}  // namespace trident
