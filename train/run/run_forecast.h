// The forecast of a run, by a price of its step (planner/predict, which stands above): the run asks before its first
// step, after evaluations and saves, and after its last step.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "train/run/run_report.h"

namespace trident {

// Where a run computes.
struct RunHardware {
  DeviceKind device = DeviceKind::kCpu;
  std::vector<std::string> gpus = {};  // names of all that it computes on, each GPU once
  int ranks_of_node = 1;
  int ranks_of_process = 1;  // of rank 0's
  int cores_of_node = 0;     // that its ranks keep busy at once
};

class RunForecast {
 public:
  virtual ~RunForecast() = default;

  // Asked by rank 0 alone, on its thread. None throws because something cannot be priced: lines and values say so.

  // Before the first step.
  struct Predicted {
    std::array<double, kNumAxes> bytes_sent{};  // in a step by all ranks, by axis
    JsonValue step;                             // of plan.json
  };
  virtual Predicted predicted() = 0;

  // With log.report, after evaluations and saves and at the end: leaves last_step.json in the run directory, for reports.
  // `last_step`: collect_last_step(). StorageError.
  virtual void show_step(std::int64_t step, const std::vector<std::vector<InstructionTimes>>& last_step) = 0;
  // After the last step: the closing lines that put what was predicted beside what was measured. Leaves
  // comparison.json in the run directory; what cannot be written is a line.
  virtual LogLines compare(const RunSummary& summary) = 0;
};

}  // namespace trident
