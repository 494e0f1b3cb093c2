#include "train/launch/run_forward.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "parallel/communicator/launcher.h"
#include "parallel/mpi/process_world.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/launch/prepare_run.h"
#include "train/launch/rank_devices.h"
#include "train/launch/start_up.h"
#include "train/plan/preflight.h"
#include "train/run/arena_check.h"
#include "train/run/run_manifest.h"
#include "train/run/run_together.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// Enough for stages to be busy together; one where there is one stage.
std::int64_t micro_batches_for(std::int64_t stages) { return stages == 1 ? 1 : 2 * stages; }

ForwardInputs prepare(ForwardModel model, int world_size, const MachineFacts& machine) {
  TrainConfig& config = model.config;
  if (world_size == 0) check_thread_ranks(config);
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t replica = parallel.tensor * parallel.context * parallel.pipeline;
  const std::int64_t data = parallel.data.ranks.value_or(std::max<std::int64_t>(1, world_size / replica));
  config.batch.global = config.batch.micro * data * micro_batches_for(parallel.pipeline);
  ForwardInputs inputs;
  inputs.plan = forward_only(make_run_plan(config, resolve_model(config), world_size, machine));
  check_initial_model(config, stored_tensors(inputs.plan), model.checkpoint);
  const auto needs_of = [&](const RunPlan& plan) {
    return arena_needs(plan, dry_stages_here(plan, machine.device, DryWork::kConstruct));
  };
  check_arenas(inputs.plan, needs_of(inputs.plan));
  inputs.model = std::move(model);
  return inputs;
}

void run_as_threads(const std::function<ForwardModel()>& read, const ForwardWork& work, LogSink& log, CudaBackend& cuda) {
  ForwardModel model = read();
  const int ranks = static_cast<int>(ranks_of(model.config.parallel));
  const AskedDevice asked = model.config.device;
  const DeviceChoice choice = choose_device(asked, cuda, look_for_cards(asked, cuda, thread_ranks(ranks)));
  const ForwardInputs inputs = prepare(std::move(model), 0, machine_facts(choice, ranks));
  const Logger logger(log);
  ThreadWorld world(inputs.plan.world_size());
  run_thread_ranks(world, [&](int rank) {
    RankDeviceOptions options;
    options.seat = rank;
    options.cuda = inputs.plan.config.cuda;
    options.threads_per_rank = inputs.plan.threads_per_rank;
    const std::unique_ptr<Device> device = make_rank_device(choice, cuda, world.doorbell(rank), options);
    work({inputs, *device, world.communicator(rank, device->progress()), on_device(choice, cuda, *device, DeviceTransport::kThread),
          logger});
  });
}

// What ranks that are processes agree on before they have devices.
struct Agreed {
  ForwardInputs inputs;
  DeviceChoice choice;
};

Agreed agree(const std::function<ForwardModel()>& read, ProcessWorld& world, CudaBackend& cuda) {
  ForwardModel model;
  run_together(world, [&] { model = read(); });
  const AskedDevice asked = model.config.device;
  const bool any_sees_cards = first_rank(world, sees_cards(asked, cuda)) >= 0;
  const RunRanks ranks =
      any_sees_cards ? RunRanks{{world.rank()}, [&](const std::string& mine) { return world.all_gather(mine); }} : thread_ranks(1);
  CardSearch found = look_for_cards(asked, cuda, ranks);
  Agreed agreed;
  run_together(world, [&] { agreed.choice = choose_device(asked, cuda, std::move(found)); });
  const StartUpFacts mine = facts_of_this_process(model.config, world.local_size(), agreed.choice);
  compare_start_up(world, mine);
  const MachineFacts machine = weakest(world, world.node(), mine);
  run_together(world, [&] { agreed.inputs = prepare(std::move(model), world.size(), machine); });
  return agreed;
}

void run_rank(const Agreed& agreed, ProcessWorld& world, const ForwardWork& work, LogSink& log, CudaBackend& cuda) {
  const RunPlan& plan = agreed.inputs.plan;
  RankDeviceOptions options;
  options.threads_per_rank = plan.threads_per_rank;
  options.cuda = plan.config.cuda;
  options.host_memory = [&](std::int64_t bytes, const std::string& name) { return world.allocate(bytes, name); };
  const std::unique_ptr<Device> device = make_rank_device(agreed.choice, cuda, world.doorbell(), options);
  const TransportChoice transport = choose_transport(static_cast<std::size_t>(world.size()), agreed.choice.found.cards.size());
  const Logger logger(log);
  work({agreed.inputs, *device, world.communicator(device->progress()),
        on_device(agreed.choice, cuda, *device, transport.transport), logger});
}

