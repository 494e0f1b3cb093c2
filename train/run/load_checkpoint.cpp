#include "train/run/load_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard_boxes.h"
#include "checkpoint/shard_reader.h"
#include "core/check.h"
#include "core/function_ref.h"
#include "core/json_reader.h"
#include "train/run/adopt.h"
#include "train/run/between_steps.h"
#include "train/run/resume.h"
#include "train/run/run_manifest.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// Whether the weights in use come from the checkpoint as they were, which may have been rounded at random.
bool has_weights_of(const Manifest& manifest, const RunPlan& plan) { return manifest.weights == plan.compute && plan.compute != DType::kF32; }

// A scale that was found for another format, or that the configuration fixes, is not that of this run.
LossScaler::State loss_scale_of(const Manifest& manifest, const RankTrainer& trainer) {
  const bool fixed = trainer.plan().config.precision.loss_scale.kind == LossScale::Kind::kFixed;
  if (manifest.weights != trainer.plan().compute || fixed) return trainer.loss_scaler().state();
  const TrainingState& state = manifest.state;
  return {state.loss_scale, state.loss_scale_clean_steps, static_cast<int>(state.loss_scale_overflows_left)};
}

// The masters, from the weights where there are none; or where nothing is trained the weights themselves.
ContentHashes read_values(const Resume& resume, RankModel& model, const Logger& logger) {
  Stream& stream = model.context().compute_stream();
  ContentHashes hashes;
  for (const std::string& line : read_weights(resume, model.store(), model.shard_holder(), model.device(), stream, &hashes))
    logger.warning("{}", line);
  return hashes;
}

// Reads the tensors that a checkpoint leaves in its base.
ContentHashes read_base(const Resume& resume, RankTrainer& trainer, const Logger& logger) {
  WeightsReader reader(resume);
  Stream& stream = trainer.context().compute_stream();
  const WriteValues write = [&](TensorView to, const void* from) { trainer.device().write(stream, to, from); };
  ContentHashes hashes;
  for (const ShardBox& box : boxes_held(trainer.store().shards(), trainer.shard_holder())) {
    if (!reader.leaves_in_base(box.tensor)) continue;
    const ParamShard& shard = trainer.store().shards()[box.shard];
    std::uint64_t* hash = box.written ? &hashes[box.tensor] : nullptr;
    const bool trains = shard.master.data() != nullptr;  // from here on
    if (trains) reader.read(WeightsReader::Values::kExact, box, shard.master, write, Narrowing::kRefused, hash);
    if (!trains || has_weights_of(resume.manifest, trainer.plan()))
      reader.read(WeightsReader::Values::kExact, box, shard.param, write, Narrowing::kRounded, trains ? nullptr : hash);
  }
  refuse_to_train(reader.odd_values());
  for (const std::string& line : reader.notes()) logger.warning("{}", line);
  return hashes;
}

// Collective. Adds up what all ranks have of the hashes of the plan's tensors.
ContentHashes sum_of(const ContentHashes& mine, const RunPlan& plan, ParallelContext& context) {
  const std::vector<ManifestTensor> tensors = stored_tensors(plan);
  std::vector<std::int64_t> halves;  // 32 bits each, so that sums have room
  for (const ManifestTensor& tensor : tensors) {
    const auto found = mine.find(tensor.name);
    const std::uint64_t hash = found == mine.end() ? 0 : found->second;
    halves.push_back(static_cast<std::int64_t>(hash & 0xffffffffu)), halves.push_back(static_cast<std::int64_t>(hash >> 32));
  }
  context.world().all_reduce(context.host_stream(), TensorView(halves.data(), DType::kI64, {std::ssize(halves)}), ReduceOp::kSum);
  ContentHashes sums;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    sums[tensors[t].name] = static_cast<std::uint64_t>(halves[2 * t]) + (static_cast<std::uint64_t>(halves[2 * t + 1]) << 32);
  return sums;
}

