// The process takes what the arenas plan and little more: resident memory of a model of 60M parameters on two thread ranks.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>

#include <unistd.h>

#include "device/cpu/cpu_device.h"
#include "model/config/model_stats.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/support/layout_run.h"
#include "train/plan/machine.h"

namespace trident::contracts {
namespace {

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(ResidentMemory, IsThePlanWithinFivePercentAnd64MB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  const TrainConfig config = parse_train_config(
      R"({"run": {"dir": "unused", "steps": 10}, "model": {"preset": "llama-60m"}, "data": {"train": "unused"},
          "parallel": {"data": 2, "zero": "zero1"}, "batch": {"global": 2, "micro": 1, "sequence": 32},
          "precision": {"compute": "fp32"}, "optimizer": {"lr": 1e-3}})", "test");
  const ModelConfig model = resolve_model(config);
  ASSERT_GE(num_parameters(model), 60'000'000);
  const RunPlan plan = make_run_plan(config, model, 0, cpu_machine_facts(1));
  const LoadSamples load = testing::random_tokens(model.vocab_size, config.batch.sequence);

  const std::int64_t before = resident_bytes();
  std::int64_t planned = 0, used = 0;
  std::mutex mutex;
  ThreadWorld world(plan.world_size(), /*timeout_seconds=*/60.0);
  run_thread_ranks(world, [&](int rank) {
    CpuDevice device(world.doorbell(rank), CpuDeviceOptions{});
    RankTrainer trainer(plan, device, world.communicator(rank, device.progress()));
    trainer.step(load);
    {
      const std::lock_guard lock(mutex);
      planned += trainer.arena().planned_bytes();
    }
    trainer.drain();
    if (rank == 0) used = resident_bytes() - before;
    trainer.drain();  // nobody leaves before it was read
  });
  const double allowed = 0.05 * static_cast<double>(planned) + 64e6;
  RecordProperty("planned_bytes", std::to_string(planned));
  RecordProperty("resident_bytes", std::to_string(used));
  EXPECT_NEAR(static_cast<double>(used), static_cast<double>(planned), allowed);
}

}  // namespace
}  // namespace trident::contracts
