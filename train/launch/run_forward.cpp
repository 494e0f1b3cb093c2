#include "train/launch/run_forward.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/json_reader.h"
#include "parallel/communicator/launcher.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/config/option_values.h"
#include "train/config/rank_count.h"
#include "train/launch/prepare_run.h"
#include "train/launch/rank_devices.h"
#include "train/launch/rank_lifeline.h"
#include "train/launch/start_up.h"
#include "train/plan/preflight.h"
#include "train/run/adopt.h"
#include "train/run/dry_run.h"
#include "train/run/run_manifest.h"
#include "train/run/run_together.h"
#include "train/run/stored_model.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// Enough for stages to be busy together; one where there is one stage.
std::int64_t micro_batches_for(std::int64_t stages) { return stages == 1 ? 1 : 2 * stages; }

void say_notes(const ForwardModel& model, const Logger& logger) {
  for (const std::string& note : model.checkpoint.notes) logger.info("{}", note);
}

ForwardInputs prepare(ForwardModel model, int world_size, const MachineFacts& machine, const ForwardKind& kind) {
  TrainConfig& config = model.config;
  if (world_size == 0) check_thread_ranks(config);
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t replica = ranks_of_a_replica(parallel);
  const std::int64_t data = parallel.data.ranks.value_or(std::max<std::int64_t>(1, world_size / replica));
  config.batch.global = config.batch.micro * data * micro_batches_for(parallel.pipeline);
  ForwardInputs inputs;
  inputs.plan = kind.plan(make_run_plan(config, resolve_model(config), world_size, machine));
  if (!model.checkpoint.folder.empty()) check_initial_model(config, stored_tensors(inputs.plan), model.checkpoint);
  kind.check_memory(inputs.plan, arena_needs(inputs.plan, dry_stages_here(inputs.plan, machine.device, DryWork::kConstruct)));
  inputs.model = std::move(model);
  return inputs;
}

void run_as_threads(const std::function<ForwardModel()>& read, const ForwardWork& work, LogSink& log, CudaBackend& cuda,
                    const ForwardKind& kind) {
  ForwardModel model = read();
  const int ranks = static_cast<int>(ranks_of(model.config.parallel));
  const AskedDevice asked = model.config.device;
  const DeviceChoice choice = choose_device(asked, cuda, look_for_gpus(asked, cuda, thread_ranks(ranks)));
  const ForwardInputs inputs = prepare(std::move(model), 0, machine_facts(choice, ranks), kind);
  const Logger logger(log);
  say_notes(inputs.model, logger);
  ThreadWorld world(inputs.plan.world_size());
  run_thread_ranks(world, [&](int rank) {
    RankDeviceOptions options;
    options.gpu_slot = rank;
    options.cuda = inputs.plan.config.cuda;
    options.threads_per_rank = inputs.plan.threads_per_rank;
    options.small_products = kind.small_products;
    const std::unique_ptr<Device> device = make_rank_device(choice, cuda, world.doorbell(rank), options);
    work({inputs, *device, world.communicator(rank, device->progress()), on_device(choice, cuda, *device, DeviceTransport::kThread),
          logger, nullptr});
  });
}

// This process as one rank of a job, from joining to parting.
class ForwardProcess {
 public:
  ForwardProcess(const Launcher& launcher, LogSink& log, CudaBackend& cuda, const ForwardKind& kind)
      : log_(log),
        logger_(log),
        cuda_(cuda),
        kind_(kind),
        start_watch_(std::in_place, "joins the other ranks", start_watch_options(logger_)),
        world_(join_job(launcher)) {}

  ~ForwardProcess() {
    start_watch_.reset();
    lifeline_.reset();
  }
  ForwardProcess(const ForwardProcess&) = delete;
  ForwardProcess& operator=(const ForwardProcess&) = delete;

  void agree(const std::function<ForwardModel()>& read) {
    agree_in_job(*world_, [&] { prepare_together(read); }, [this](const std::string& line) { say(line); });
  }

  // The work, with deaths noticed.
  void run(const ForwardWork& work) {
    start_watch_->next("connects its lifeline");
    const auto end = [](const LifelineVerdict& verdict) { end_with(verdict); };
    const auto connect_and_work = [&] {
      connect_lifeline(*lifeline_, *world_);
      start_watch_.reset();
      run_rank(work);
      // Rank 0 has the result, which it prints when it is no longer in the job: a rank that is held here is ended with a failure's
      // code, because rank 0 may be ended, too. Others may die.
      part_from_job(*lifeline_, *world_, logger_, exit_status(ExitCode::kCommunication), end);
    };
    const auto told = [this](std::string_view error, ExitCode code) { report(error, code); };
    work_under_lifeline(*lifeline_, connect_and_work, told, end);
  }