// Masters, weights in use and what the optimizer has.
void read_all(const Resume& resume, RankTrainer& trainer, const Logger& logger) {
  const Manifest& manifest = resume.manifest;
  ShardReader reader(resume.folder, manifest);
  if (!reader.lock_note().empty()) logger.warning("{}", reader.lock_note());
  Stream& stream = trainer.context().compute_stream();
  const WriteValues write = [&](TensorView to, const void* from) { trainer.device().write(stream, to, from); };
  const ParamStore& store = trainer.store();
  const std::vector<std::string> states_of_rule = state_keys(trainer.plan().config.optimizer.type);
  const bool has_weights = has_weights_of(manifest, trainer.plan());
  for (const ShardBox& box : boxes_held(store.shards(), trainer.shard_holder())) {
    const std::int64_t t = reader.find(box.tensor);
    if (t >= 0 && manifest.tensors[static_cast<std::size_t>(t)].base) continue;
    const ParamShard& shard = store.shards()[box.shard];
    const bool trains = shard.master.data() != nullptr;  // else frozen, in the compute dtype alone
    if (trains) reader.read(reader.exact_prefix(box.tensor), box, shard.master, write);
    if (has_weights) reader.read("", box, shard.param, write);
    else if (!trains) reader.read(reader.exact_prefix(box.tensor), box, shard.param, write, Narrowing::kRounded);
    // A tensor that was frozen begins without states.
    if (manifest.tensors[static_cast<std::size_t>(t)].frozen) continue;
    const std::vector<TensorView> states = trainer.optimizer_states(box.shard);
    for (std::size_t s = 0; manifest.complete && s < states.size(); ++s)
      reader.read(states_of_rule[s] + "/", box, states[s], write);
  }
  refuse_to_train(reader.odd_values());
}

// Names who asked for a checkpoint, for messages.
struct AskedBy {
  std::string_view key;
  std::string_view value;
};

// Says why `read` failed on one rank; nothing if it did not.
std::optional<Error> fault_in(const Resume& resume, const AskedBy& asked, const Logger& logger, FunctionRef<void()> read) {
  try {
    read_again(read, [&](const StorageError& error, double seconds) {
      logger.warning("{}; {} is read again in {} s", error.what(), resume.folder, seconds);
    });
    return std::nullopt;
  } catch (const NotPermitted& error) {
    return not_permitted(asked.key, asked.value, error);
  } catch (const Error& error) {
    return error;
  }
}

// One rank's error travels to all ranks as a text, behind a character that no path has.
constexpr char kErrorMark = '\0';
std::string to_text(const Error& error) { return fmt::format("{}{} {}", kErrorMark, exit_status(error.code()), error.what()); }
Error error_in(const std::string& text) {
  const std::size_t space = text.find(' ');
  return Error(static_cast<ExitCode>(std::stoi(text.substr(1, space))), text.substr(space + 1));
}
void throw_if_error(const std::string& text) {
  if (text.starts_with(kErrorMark)) throw error_in(text);
}

// Collective. All ranks throw what the first of them found.
void throw_if_any(const std::optional<Error>& fault, ParallelContext& context) {
  const int first = first_rank(context.world(), context.host_stream(), fault.has_value());
  if (first >= 0) throw_if_error(broadcast_text(context.world(), context.host_stream(), fault ? to_text(*fault) : "", first));
}

// Collective. Nothing takes the place of a checkpoint that one rank may not read, whatever the others found.
void throw_if_refused(const std::optional<Error>& fault, ParallelContext& context) {
  const bool refused = fault && (fault->system_error() == EACCES || fault->system_error() == EPERM);
  throw_if_any(refused ? fault : std::nullopt, context);
}

// The configuration that a run goes on with from `resume`, as it would have been asked for at the start.
TrainConfig adopted(const RunInputs& inputs, Resume& resume) {
  TrainConfig config = inputs.plan.config;
  adopt(config, resume);
  return config;
}

// Collective. Rank 0 looks for a checkpoint in the place of `damaged`, and all open it, and its base where `damaged` had none; all
// throw what rank 0 throws.
Resume open_older(const Resume& damaged, const AskedBy& asked, const std::optional<std::string>& init_from,
                  ParallelContext& context, FunctionRef<std::string()> find_folder) {
  std::string text;  // the folder, or why there is none
  if (context.rank() == 0) {
    try {
      text = find_folder();
    } catch (const Error& error) {
      text = to_text(error);
    }
  }
  text = broadcast_text(context.world(), context.host_stream(), text, 0);
  throw_if_error(text);
  Resume older{{text, open_found(text, asked.key, asked.value)}};
  if (damaged.base == nullptr) open_base(older, init_from);
  else if (!older.manifest.base.empty()) set_base(older, Resume{*damaged.base});
  return older;
}

