// What a run is predicted to take, by who can price a step (train/forecast, which stands above): the run asks before its first step
// and after its last one.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "train/run/run_report.h"

namespace trident {

class RunOutlook {
 public:
  virtual ~RunOutlook() = default;

  // Asked by rank 0 alone, on its thread. Neither throws because something cannot be priced: lines and values say so.

  // Before the first step.
  struct Predicted {
    std::array<double, kNumAxes> bytes_sent{};  // in a step by all ranks, by axis
    JsonValue step;                             // of plan.json
  };
  virtual Predicted predicted() = 0;

  // After the last step: the closing lines that put what was predicted beside what was measured. Leaves what it says in
  // `summary`'s run directory as well.
  virtual std::vector<std::string> compare(const RunSummary& summary) = 0;
};

}  // namespace trident
