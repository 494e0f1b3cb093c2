// `trident plan --cluster`: a configuration on GPUs that need not be here.
#pragma once

#include <cstdint>
#include <string>

#include "train/forecast/cluster_report.h"
#include "train/launch/cluster_question.h"
#include "train/launch/plan_report.h"

namespace trident {

struct ClusterAnswer {
  PlanReport report;
  ClusterReport priced;
};

// Writes the files that are asked for. Throws ConfigError: an unknown cluster (the message lists them), GPUs that are no whole
// nodes or replicas, a configuration that cannot be; StorageError.
ClusterAnswer plan_on_cluster(const TrainConfig& config, const ClusterQuestion& question);

enum class PlanForm : std::uint8_t { kText, kJson, kCsv };
// What is printed: text and JSON go on where those of a plan without a cluster end; the JSON has "cluster" as well.
std::string to_text(const ClusterAnswer& answer, PlanDetail detail, PlanForm form);

}  // namespace trident