// Collective. The newest valid checkpoint of steps below `step`, compared as the first was.
LoadedCheckpoint next_older(std::int64_t step, const RunInputs& inputs, ParallelContext& context) {
  const TrainConfig& asked = inputs.plan.config;
  const std::string from = to_string(asked.checkpoint.resume);
  std::vector<std::string> notes;
  Resume resume = open_older(*inputs.resume, {"checkpoint.resume", from}, asked.model.init_from, context, [&] {
    std::optional<Resume> older = find_resume(asked, step);
    if (!older)
      throw DataError(fmt::format(
          "{}: no older checkpoint is whole and one that this run goes on from; set checkpoint.resume to \"never\" to begin anew",
          checkpoint_folder_of(asked)));
    notes = older->notes;
    check_resumed_data(adopted(inputs, *older), inputs.training_facts(), *older);
    return older->folder;
  });
  resume.notes.insert(resume.notes.begin(), notes.begin(), notes.end());
  TrainConfig config = adopted(inputs, resume);
  return {std::move(resume), std::move(config)};
}

// Refuses another base of `from`, which `key` asked for, unless checkpoint.allow consents to it: by this key alone, because
// "model" is given for values of the model's configuration.
void check_base_for(const RunPlan& plan, const WeightsSource& from, const ContentHashes& hashes, int rank, const Logger& logger,
                    std::string_view key) {
  try {
    check_base(from, hashes, stored_tensors(plan));
  } catch (const ConfigError& error) {
    if (key == "reference" || std::ranges::count(plan.config.checkpoint.allow, "model.init_from") == 0) throw;
    if (key == "checkpoint.resume" && plan.config.loss.is_dpo())
      throw ConfigError(fmt::format("{}; checkpoint.allow does not consent to that where loss.type is \"dpo\": the reference's "
                                    "log-probabilities are of the old base; begin anew (--set run.overwrite=true --set "
                                    "checkpoint.resume=never)",
                                    error.what()));
    if (rank == 0)
      logger.warning("checkpoint.allow lists model.init_from, and the run goes on beside another base; leave the key out to have "
                     "this refused: {}",
                     error.what());
  }
}

// Collective. Reads the base of the checkpoint that was read, which no older checkpoint would replace. Returns all hashes.
ContentHashes load_base(const Resume& resume, RankTrainer& trainer, const Logger& logger) {
  TRIDENT_CHECK(resume.base != nullptr || resume.manifest.base.empty(), "{}: its base was not opened", resume.folder);
  if (resume.base == nullptr) return {};
  ParallelContext& context = trainer.context();
  ContentHashes hashes;
  throw_if_any(
      fault_in(resume, {"model.init_from", resume.base->folder}, logger, [&] { hashes = read_base(resume, trainer, logger); }),
      context);
  hashes = sum_of(hashes, trainer.plan(), context);
  check_base_for(trainer.plan(), resume, hashes, context.rank(), logger, "checkpoint.resume");
  return hashes;
}

// Collective. Weights alone; nothing takes the place of what cannot be read.
void load_initial(const Resume& initial, RankTrainer& trainer, const Logger& logger, const Say& say,
                  std::vector<ManifestTensor>& tensors) {
  const ContentHashes hashes =
      load_weights(initial, trainer.model(), logger, "model.init_from", trainer.plan().config.model.init_from.value_or(""));
  for (ManifestTensor& tensor : tensors)
    if (tensor.frozen) tensor.base = hashes.at(tensor.name);
  if (trainer.context().rank() != 0) return;
  for (const std::string& note : initial.notes) say(note);
  if (initial.hf != nullptr) {
    say(fmt::format("begins with the weights of {} (model.init_from), a Hugging Face folder in {}; optimizer, data and steps begin "
                    "anew",
                    initial.folder, to_string(initial.hf->common_dtype())));
    return;
  }
  const bool masters = initial.manifest.complete || initial.manifest.weights == DType::kF32;
  say(fmt::format("begins with the weights of {} (model.init_from), step {}{}; optimizer, data and steps begin anew", initial.folder, initial.manifest.state.updates,
                  masters ? "" : fmt::format(", which has them in {} only", to_string(initial.manifest.weights))));
}

