#include "train/launch/run_forward.h"

#include <algorithm>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/counted.h"
#include "core/json_reader.h"
#include "train/config/option_values.h"
#include "train/config/rank_count.h"
#include "train/launch/job.h"
#include "train/plan/preflight.h"
#include "train/run/adopt.h"
#include "train/run/dry_run.h"
#include "train/run/run_manifest.h"
#include "train/run/stored_model.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

constexpr std::string_view kMicro = "batch.micro=", kInitFrom = "model.init_from=";

// Reads from --set where the base of a checkpoint lies now.
std::optional<std::string> given_base(const std::vector<std::string>& settings) {
  std::optional<std::string> given;
  for (const std::string& setting : settings)
    if (setting.starts_with(kInitFrom)) given = setting.substr(kInitFrom.size());
  return given;
}

void refuse_base_setting(const std::vector<std::string>& settings, const std::string& weights) {
  if (const std::optional<std::string> given = given_base(settings))
    throw ConfigError(
        fmt::format("--set {}{}: {} has all weights, so that it has no effect; leave it out", kInitFrom, *given, weights));
}

bool gives_micro(const std::vector<std::string>& settings) {
  return std::ranges::any_of(settings, [](const std::string& setting) { return setting.starts_with(kMicro); });
}

// Enough for stages to be busy together; one where there is one stage.
std::int64_t micro_batches_for(std::int64_t stages) { return stages == 1 ? 1 : 2 * stages; }

ForwardInputs prepare(ForwardModel model, int world_size, const MachineFacts& machine, const ForwardKind& kind) {
  TrainConfig& config = model.config;
  config.train = {};  // nothing trains
  if (world_size == 0) check_thread_ranks(config);
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t replica = ranks_of_a_replica(parallel);
  const std::int64_t data = parallel.data.value_or(std::max<std::int64_t>(1, world_size / replica));
  const std::int64_t wanted = config.batch.micro;
  ForwardInputs inputs;
  for (;; config.batch.micro /= 2) {
    config.batch.global = config.batch.micro * data * micro_batches_for(parallel.pipeline);
    inputs.plan = kind.plan(make_run_plan(config, resolve_model(config), world_size, machine));
    if (!model.checkpoint.folder.empty()) check_initial_model(config, stored_tensors(inputs.plan), model.checkpoint);
    try {
      kind.check_memory(inputs.plan, arena_needs(inputs.plan, dry_stages_here(inputs.plan, machine.device, DryWork::kConstruct)));
      break;
    } catch (const ConfigError&) {
      if (!model.halves_micro || config.batch.micro == 1) throw;
    }
  }
  if (config.batch.micro < wanted)
    model.checkpoint.notes.push_back(fmt::format("{} of {} tokens at a time, because there is too little memory for {}",
                                                 counted(config.batch.micro, "sequence"), config.batch.sequence, wanted));
  inputs.model = std::move(model);
  return inputs;
}

// How many sequences are given at once is decided later (prepare); until then one micro-batch is all, whatever its size.
std::vector<std::string> with_global_batch(std::vector<std::string> settings) {
  for (std::size_t i = 0, given = settings.size(); i < given; ++i)
    if (settings[i].starts_with(kMicro)) settings.push_back("batch.global=" + settings[i].substr(kMicro.size()));
  return settings;
}

TrainConfig with_settings(const JsonValue& config, const std::string& source, const std::vector<std::string>& settings) {
  OptionValues values;
  values.take_file(config, source, UnknownKeys::kPassedOver);
  values.take_settings(settings);
  TrainConfig made = make_train_config(values);
  // A run's own null means that nobody named one; one that is asked for here means that there is none.
  made.data.tokenizer_was_auto = values.at("data.tokenizer").origin != "--set";
  return made;
}

