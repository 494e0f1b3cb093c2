// The time of a training step: what dry ranks recorded gets prices, and their programs run with them.
//
// A rank is its streams: one that computes (and carries tensor-parallel collectives), one for gathers and reductions; messages
// between pipeline ranks occupy no stream. What the step programs wait for, the simulated streams wait for; computing and
// communicating at once slows both by the prices' factors (step_simulation.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/at.h"
#include "parallel/grid/process_grid.h"
#include "pipeline/schedule/step_program.h"
#include "planner/price/program_loops.h"
#include "planner/price/step_simulation.h"
#include "planner/price/work_prices.h"
#include "train/plan/step_record.h"

namespace trident {

// A step before it has prices. One rank stands for each pipeline stage, that of tp 0 and dp 0: the others do as much.
struct RecordedStep {
  ProcessGrid grid{ParallelDegrees{}};
  bool overlap = true;
  std::vector<StepProgram> programs;  // by pipeline rank
  std::vector<StepRecord> records;    // likewise
};

// A step of more micro-batches than its programs are written with: what loops of them repeat has the passes that stand there once.
struct LoopedStep {
  RecordedStep step;
  std::vector<ProgramLoops> loops;  // by pipeline rank
  int micro_batches = 1;            // of the step
};

// Where the seconds of a rank go. The parts of each rank add up to the step.
enum class TimePart : std::uint8_t {
  kCompute,    // forward and backward, without what follows
  kRecompute,  // forward work done again
  kTensor,     // tensor-parallel collectives, which nothing hides
  kPipeline,   // waiting for messages under way
  kData,       // waiting for gathers and reductions
  kBubble,     // waiting for work of other stages
  kOptimizer,  // norm and update
  kLaunch,     // the host issues more slowly than the device computes
  kOther,      // beside the recorded work
};
inline constexpr std::size_t kNumTimeParts = 9;
std::string_view to_string(TimePart part);  // "compute", "recompute", "tp", "pp", "dp", "bubble", "optimizer", "launch", "other"

struct TimeParts {
  std::array<double, kNumTimeParts> seconds{};
  double operator[](TimePart part) const { return at(seconds, part); }
  double& operator[](TimePart part) { return at(seconds, part); }
  double total() const;
};

struct StepPrice {
  double seconds = 0;
  std::vector<TimeParts> ranks;                      // by pipeline rank
  std::vector<std::vector<TaskTimes>> spans;         // by pipeline rank, of each instruction of its program; not of a LoopedStep
  double bubble_over_ideal = 0;                      // of forwards and backwards, as StepTimeline counts it

  // The rank that waits least for others: what it does is what the step takes.
  std::size_t busiest() const;
};

// Throws InternalError where programs and records do not belong together. Where ranks share `cores`, only `seconds` and `spans` say
// so: the parts are those of ranks with cores of their own.
StepPrice price_step(const RecordedStep& step, const WorkPrices& prices, const SharedCores& cores = {});
// Likewise, of all micro-batches: the same but for rounding as the step written out.
StepPrice price_step(const LoopedStep& step, const WorkPrices& prices);

// Seconds of one pass by part, without what it waits for: kCompute, kRecompute, kTensor and kLaunch.
TimeParts price_pass(const PassRecord& pass, const ProcessGrid& grid, const WorkPrices& prices);

// Where the ranks of a recorded collective's group lie: in the grid's order of ranks, by its axis, or the sub-axis in its name.
GroupPlace place_of(const RecordedCollective& call, const ProcessGrid& grid);

// The names of the parts of a step: one table for reports, tables, JSON and sentences.
struct TimePartWords {
  std::string_view name;     // to_string(): of tables and JSON, "tp"
  std::string_view title;    // of pictures, "tensor parallel"
  std::string_view meaning;  // beside a number
  std::string_view cause;    // "most of it by ...", "... s more are ..."
};
const TimePartWords& part_words(TimePart part);

}  // namespace trident
