#include "train/trainer.h"

#include <cstdlib>

#include "device/cpu/cpu_device.h"
#include "parallel/thread_world.h"
#include "train/rank_loop.h"
#include "train/run_inputs.h"

namespace trident {

void refuse_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || std::atoi(value) <= 1) continue;
    throw ConfigError(fmt::format("{} = {}: started by a launcher as one of several processes; this build runs its ranks as threads, start "
                                  "`trident train` once, without mpirun or srun -n", name, value));
  }
}

void run_training(const TrainConfig& config, const TrainOutput& output) {
  const RunInputs inputs = prepare_run(config);
  const int threads = static_cast<int>(config.run.threads_per_rank);
  ThreadWorld world(inputs.plan.world_size());
  run_thread_ranks(world, [&](int rank) {
    CpuDeviceOptions options;
    options.threads_per_rank = threads;
    if (inputs.first_core) options.first_core = *inputs.first_core + rank * threads;
    CpuDevice device(world.doorbell(rank), options);
    RankLoop(inputs, output, device, world.communicator(rank, device.progress())).run();
  });
}

}  // namespace trident
