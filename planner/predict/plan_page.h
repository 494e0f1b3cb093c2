// The page of `trident plan cluster --html`: the report with the step as a timeline to zoom, memory over its time, and where time
// and memory go.
#pragma once

#include "planner/predict/cluster_report.h"
#include "report/report_page.h"

namespace trident {

ReportPage page_of(const ClusterReport& report);

// GB of a rank (below 1 GB: MB) over the seconds of a step, of some of the stages.
LinePlot memory_over_time(const ClusterReport& report);

}  // namespace trident
