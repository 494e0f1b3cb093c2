// log.prometheus: where a run is, in the text format that node_exporter's textfile collector reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/log/metrics.h"

namespace trident {

// Absent values have no line.
struct RunGauges {
  std::string run;  // run.dir, the label of every value
  std::int64_t steps = 0;  // run.steps
  double time = 0;         // unix seconds
  std::optional<StepMetrics> logged;  // the newest step that has a line
  std::optional<double> valid_loss;
  std::optional<std::int64_t> checkpoint;  // the step of the newest one
  std::optional<double> checkpoint_time;   // unix seconds; absent: an earlier start wrote it
};

// "# HELP", "# TYPE" and a value for each: trident_step, trident_loss, ...
std::string prometheus_text(const RunGauges& gauges);

}  // namespace trident
