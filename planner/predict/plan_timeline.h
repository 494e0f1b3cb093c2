// A simulated step as the timeline of a report.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/executor.h"
#include "planner/predict/forecast.h"
#include "report/timeline_data.h"
#include "train/plan/run_plan.h"

namespace trident {

// The kind of an instruction's span, and its lane, simulated or measured. Nothing for instructions that have none.
std::optional<SpanKind> span_kind(const Instruction& instruction, int stages);
bool runs_beside(SpanKind kind);

// A row for each pipeline stage: above what its rank computes, below its gathers and reductions. More than so many computes: those
// that follow each other for one micro-batch of a virtual stage are one span.
inline constexpr std::size_t kMostTimelineSpans = 60'000;
Timeline timeline_of(const RunPlan& plan, const Forecast& forecast, std::size_t most_spans = kMostTimelineSpans);

// Draws the instructions of each pipeline rank over time; of a long step the first `most_spans` instructions of a rank, which the
// title then says. Where a rank waited within an instruction is not known: it is drawn at its beginning.
Timeline step_timeline(const std::string& title, const std::vector<StepProgram>& programs,
                       const std::vector<std::vector<InstructionTimes>>& spans, std::size_t most_spans = 20000);

// Writes step 1 as the trace that a measured one would be: one rank of each stage, as a grid of pipeline ranks alone. The others do
// as much at the same times. Throws StorageError.
void write_plan_trace(const std::string& path, const RunPlan& plan, const Forecast& forecast);

}  // namespace trident
