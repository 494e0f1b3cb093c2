#include "train/dry_run.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/dry/dry_device.h"
#include "parallel/dry_communicator.h"
#include "train/rank_trainer.h"

namespace trident {

DryRun dry_step(const RunPlan& plan, int rank, Ops* oracle) {
  DryDevice device(oracle);
  RankTrainer trainer(plan, device, make_dry_world(rank, plan.world_size()));
  trainer.context().reset_bytes_sent();
  trainer.step([](std::int64_t, std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) {});
  return {trainer.arena_plan(), trainer.context().bytes_sent()};
}

std::array<double, kNumAxes> dry_bytes_sent(const RunPlan& plan) {
  const int stages = plan.grid.degrees().pipeline;
  std::array<double, kNumAxes> all{};
  for (int stage = 0; stage < stages; ++stage) {
    const DryRun one = dry_step(plan, plan.grid.rank({.pipeline = stage}), nullptr);
    for (std::size_t axis = 0; axis < all.size(); ++axis) all[axis] += one.bytes_sent[axis] * (plan.world_size() / stages);
  }
  return all;
}

}  // namespace trident