// The ranks' configuration of a run's, `config`: how it was trained says nothing of how it is to be run, and nothing is dropped.
// Keys that only training reads are left out, so that they cannot contradict what is asked for here. How long sequences are is
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
  const Manifest& manifest = model.checkpoint.manifest;
  if (manifest.base.empty()) refuse_base_setting(settings, model.checkpoint.folder);
  open_base(model.checkpoint, given_base(settings));
  model.config = config_for_forward(manifest.config, source, settings);
  const bool has_micro = manifest.config.get("batch").find("micro") != nullptr;
  const bool records_it = has_micro && manifest.writer.find("converted_from") == nullptr;
  model.halves_micro = !records_it && !gives_micro(settings);
  return model;
}

ForwardModel forward_model_of_hf(const std::string& path, const std::vector<std::string>& settings, std::string_view key,
                                 const std::string& adapter) {
  ForwardModel model;
  model.key = key;
  model.path = path;
  refuse_base_setting(settings, path);
  model.checkpoint = find_hf_weights(path, key, adapter);
  model.config = config_for_forward(config_of_hf(model.checkpoint), path, settings);
  model.halves_micro = !gives_micro(settings);
  return model;
}

ForwardModel forward_model_of_config(const std::string& path, const std::vector<std::string>& settings, std::string_view key,
                                     ConfigWeights weights) {
  // They say what is wrong with a key, by line, also with one that does not count here; how such keys fit together is training's.
  OptionValues values;
  values.take_file(read_json_file(path), path);
  values.take_settings(with_stored_model(path, {}));
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
  open_base(newest, run.model.init_from);
  const TrainConfig saved = config_for_forward(newest.manifest.config, newest.folder + "/" + std::string(kManifestName), settings);
  const std::int64_t tokens = resolve_model(saved).vocab_size;  // the run may have added some to those of its folder
  if (run.model.init_from && tokens > resolve_model(model.config).vocab_size) model.config.model.keys.set("vocab_size", tokens);
  if (const auto difference = model_difference(resolve_model(model.config), resolve_model(saved)))
    throw ConfigError(fmt::format("{} {}: its model's {} is {}, and {} is of a model with {}; name the checkpoint that is meant in "
                                  "--ckpt, or ask for random weights with --random-weights",
                                  key, path, difference->path, difference->a, newest.folder, difference->b));
  newest.notes.push_back(fmt::format("weights of {}, the newest checkpoint of the run of {}", newest.folder, path));
  model.checkpoint = std::move(newest);
  return model;
}

void refuse_unused_settings(const std::vector<std::string>& settings, std::initializer_list<std::string_view> more,
                            std::string_view why_more) {
  constexpr std::string_view kOfTraining[] = {
      "optimizer", "lr_schedule",   "checkpoint",      "elastic",    "eval",       "log",        "recompute",    "run.dir",
      "run.steps", "run.epochs",    "run.overwrite",   "run.max_minutes", "data.train", "data.valid", "data.split", "data.shuffle",
      "batch.global"};
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
  ForwardInputs inputs;
  std::optional<int> first_core;
  Job job(log, cuda);
  job.agree([&] {
    ForwardModel model;
    job.begin("reads what is to be done and compares it with the others'");
    job.together([&] { model = read(); });
    const MachineFacts machine = job.agree_on_machine(model.config);
    job.together([&] { inputs = prepare(std::move(model), job.site().world_size, machine, kind); });
    const LaunchSite site = job.site();
    const int local_ranks = site.local_ranks > 0 ? site.local_ranks : inputs.plan.world_size();
    if (inputs.plan.config.run.pin) first_core = first_core_here(site, machine, local_ranks, inputs.plan.threads_per_rank);
  });
  if (job.is_first())
    for (const std::string& note : inputs.model.checkpoint.notes) Logger(log).info("{}", note);
  RankDeviceOptions devices;
  devices.cpu.threads_per_rank = inputs.plan.threads_per_rank;
  devices.cpu.first_core = first_core;
  devices.cpu.small_products = kind.small_products;
  devices.cpu.bf16_products = inputs.plan.bf16_products();
  devices.cuda = inputs.plan.config.cuda;
  job.run(devices, [&](JobRank rank) { work(inputs, std::move(rank)); });
}

}  // namespace trident
