// A run of tiny models and prices by which sums are done by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "planner/predict/forecast.h"
#include "planner/predict/simulated_run_forecast.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"
#include "train/plan/machine.h"

namespace trident::testing {

// Every operation takes as long as its bytes at 1 GB/s, times `factor`; collectives at 0.1 GB/s.
class FakePrices final : public WorkPrices {
 public:
  explicit FakePrices(double factor = 1, std::string refused = "") : factor_(factor), refused_(std::move(refused)) {}
  double device_seconds(const RecordedOperation& operation) const override {
    if (operation.name == refused_) throw ConfigError("profile fake: no table operations " + refused_);
    return factor_ * 1e-9 * operation.bytes;
  }
  double issue_seconds(const RecordedOperation&) const override { return 0; }
  double seconds(const RecordedCollective& call, const GroupPlace&) const override {
    return 1e-8 * static_cast<double>(call.operand_bytes);
  }
  OverlapSlowdown slowdown() const override { return {1.5, 1.5}; }
  double step_seconds() const override { return 1e-4; }

 private:
  double factor_;
  std::string refused_;
};

inline RunInputs inputs_of(const std::vector<std::string>& settings) {
  const TrainConfig config = parse_train_config(
      tiny_llama_config(), "test",
      plus({"run.dir=" + ::testing::TempDir() + "comparison", "run.steps=1", "data.train=unused"}, settings));
  RunInputs inputs;
  inputs.plan = make_run_plan(config, resolve_model(config), 0, kAnyMachine);
  for (const DryRun& stage : dry_stages(inputs.plan, nullptr, DryWork::kConstruct))
    inputs.dry_arenas.push_back(stage.arena.total_bytes());
  inputs.ranks_at_once = inputs.plan.world_size();
  return inputs;
}

inline RunInputs grid() { return inputs_of({"parallel=2DP x 2PP x 2TP", "recompute.policy=full"}); }

}  // namespace trident::testing