// Collective. Publishes what read_values() has read on all ranks.
ContentHashes published(const Resume& from, const ContentHashes& mine, RankModel& model, const Logger& logger,
                        std::string_view key) {
  ContentHashes hashes = sum_of(mine, model.plan(), model.context());
  check_base_for(model.plan(), from, hashes, model.context().rank(), logger, key);
  if (model.store().trains())
    model.store().publish_masters();
  else
    model.store().publish_weights();
  return hashes;
}

// Collective. Rank 0 looks for what takes the place of `damaged`, in which the first rank that has a `fault` found it.
Resume older_weights(const Resume& damaged, const std::optional<Error>& fault, RankModel& model, const Logger& logger,
                     const AskedBy& asked) {
  ParallelContext& context = model.context();
  const int first = first_rank(context.world(), context.host_stream(), fault.has_value());
  const std::string text = broadcast_text(context.world(), context.host_stream(), fault ? to_text(*fault) : "", first);
  Resume older = open_older(damaged, asked, {}, context, [&] {
    const Resume found = find_older_weights(damaged, error_in(text), asked.key);
    check_initial_model(model.plan().config, stored_tensors(model.plan()), found);
    for (const std::string& note : found.notes) logger.warning("{}", note);
    return found.folder;
  });
  older.among = damaged.among;
  return older;
}

}  // namespace

ContentHashes load_weights(const Resume& from, RankModel& model, const Logger& logger, std::string_view key,
                           std::string_view value) {
  ContentHashes hashes;
  throw_if_any(fault_in(from, {key, value}, logger, [&] { hashes = read_values(from, model, logger); }), model.context());
  return published(from, hashes, model, logger, key);
}

Resume load_newest_weights(const Resume& newest, RankModel& model, const Logger& logger, std::string_view key,
                           std::string_view value) {
  ParallelContext& context = model.context();
  for (Resume from = newest;;) {
    ContentHashes hashes;
    const std::optional<Error> fault = fault_in(from, {key, value}, logger, [&] { hashes = read_values(from, model, logger); });
    if (first_rank(context.world(), context.host_stream(), fault.has_value()) < 0) {
      published(from, hashes, model, logger, key);
      return from;
    }
    throw_if_refused(fault, context);
    from = older_weights(from, fault, model, logger, {key, value});
  }
}

std::optional<LoadedCheckpoint> load_checkpoint(const RunInputs& inputs, RankTrainer& trainer, const Logger& logger, const Say& say,
                                                std::vector<ManifestTensor>& tensors) {
  if (!inputs.resume && inputs.initial) load_initial(*inputs.initial, trainer, logger, say, tensors);
  if (!inputs.resume) return std::nullopt;
  ParallelContext& context = trainer.context();
  LoadedCheckpoint loaded{*inputs.resume, inputs.plan.config};
  Resume& resume = loaded.resume;
  for (;;) {
    if (context.rank() == 0)
      for (const std::string& note : resume.notes) say(note);
    const std::string from = to_string(inputs.plan.config.checkpoint.resume);
    const std::optional<Error> fault =
        fault_in(resume, {"checkpoint.resume", from}, logger, [&] { read_all(resume, trainer, logger); });
    const int first = first_rank(context.world(), context.host_stream(), fault.has_value());
    if (first < 0) break;
    throw_if_refused(fault, context);
    if (first == context.rank()) logger.warning("{}; looking for an older checkpoint", skipped_text(resume.folder, *fault));
    loaded = next_older(resume.manifest.state.updates, inputs, context);
    trainer.set_lr_schedule(lr_schedule_of(loaded.config));
  }
  if (context.rank() == 0) {
    for (const std::string& change : resume.changes) say(change);
    for (const std::string& warning : resume.warnings) logger.warning("{}", warning);
  }
  const ContentHashes in_base = load_base(resume, trainer, logger);
  for (ManifestTensor& tensor : tensors) {
    const auto hash = in_base.find(tensor.name);
    if (tensor.frozen && hash != in_base.end() && hash->second != 0) tensor.base = hash->second;
  }
  if (has_weights_of(resume.manifest, inputs.plan))
    trainer.store().publish_weights();
  else
    trainer.store().publish_masters();
  const TrainingState& state = resume.manifest.state;
  trainer.restore({state.updates, state.batches, state.position, loss_scale_of(resume.manifest, trainer)});
  return loaded;
}

}  // namespace trident
