// Prices of Trident's own work on GPUs: what a dry rank calls, by the rates of a GPU and of the links between GPUs.
#pragma once

#include <string>

#include "planner/price/collective_cost.h"
#include "planner/price/gpu_rates.h"
#include "planner/price/work_prices.h"

namespace trident {

class GpuPrices final : public WorkPrices {
 public:
  // Throws ConfigError where the profile has no rates of fused attention.
  GpuPrices(const GpuRates& gpu, const ClusterLinks& links);

  double device_seconds(const RecordedOperation& operation) const override;
  double issue_seconds(const RecordedOperation& operation) const override;
  double seconds(const RecordedCollective& call, const GroupPlace& group) const override;
  bool joins_groups() const override { return true; }
  OverlapSlowdown slowdown() const override { return {gpu_.compute_slowdown, gpu_.network_slowdown}; }
  double step_seconds() const override { return 0; }

 private:
  GpuRates gpu_;
  ClusterLinks links_;
  std::string attention_;  // the fastest kernel of the profile
};

}  // namespace trident
