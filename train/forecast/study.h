// Prices the points of a study.
#pragma once

#include <cstdint>
#include <string>

#include "plan/cluster.h"
#include "plan/work_prices.h"
#include "train/forecast/study_result.h"
#include "train/plan/run_plan.h"

namespace trident {

// What points are planned for and priced on.
struct StudyHardware {
  std::string name;
  const WorkPrices* prices = nullptr;  // outlives the study
  MachineFacts machine;                // as make_run_plan() takes it
  double peak_flops = 0;               // of a rank, in 16 bits; 0: not known
  const Cluster* cluster = nullptr;    // of cards; nullptr: ranks are threads of a machine, and share memory_bytes
  std::int64_t memory_bytes = 0;       // 0: not known
};

// GPUs of `cluster`, which outlives the result; `prices` are of them.
StudyHardware hardware_of(const Cluster& cluster, const WorkPrices& prices);

// One row for each point, whether it can be or not; with comparisons and causes. A point that cannot be (ConfigError of its
// configuration, its plan, or the cluster) has its reason. Throws ConfigError where none of the points' configurations can be read.
StudyResult run_study(const StudySpec& spec, const StudyHardware& hardware);

}  // namespace trident
