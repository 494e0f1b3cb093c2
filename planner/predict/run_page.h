// report.html of a run: its curves, its last step beside the simulated one, memory, and what was predicted beside what was
// measured. Of values alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "pipeline/schedule/step_program.h"
#include "planner/predict/comparison.h"
#include "report/report_page.h"

namespace trident {

// When an instruction ran, and how long of it its rank waited.
struct StepSpan {
  double start = 0, end = 0, waited = 0;  // seconds
};

// What instructions of each pipeline rank do over time; of a long step the first `most_spans` instructions of a rank, which the
// title then says. Where a rank waited within an instruction is not known: it is drawn at its beginning.
Timeline step_timeline(const std::string& title, const std::vector<StepProgram>& programs,
                       const std::vector<std::vector<StepSpan>>& spans, std::size_t most_spans = 20000);

struct RunPageFacts {
  std::string title, subtitle;
  std::vector<std::string> lines;         // what the run says of itself
  std::vector<JsonValue> metrics, evals;  // lines of metrics.jsonl and eval.jsonl
  JsonValue memory;                       // memory.json, or null
  Comparison comparison;
  std::vector<Timeline> timelines;
};

// Where the files lack what a section is made of, the section is left out.
ReportPage run_page(const RunPageFacts& facts);

}  // namespace trident
