// A study's rows as a table for people, as JSON and as CSV.
#pragma once

#include <string>

#include "core/json_reader.h"
#include "planner/study/study_result.h"
#include "report/report_page.h"
#include "report/table.h"

namespace trident {

// A row for each point: what it is, then its numbers and a remark, or why it cannot be. Parts that no row has are left out; times
// are seconds of a step.
Table table_of(const StudyResult& result);

// Title, configuration, models, batches, hardware, what is held fixed; the table; causes.
std::string to_text(const StudyResult& result, std::size_t columns = std::string::npos);

// {"study", "config", "set": [...], "models": [...], "batches": [...], "hardware", "counted_as" ("GPU", or "rank" of processors:
// what "gpus" are), "scaling", "held_fixed": [...], "rows": [{"arm", "settings": {key: value}, "gpus", "possible", ...}],
//  "causes": [...]}. A row that cannot be has "reason", others: "replicas", "micro_batches", "parameters", "tokens_per_step",
// "step_s", "parts_s" {part: s}, "tokens_per_s", "tokens_per_s_per_gpu", "mfu" (null: no peak known), "bubble_over_ideal",
// "memory_bytes", "optimizer_bytes", "memory_there_bytes" (null: not known), "fits", "tight", "bytes_sent" {axis: bytes of a GPU},
// "gathers", "reductions" (of a unit in a step), "efficiency" (null: nothing to compare with), "of_first"; of executed points
// "measured_s", "measured_over_predicted", "measured_memory_bytes", and "worked_s" (of a rank, where other work had the cores);
// points that were not executed have "not_run".
JsonValue to_json(const StudyResult& result);

// The same rows with the same names, nested ones joined by '_'; a first line of names; commas, RFC 4180.
std::string to_csv(const StudyResult& result);

// A study's rows as pictures.

// Where the number of GPUs varies: efficiency over it, a line for each combination of other settings. Else the step's time by part,
// a bar for each row. Rows that cannot be are left out; ConfigError where none can be.
std::string study_svg(const StudyResult& result);

// Everything that to_text() says, with efficiency and tokens/s over GPUs where these vary, and time by part.
ReportPage page_of(const StudyResult& result);

}  // namespace trident
