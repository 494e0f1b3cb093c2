// Ranks of a plan as threads on CPUs, for tests that look at every step themselves.
#pragma once

#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/support/error_text.h"
#include "train/plan/machine.h"
#include "train/run/rank_trainer.h"

namespace trident::testing {

// `config`: JSON text without "data" and "run.steps"; `settings`: --set arguments on top.
inline RunPlan cpu_plan(const std::string& config, const std::vector<std::string>& settings) {
  const TrainConfig parsed = parse_train_config(config, "test", plus({"run.steps=1000", "data.train=unused"}, settings));
  return make_run_plan(parsed, resolve_model(parsed), 0, cpu_machine_facts(1));
}

// body(rank, trainer) of every rank at the same time.
template <class Body>
void on_cpu_ranks(const RunPlan& plan, Body body) {
  ThreadWorld world(plan.world_size(), /*timeout_seconds=*/60.0);
  run_thread_ranks(world, [&](int rank) {
    CpuDevice device(world.doorbell(rank), CpuDeviceOptions{});
    RankTrainer trainer(plan, device, world.communicator(rank, device.progress()));
    body(rank, trainer);
    trainer.drain();
  });
}

// Master weights of all shards of a rank.
inline std::vector<float> masters_of(const ParamStore& store) {
  std::vector<float> all;
  for (const ParamShard& shard : store.shards()) {
    const float* const values = shard.master.as<float>();
    all.insert(all.end(), values, values + shard.master.num_elements());
  }
  return all;
}

}  // namespace trident::testing