 private:
  void prepare_together(const std::function<ForwardModel()>& read) {
    ForwardModel model;
    start_watch_->next("reads what is to be done and compares it with the others'");
    run_together(*world_, [&] { model = read(); });
    const AskedDevice asked = model.config.device;
    const bool any_sees_gpus = first_rank(*world_, sees_gpus(asked, cuda_)) >= 0;
    const RunRanks ranks = any_sees_gpus
                               ? RunRanks{{world_->rank()}, [&](const std::string& mine) { return world_->all_gather(mine); }}
                               : thread_ranks(1);
    GpuSearch found = look_for_gpus(asked, cuda_, ranks);
    run_together(*world_, [&] { choice_ = choose_device(asked, cuda_, std::move(found)); });
    const StartUpFacts mine = facts_of_this_process(model.config, world_->local_size(), choice_);
    compare_start_up(*world_, mine);
    const MachineFacts machine = weakest(*world_, world_->node(), mine);
    run_together(*world_, [&] { inputs_ = prepare(std::move(model), world_->size(), machine, kind_); });
    run_together(*world_, [&] { lifeline_.emplace(lifeline_options(*world_, logger_)); });
  }

  void run_rank(const ForwardWork& work) {
    RankDeviceOptions options;
    options.threads_per_rank = inputs_.plan.threads_per_rank;
    options.cuda = inputs_.plan.config.cuda;
    options.small_products = kind_.small_products;
    options.host_memory = [&](std::int64_t bytes, const std::string& name) { return world_->allocate(bytes, name); };
    if (world_->rank() == 0) say_notes(inputs_.model, logger_);
    const std::unique_ptr<Device> device = make_rank_device(choice_, cuda_, world_->doorbell(), options);
    device->progress().set_wait_observer([this](double seconds, FunctionRef<std::string()> describe) {
      lifeline_->board().set_waiting(describe(), seconds);
    });
    const TransportChoice transport = choose_transport(static_cast<std::size_t>(world_->size()), choice_.found.gpus.size());
    work({inputs_, *device, world_->communicator(device->progress()), on_device(choice_, cuda_, *device, transport.transport),
          logger_, &lifeline_->board()});
  }

  void say(const std::string& message) { log_.write(LogLevel::kInfo, "trident: ", message); }

  // Tells the others that this rank failed, unless they cannot be reached.
  void report(std::string_view error, ExitCode code) {
    if (lifeline_->report_failure(error, static_cast<int>(code))) throw ReportedElsewhere(code, std::string(error));
  }

  [[noreturn]] static void end_with(const LifelineVerdict& verdict) {
    throw ReportedElsewhere(static_cast<ExitCode>(verdict.exit_code), verdict.line);
  }

  LogSink& log_;
  const Logger logger_;
  CudaBackend& cuda_;
  const ForwardKind& kind_;
  std::optional<StartWatch> start_watch_;  // until the lifeline watches
  std::unique_ptr<ProcessWorld> world_;
  DeviceChoice choice_;
  ForwardInputs inputs_;
  std::optional<Lifeline> lifeline_;  // after the world: its thread wakes ranks through it
};

// How many sequences are given at once is decided later (prepare); until then one micro-batch is all, whatever its size.
std::vector<std::string> with_global_batch(std::vector<std::string> settings) {
  constexpr std::string_view kMicro = "batch.micro=";
  for (std::size_t i = 0, given = settings.size(); i < given; ++i)
    if (settings[i].starts_with(kMicro)) settings.push_back("batch.global=" + settings[i].substr(kMicro.size()));
  return settings;
}

TrainConfig with_settings(const JsonValue& config, const std::string& source, const std::vector<std::string>& settings) {
  OptionValues values;
  values.take_file(config, source, UnknownKeys::kPassedOver);
  for (const std::string& setting : settings) values.take_setting(setting);
  return make_train_config(values);
}

// The ranks' configuration of a run's, `config`: how it was trained says nothing of how it is to be run, and nothing is dropped.
// What only training reads is left out, so that nothing in it can contradict what is asked for here. How long sequences are is
// decided by who runs the model: whether tensor ranks can share them out is no matter yet.
TrainConfig config_for_forward(JsonValue config, const std::string& source, const std::vector<std::string>& given) {
  const auto erase = [](JsonValue& object, std::initializer_list<std::string_view> keys) {
    std::erase_if(object.members(), [&](const JsonMember& member) { return std::ranges::find(keys, member.key) != keys.end(); });
  };
  erase(config, {"parallel", "recompute", "optimizer", "lr_schedule", "elastic", "eval", "checkpoint", "log", "debug"});
  if (JsonValue* const precision = config.find("precision")) erase(*precision, {"loss_scale", "stochastic_rounding"});
  if (JsonValue* const architecture = config.find("model")) architecture->set("dropout", 0);
  if (JsonValue* const data = config.find("data")) erase(*data, {"valid", "split"});
  if (JsonValue* const batch = config.find("batch"))
    batch->set("global", batch->find("micro") == nullptr ? JsonValue(1) : *batch->find("micro"));
  std::vector<std::string> settings = with_global_batch(given);
  settings.emplace_back("parallel.sequence_parallel=false");
  const TrainConfig whole = with_settings(config, source, settings);
  settings.back() = fmt::format("batch.sequence={}", whole.parallel.tensor);
  TrainConfig made = with_settings(config, source, settings);
  made.batch.sequence = whole.batch.sequence;
  return made;
}

}  // namespace

