#include "train/launch/run_training.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "core/host_name.h"
#include "parallel/communicator/launcher.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/config/rank_count.h"
#include "train/launch/failure_file.h"
#include "train/launch/prepare_run.h"
#include "train/launch/process_rank.h"
#include "train/launch/rank_devices.h"
#include "train/plan/preflight.h"
#include "train/run/checkpoint_dir.h"
#include "train/run/earlier_run.h"
#include "train/run/rank_loop.h"
#include "train/run/stop_request.h"

namespace trident {
namespace {

// Threads are one process, that of rank 0; which of them failed first stands in the message.
// Where another run writes, it is not this one that failed.
void leave_failure(const std::string& run_dir, const Error& error) {
  try {
    refuse_if_written(run_dir);
    write_failure(
        run_dir,
        {.rank = 0, .host = host_name(), .cause = "failed", .exit_code = exit_status(error.code()), .message = error.what(),
         .start = start_given()});
  } catch (const Error&) {
    return;  // of the two errors the first is the one to be told
  }
}

void run_as_threads(TrainConfig config, const TrainOutput& output, CudaBackend& cuda, const TrainHooks& hooks) {
  const StopRequest stop;
  const int ranks = static_cast<int>(ranks_of(config.parallel));
  const DeviceChoice choice = choose_device(config.device, cuda, look_for_gpus(config.device, cuda, thread_ranks(ranks)));
  check_nccl_register(config.cuda, choice, ranks,
                      {DeviceTransport::kThread, ranks == 1 ? "the rank is a thread of this process"
                                                            : fmt::format("the {} ranks are threads of this process", ranks)});
  if (hooks.check_profile) hooks.check_profile(config, choice.kind);
  check_run_folder(config.run.dir);
  std::optional<MadeFolder> made_folder;
  std::string checkpoint_fault;
  if (saves_checkpoints(config)) {
    made_folder.emplace(checkpoint_folder_of(config));
    checkpoint_fault = fault_unless(config.checkpoint.every_was_given, [&] { check_checkpoint_dir(checkpoint_folder_of(config)); });
  }
  RunOrigin origin{.resume = find_resume(config)};
  LaunchSite place;
  place.gpus = choice.found.gpus;
  if (origin.resume)
    adopt_if_sound(config, *origin.resume, place, machine_facts(choice, ranks), hooks.find_samples);
  else
    origin.initial = find_initial(config);
  config.run.id = run_id_for(config, origin.resume);
  RunInputs inputs = prepare_run(config, place, machine_facts(choice, ranks), std::move(origin), hooks.find_samples);
  inputs.checkpoint_fault = checkpoint_fault;
  check_run_dir(config, inputs.resume);
  const RunHardware hardware{choice.kind, choice.found.gpus, inputs.local_ranks, inputs.plan.world_size(),
                             machine_facts(choice, ranks).core_share.at_once()};
  const std::unique_ptr<RunForecast> outlook = hooks.outlook ? hooks.outlook(inputs, hardware) : nullptr;
  const int threads = inputs.plan.threads_per_rank;
  RunEnd end;  // of rank 0, the same on every rank
  std::atomic<bool> trained{false};
  ThreadWorld world(inputs.plan.world_size());
  const auto run_rank = [&](int rank) {
    RankDeviceOptions options;
    options.gpu_slot = rank;
    options.cuda = config.cuda;
    options.threads_per_rank = threads;
    if (inputs.first_core) options.first_core = *inputs.first_core + rank * threads;
    const std::unique_ptr<Device> device = make_rank_device(choice, cuda, world.doorbell(rank), options);
    RankServices services;
    services.stop = &stop;
    if (rank == 0) services.outlook = outlook.get();
    services.on_device = on_device(choice, cuda, *device, DeviceTransport::kThread);
    services.trained = [&, rank](const RunEnd& of_rank) {
      if (rank != 0) return;  // rank 0 writes the last step's metrics after the others are done with it
      end = of_rank;
      trained = true;
    };
    RankLoop(inputs, output, *device, world.communicator(rank, device->progress()), services).run();
  };
  try {
    run_thread_ranks(world, run_rank);
  } catch (const Error& error) {
    if (!trained) {
      made_folder.reset();  // a start that is refused leaves no folder, and no failure.json in one
      leave_failure(inputs.plan.config.run.dir, error);
      throw;
    }
    Logger(output.log).warning("{}", not_reported(error.what()));
  }
  if (end.exit_code() != 0) throw Error(static_cast<ExitCode>(end.exit_code()), end.message());
}

}  // namespace

void run_training(const std::function<TrainConfig()>& read_config, const TrainOutput& output, CudaBackend& cuda,
                  const TrainHooks& hooks) {
  const Launcher launcher = detect_launcher([](const char* name) { return std::getenv(name); });
  switch (launcher.kind) {
    case Launcher::Kind::kNone: return run_as_threads(read_config(), output, cuda, hooks);
    case Launcher::Kind::kMpi: return run_as_process(launcher, read_config, output, cuda, hooks);
    case Launcher::Kind::kPlainSrun: refuse_unconnected_processes(launcher);
  }
}

}  // namespace trident
