// The page of a run, or of several beside each other, from what their folders hold.
#pragma once

#include <string>
#include <vector>

#include "report/report_page.h"
#include "report/run_folder.h"
#include "report/table.h"

namespace trident {

// One line: "going on: step 71 of 1,500", "over: step 1,500 of 1,500", "failed: MESSAGE", "killed or cut off: step 71 of 1,500".
std::string state_text(const RunFolder& run);

// The runs below each other: what they trained, how far they came, and what they reached.
Table runs_table(const std::vector<RunFolder>& runs);

// Writes the page of the run whose folder this is into it, as report.html. As read_run_folder(), and StorageError.
void write_run_page(const std::string& folder);

// Where the files lack what a section is made of, the section is left out. At least one run.
ReportPage run_page(const std::vector<RunFolder>& runs);

}  // namespace trident