ForwardModel forward_model_of_checkpoint(const std::string& path, const std::vector<std::string>& settings, std::string_view key) {
  ForwardModel model;
  model.key = key;
  model.path = path;
  model.checkpoint = find_weights(path, key);
  const std::string source = model.checkpoint.folder + "/" + std::string(kManifestName);
  model.config = config_for_forward(model.checkpoint.manifest.config, source, settings);
  return model;
}

ForwardModel forward_model_of_hf(const std::string& path, const std::vector<std::string>& settings, std::string_view key) {
  ForwardModel model;
  model.key = key;
  model.path = path;
  model.checkpoint = find_hf_weights(path, key);
  model.config = config_for_forward(config_of_hf(model.checkpoint.folder), path, settings);
  return model;
}

ForwardModel forward_model_of_config(const std::string& path, const std::vector<std::string>& settings, std::string_view key,
                                     ConfigWeights weights) {
  // They say what is wrong with a key, by line, also with one that does not count here; how such keys fit together is training's.
  OptionValues values;
  values.take_file(read_json_file(path), path);
  for (const std::string& setting : with_stored_model(path, {})) values.take_setting(setting);
  const TrainConfig run = unvalidated_config(values);
  ForwardModel model;
  model.key = key;
  model.path = path;
  model.config = config_for_forward(read_json_file(path), path, with_stored_model(path, settings));
  const std::string folder = checkpoint_folder_of(run);
  if (weights == ConfigWeights::kRandom) return model;
  if (checkpoint_steps(folder).empty()) {
    model.checkpoint.notes = {fmt::format("weights are random, because the run of {} has no checkpoint in {}; name one in --ckpt, "
                                          "or ask for random weights with --random-weights",
                                          path, folder)};
    return model;
  }
  Resume newest = find_weights(folder, "--ckpt");
  const TrainConfig saved = config_for_forward(newest.manifest.config, newest.folder + "/" + std::string(kManifestName), settings);
  if (const auto difference = model_difference(resolve_model(model.config), resolve_model(saved)))
    throw ConfigError(fmt::format("{} {}: its model's {} is {}, and {} is of a model with {}; name the checkpoint that is meant in "
                                  "--ckpt, or ask for random weights with --random-weights",
                                  key, path, difference->key, difference->a, newest.folder, difference->b));
  newest.notes.push_back(fmt::format("weights of {}, the newest checkpoint of the run of {}", newest.folder, path));
  model.checkpoint = std::move(newest);
  return model;
}

void refuse_unused_settings(const std::vector<std::string>& settings, std::initializer_list<std::string_view> more,
                            std::string_view why_more) {
  constexpr std::string_view kOfTraining[] = {
      "optimizer", "lr_schedule",   "checkpoint",      "elastic",    "eval",       "log",        "recompute",    "run.dir",
      "run.steps", "run.overwrite", "run.max_minutes", "data.train", "data.valid", "data.split", "data.shuffle", "batch.global",
      "model.init_from"};
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    const auto has_it = [&](std::string_view path) { return key == path || key.starts_with(fmt::format("{}.", path)); };
    if (std::ranges::any_of(kOfTraining, has_it))
      throw ConfigError(fmt::format("--set {}: nothing is trained, so that it has no effect; leave it out", setting));
    if (std::ranges::any_of(more, has_it))
      throw ConfigError(fmt::format("--set {}: {}; leave it out", setting, why_more));
  }
}

void run_forward(const std::function<ForwardModel()>& read, const ForwardWork& work, LogSink& log, CudaBackend& cuda,
                 const ForwardKind& kind) {
  const Launcher launcher = detect_launcher([](const char* name) { return std::getenv(name); });
  switch (launcher.kind) {
    case Launcher::Kind::kNone: return run_as_threads(read, work, log, cuda, kind);
    case Launcher::Kind::kMpi: {
      ForwardProcess self(launcher, log, cuda, kind);
      self.agree(read);
      return self.run(work);
    }
    case Launcher::Kind::kPlainSrun: refuse_unconnected_processes(launcher);
  }
}

}  // namespace trident