void run_as_process(const std::function<ForwardModel()>& read, const ForwardWork& work, LogSink& log, CudaBackend& cuda) {
  const std::unique_ptr<ProcessWorld> world = join_process_world();
  try {
    const Agreed agreed = agree(read, *world, cuda);
    run_rank(agreed, *world, work, log, cuda);
  } catch (const AgreedError& error) {
    log.write(LogLevel::kInfo, "trident: ", error.what());  // before anybody ends: launchers kill the rest as soon as one has
    world->finish();
    throw ReportedElsewhere(error.code(), error.what());
  } catch (const ReportedElsewhere&) {
    world->finish();
    throw;
  } catch (const Error& error) {
    world->fail(fmt::format("rank {} failed: {}", world->rank(), error.what()));
    throw;
  }
  world->finish();
}

// "DIR/100" means DIR/step-00000100.
std::string checkpoint_path(const std::string& path) {
  const std::filesystem::path given(path);
  const std::string last = given.filename().string();
  if (last.empty() || last.size() > 18 || !std::ranges::all_of(last, [](char c) { return c >= '0' && c <= '9'; })) return path;
  const std::string named = (given.parent_path() / checkpoint_name(std::atoll(last.c_str()))).string();
  return std::filesystem::exists(path) ? path : named;
}

// How many sequences are given at once is decided later (prepare); until then one micro-batch is all, whatever its size.
std::vector<std::string> with_global_batch(std::vector<std::string> settings) {
  constexpr std::string_view kMicro = "batch.micro=";
  for (std::size_t i = 0, given = settings.size(); i < given; ++i)
    if (settings[i].starts_with(kMicro)) settings.push_back("batch.global=" + settings[i].substr(kMicro.size()));
  return settings;
}

}  // namespace

ForwardModel forward_model_of_checkpoint(const std::string& path, const std::vector<std::string>& settings, std::string_view key) {
  ForwardModel model;
  model.key = key;
  model.path = path;
  model.checkpoint = find_weights(checkpoint_path(path), key);
  const std::string source = model.checkpoint.folder + "/" + std::string(kManifestName);
  JsonValue config = model.checkpoint.manifest.config;
  // How it was trained says nothing of how it is to be run, and nothing is dropped.
  const auto erase = [](JsonValue& object, std::initializer_list<std::string_view> keys) {
    std::erase_if(object.members(), [&](const JsonMember& member) { return std::ranges::find(keys, member.key) != keys.end(); });
  };
  erase(config, {"parallel", "recompute", "elastic", "eval", "checkpoint", "debug"});
  if (JsonValue* const architecture = config.find("model")) architecture->set("dropout", 0);
  if (JsonValue* const data = config.find("data")) erase(*data, {"valid", "split"});
  if (JsonValue* const batch = config.find("batch"))
    batch->set("global", batch->find("micro") == nullptr ? JsonValue(1) : *batch->find("micro"));
  model.config = parse_train_config(to_json_text(config), source, with_global_batch(settings));
  return model;
}

ForwardModel forward_model_of_hf(const std::string& path, const std::vector<std::string>& settings, std::string_view key) {
  ForwardModel model;
  model.key = key;
  model.path = path;
  model.checkpoint = find_hf_weights(path, key);
  const std::int64_t sequence = std::min(kFolderSequence, model_of_hf(path).max_positions);
  // Nothing is trained, so that nothing is dropped either, and nothing says who made its tokens.
  const std::string config = fmt::format(
      R"({{"model": {{"hf_config": {0}, "dropout": 0}}, "run": {{"steps": 1}}, "batch": {{"global": 1, "micro": 1,)"
      R"( "sequence": {1}}}, "data": {{"train": {0}, "tokenizer": null}}}})",
      to_json_text(JsonValue(path)), sequence);
  model.config = parse_train_config(config, path, with_global_batch(settings));
  return model;
}

void run_forward(const std::function<ForwardModel()>& read, const ForwardWork& work, LogSink& log, CudaBackend& cuda) {
  const Launcher launcher = detect_launcher([](const char* name) { return std::getenv(name); });
  switch (launcher.kind) {
    case Launcher::Kind::kNone: return run_as_threads(read, work, log, cuda);
    case Launcher::Kind::kMpi: return run_as_process(read, work, log, cuda);
    case Launcher::Kind::kPlainSrun: refuse_unconnected_processes(launcher);
  }
}

}  // namespace trident
