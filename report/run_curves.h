// The curves of runs over their steps.
#pragma once

#include <vector>

#include "report/report_page.h"
#include "report/run_folder.h"

namespace trident {

// A plot of each value that a run has logged, with one line a run, and dots where later starts of a single run began.
ReportSection curves_section(const std::vector<RunFolder>& runs);

}  // namespace trident
