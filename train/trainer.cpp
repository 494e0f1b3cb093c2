#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "parallel/launcher.h"
#include "parallel/thread_world.h"
#include "train/earlier_run.h"
#include "train/process_rank.h"
#include "train/rank_devices.h"
#include "train/rank_loop.h"
#include "train/run_inputs.h"
#include "train/stop_request.h"

namespace trident {
namespace {

void run_as_threads(const TrainConfig& config, const TrainOutput& output, CudaBackend& cuda) {
  const StopRequest stop;
  const int ranks = static_cast<int>(ranks_of(config.parallel));
  const DeviceChoice choice = choose_device(config.device, cuda, look_for_cards(config.device, cuda, thread_ranks(ranks)));
  check_nccl_register(config.cuda, choice, ranks, {DeviceTransport::kThread, fmt::format("the {} ranks are threads of this process", ranks)});
  check_earlier_run(config);
  RunPlace place;
  place.cards = choice.found.cards;
  RunInputs inputs = prepare_run(config, place, machine_facts(choice, ranks));
  const int threads = inputs.plan.threads_per_rank;
  std::atomic<int> stopped_by{0};  // the same on every rank
  std::atomic<bool> trained{false};
  ThreadWorld world(inputs.plan.world_size());
  const auto run_rank = [&](int rank) {
    RankDeviceOptions options;
    options.seat = rank;
    options.cuda = config.cuda;
    options.threads_per_rank = threads;
    if (inputs.first_core) options.first_core = *inputs.first_core + rank * threads;
    const std::unique_ptr<Device> device = make_rank_device(choice, cuda, world.doorbell(rank), options);
    RankServices services;
    services.stop = &stop;
    services.on_device = on_device(choice, cuda, *device, DeviceTransport::kThread);
    services.trained = [&, rank](int signal) {
      stopped_by = signal;
      if (rank == 0) trained = true;  // which writes the last step's metrics after the others are done with it
    };
    RankLoop(inputs, output, *device, world.communicator(rank, device->progress()), services).run();
  };
  try {
    run_thread_ranks(world, run_rank);
  } catch (const Error& error) {
    if (!trained) throw;
    Logger(output.log).warning("{}", not_reported(error.what()));
  }
  if (stopped_by != 0) throw stopped_by_signal(stopped_by);
}

}  // namespace

void run_training(const std::function<TrainConfig()>& read_config, const TrainOutput& output, CudaBackend& cuda) {
  const Launcher launcher = detect_launcher([](const char* name) { return std::getenv(name); });
  switch (launcher.kind) {
    case Launcher::Kind::kNone: return run_as_threads(read_config(), output, cuda);
    case Launcher::Kind::kMpi: return run_as_process(launcher, read_config, output, cuda);
    case Launcher::Kind::kPlainSrun: refuse_unconnected_processes(launcher);
  }
}

}  // namespace trident
