// `trident plan cluster`: a configuration on GPUs, or on processors, that need not be here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "planner/predict/cluster_forecast.h"
#include "planner/predict/dry_plan.h"
#include "report/report_page.h"

namespace trident {

// The question.
struct ClusterQuestion {
  std::string cluster;      // a name or a file, as find_cluster() takes it; empty: none is asked for
  int gpus = 0;             // 0: as many as the configuration's degrees say
  double tokens = 0;        // to train on; 0: those of run.steps
  std::string trace;        // a file to write; empty: none
  std::function<void(ReportPage page)> take_page = {};
  std::size_t columns = std::string::npos;  // of tables in text
};

// "cpu", the profile that comes with the program, "this-machine", rates_of_this_machine() on all its cores, or the path of a file
// that trident bench --calibrate wrote; nothing where the name means something else. Throws ConfigError: a bad file.
std::optional<PlanHardware> find_processors(std::string_view name_or_path);

enum class PlanForm : std::uint8_t { kText, kJson, kCsv };

// Returns the text to print; writes the trace and gives the page away. Text: the verdict, advice, then what a plan without a
// cluster says and everything by part. JSON: that of a plan without a cluster, with "cluster" as well. Throws ConfigError: an
// unknown cluster (the message lists them), GPUs that are no whole nodes or replicas, a configuration that cannot be, a table that
// a profile lacks; StorageError.
std::string plan_on_cluster(const TrainConfig& config, const ClusterQuestion& question, PlanDetail detail, PlanForm form);

}  // namespace trident
