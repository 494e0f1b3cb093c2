// A run's predictions beside its measurements, from values alone.
//
// A part of the step that can be predicted is not always one that can be measured. Parts that were measured together are compared
// together:
//   compute + recompute   what a backward makes again is in its time
//   pp + bubble           a rank that waits for a message does not know whether it is under way
// On CPUs a rank's own thread moves what gathers, reductions and messages move, whenever it looks at them: in the time of computes
// that work cannot be told from theirs, and so it is predicted in them, as far as the prices say that they are slowed down.
//
// With fewer cores than ranks a wall time says how long ranks waited for cores. Then what the processors worked is compared, over
// the ranks that can work at once, and all of an instruction's communication is in its work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "planner/price/step_price.h"
#include "report/table.h"
#include "train/log/step_times.h"
#include "train/run/run_report.h"

namespace trident {

// Seconds of a step and a rank, mean over the ranks.
struct PredictedStep {
  std::string profile;  // whose rates they are
  TimeParts parts;      // they add up to the step
  double slowed = 0;    // of the dp part: computes are longer, because of gathers and reductions beside them
  double moving = 0;    // gathers, reductions and messages by themselves, hidden or not
  double updating = 0;  // norm and update by themselves
  double bubble_over_ideal = 0;
};

// Predicts a simulated step. `price`: price_step()'s answer by `prices`.
PredictedStep predicted_step(const std::string& profile, const RecordedStep& step, const StepPrice& price,
                             const WorkPrices& prices);
// {"profile", "seconds", "parts": {"compute", ...}, "bubble_over_ideal"}, of plan.json.
JsonValue to_json(const PredictedStep& step);

// Bytes.
struct PredictedMemory {
  std::int64_t arena = 0;                // of the rank that has most
  std::optional<std::int64_t> resident;  // of rank 0's process; nothing: not predicted
};

// A run's summary, and where it computed.
struct MeasuredRun : RunSummary {
  bool one_machine = false;       // all nodes are, each of which takes its cores for its own
  bool profile_of_another = false;  // processor than the run's
  int ranks = 1, stages = 1;
  double ranks_at_once = 1;  // that have cores, or a GPU, to themselves
  bool on_host = true;           // what instructions take is in their times; on GPUs these are of their issue
  double bubble_of_flops = 0;    // if FLOPs alone took time: predicted where no step is
};

struct ComparedPart {
  std::vector<TimePart> parts;  // together
  double predicted = 0, measured = 0;
};

struct Comparison {
  bool by_processor = false;  // times are of processors, else of the wall clock
  double step_wall = 0;       // seconds that a step took by the wall clock
  bool has_pipeline = false;  // else lines and tables say nothing of the bubble, though ranks may wait for each other
  double steps = 0, ranks = 0, ranks_at_once = 0;
  std::optional<PredictedStep> predicted;        // nothing: no prices; then there are no times below
  std::string why_not;                           // a sentence's end: why there is none
  double step_predicted = 0, step_measured = 0;  // seconds
  bool first_step_alone = false;
  std::string not_judged;                        // why times are shown and not judged; "": they are
  // The spread of the measured steps, where there are several and the wall clock counts.
  std::optional<NumberRange> spread;
  // The prediction lies within the middle half of the measured steps: they differ by more than it is off.
  bool among_repeats() const { return spread && step_predicted >= spread->low && step_predicted <= spread->high; }
  // worked_beside_others() of the measured step.
  std::optional<double> worked;
  std::vector<ComparedPart> parts;                          // empty where they are not measured; else they add up to the step
  std::optional<double> bubble_predicted, bubble_measured;  // over ideal
  PredictedMemory memory_predicted, memory_measured;

  // Named are parts of the step that are off by more than this share of the measured step, or, where only the whole step is,
  // the part that is off most; the bubble and memory by the same share of themselves.
  static constexpr double kNamedAbove = 0.1;
  struct Off {
    std::string what;
    std::string predicted, measured;  // with units
    bool of_time = false;             // of a part of the step
  };
  std::vector<Off> off() const;
};

// CPU seconds of a rank's own thread in a measured step, where with its waiting for ranks they are less than nine tenths of it:
// then other work had the cores, and by the step's wall time nothing can be said of the rank. Nothing: it had its cores to itself.
// Threads that help a rank do not count: they sleep between their parts, its own works in all of them, and where they are late
// because others have their cores, it sleeps.
std::optional<double> worked_beside_others(const StepTimes& times);

// `why_not`: where there is no `step`.
Comparison compare(const std::optional<PredictedStep>& step, const std::string& why_not, const PredictedMemory& memory,
                   const MeasuredRun& run);

// "more than 10 % off: compute, 2.81 ms predicted and 3.98 ms measured", and of times, where repeats differ by more than that, that
// they do: a line for each of off().
std::vector<std::string> off_lines(const Comparison& comparison);

// Closing lines of a run; the last that are shown name what is off.
LogLines to_lines(const Comparison& comparison);
// Their table: what, predicted, measured, how far off.
Table comparison_table(const Comparison& comparison);
// comparison.json, docs/logs.md.
JsonValue to_json(const Comparison& comparison);

}  // namespace trident
