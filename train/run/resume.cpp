#include "train/run/resume.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_path.h"
#include "checkpoint/commit.h"
#include "checkpoint/hf_index.h"
#include "checkpoint/lease.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "train/config/config_difference.h"
#include "train/plan/run_plan.h"
#include "train/run/rank_trainer.h"
#include "train/run/read_again.h"
#include "train/run/run_inputs.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

enum class Content : std::uint8_t { kAll, kAny };

// What is looked for.
struct Wanted {
  std::string_view key;  // that asks for it
  std::string value;
  Content content;
  std::string remedy;  // where nothing is valid
};

// The newest checkpoint of steps below `step` that has all; "" if there is none.
std::string newest_with_all(const std::string& directory, std::int64_t step) {
  for (const std::int64_t other : checkpoint_steps(directory)) {
    std::string folder = fmt::format("{}/{}", directory, checkpoint_name(other));
    try {
      if (other < step && open_manifest(folder).complete) return folder;
    } catch (const Error&) {
      continue;  // no advice
    }
  }
  return "";
}

// Not damaged: an older one in its place would make steps again that are made, and set the newer weights aside.
[[noreturn]] void refuse_weights_alone(const std::string& folder, const Manifest& manifest, const Wanted& wanted) {
  const std::string older = newest_with_all(std::filesystem::path(folder).parent_path().string(), manifest.state.updates);
  const std::string go_on = older.empty() ? "set checkpoint.resume to \"never\""
                                          : fmt::format("name {} in checkpoint.resume, the newest before it that has all", older);
  throw ConfigError(fmt::format("{} = {}: {} holds weights alone (checkpoint.content), so no run can go on from it; {}, or give "
                                "model.init_from = {} in a run.dir of its own, which begins with them",
                                wanted.key, wanted.value, folder, go_on, folder));
}

Manifest open_with(const std::string& folder, const Wanted& wanted) {
  try {
    Manifest manifest = read_again([&] { return open_manifest(folder); }, [](const StorageError&, double) {});
    if (!manifest.complete && wanted.content == Content::kAll) refuse_weights_alone(folder, manifest, wanted);
    return manifest;
  } catch (const NotPermitted& error) {
    throw not_permitted(wanted.key, wanted.value, error);
  }
}

// Refuses what is known to be no checkpoint and no Hugging Face folder.
void refuse_foreign_folder(const std::string& path, std::string_view key) {
  if (const std::optional<std::string> other = what_stands_at(path)) throw DataError(fmt::format("{} = {}: {}", key, path, *other));
}

std::optional<Resume> newest_in(const std::string& directory, std::optional<std::int64_t> before, const Wanted& wanted) {
  Resume resume;
  std::string first_fault;
  bool is_storage = false;
  for (const std::int64_t step : read_again([&] { return checkpoint_steps(directory); }, [](const StorageError&, double) {})) {
    if (before && step >= *before) continue;
    resume.folder = fmt::format("{}/{}", directory, checkpoint_name(step));
    try {
      resume.manifest = open_with(resume.folder, wanted);
      return resume;
    } catch (const NewerFormat&) {
      throw;  // nothing is wrong with it: who went on from an older one would train its steps again
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData && error.code() != ExitCode::kStorage) throw;
      if (first_fault.empty()) is_storage = error.code() == ExitCode::kStorage;
      if (first_fault.empty()) first_fault = error.what();
      resume.notes.push_back(fmt::format("{} is skipped: {}", checkpoint_name(step), error.what()));
    }
  }
  if (first_fault.empty()) return std::nullopt;
  const std::string text = fmt::format("{}; no other checkpoint is valid: {}", first_fault, wanted.remedy);
  if (is_storage) throw StorageError(text);
  throw DataError(text);
}

// A path may mean a checkpoint, or the newest in a folder of them.
std::optional<Resume> named_checkpoint(const std::string& given, std::optional<std::int64_t> before, const Wanted& wanted) {
  const std::string path = read_again([&] { return checkpoint_path(given); }, [](const StorageError&, double) {});
  if (!is_there(path + "/" + std::string(kManifestName))) return newest_in(path, before, wanted);
  if (before) return std::nullopt;  // it was that one and no other
  Manifest manifest = open_with(path, wanted);
  return Resume{{path, std::move(manifest)}};
}

// ---- comparison ----------------------------------------------------------------------------------------------------------------

// Keys that must be what they were.
constexpr std::string_view kCompared[] = {"run.seed",   "batch.global", "batch.sequence", "data.split",
                                          "data.shuffle", "data.tokenizer", "data.train.weights"};
// Blocks that may change, because they say how the run learns from here on and nothing of what it learned from.
constexpr std::string_view kRateBlocks[] = {"optimizer", "lr_schedule"};

JsonValue value_at(const JsonValue& config, std::string_view path) {
  const auto dot = path.find('.');
  const JsonValue* const value = config.find(path.substr(0, dot));
  if (value == nullptr || dot == std::string_view::npos) return value == nullptr ? JsonValue() : *value;
  return value_at(*value, path.substr(dot + 1));
}

JsonValue compared_of(const TrainConfig& config) {
  const JsonValue all = to_json(config);
  JsonValue out;
  for (const std::string_view path : kCompared) {
    if (path != "data.train.weights") {
      out.set(path, value_at(all, path));
      continue;
    }
    JsonValue::Array weights;
    for (const DataSource& source : config.data.train) weights.emplace_back(source.weight);
    if (config.data.train.size() > 1) out.set(path, std::move(weights));
  }
  return out;
}

bool allows(const TrainConfig& config, std::string_view path) {
  return std::ranges::any_of(config.checkpoint.allow, [&](const std::string& key) { return path == key || path.starts_with(key + "."); });
}

[[noreturn]] void refuse(const std::string& path, const std::string& now, const std::string& then, const Resume& resume) {
  throw ConfigError(fmt::format("{} = {}: the checkpoint {} was trained with {}; give that value, list {} in checkpoint.allow, or "
                                "begin anew: --set run.overwrite=true sets aside what is there, another run.dir leaves it",
                                path, now, resume.folder, then, in_quotes(path)));
}

std::string shape_text(const ManifestTensor* tensor) {
  if (tensor == nullptr) return "is not there";
  return fmt::format("is {}", to_json_text(JsonValue::Array(tensor->shape.begin(), tensor->shape.end())));
}

// Both sides have the model's order: it is mostly number `likely`.
const ManifestTensor* find_tensor(const std::vector<ManifestTensor>& tensors, const std::string& name, std::size_t likely = 0) {
  if (likely < tensors.size() && tensors[likely].name == name) return &tensors[likely];
  const auto found = std::ranges::find(tensors, name, &ManifestTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

// Refuses another model's tensors; `key` and `value`: what asks for them.
void check_tensors(const std::vector<ManifestTensor>& tensors, const Resume& from, std::string_view key, std::string_view value) {
  const std::vector<ManifestTensor>& stored = from.manifest.tensors;
  const auto refuse_shape = [&](const std::string& name) {
    throw ConfigError(fmt::format("{} = {}: {} {} in the model, and {} in the checkpoint; give the model block of its run (trident ckpt show {})", key,
                                  value, name, shape_text(find_tensor(tensors, name)), shape_text(find_tensor(stored, name)), from.folder));
  };
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const ManifestTensor* const there = find_tensor(stored, tensors[t].name, t);
    if (there == nullptr || there->shape != tensors[t].shape) refuse_shape(tensors[t].name);
  }
  for (std::size_t t = 0; t < stored.size(); ++t)
    if (find_tensor(tensors, stored[t].name, t) == nullptr) refuse_shape(stored[t].name);
}

bool same_folder(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  return std::filesystem::weakly_canonical(a, error) == std::filesystem::weakly_canonical(b, error);
}

bool same_model(TrainConfig a, TrainConfig b) {
  a.model.init_from.reset(), b.model.init_from.reset();  // where weights came from is no part of it
  try {
    return value_at(to_json(a), "model") == value_at(to_json(b), "model") || resolve_model(a) == resolve_model(b);
  } catch (const Error&) {
    return false;  // of a file that is no longer there
  }
}

}  // namespace

ConfigError not_permitted(std::string_view key, std::string_view value, const NotPermitted& error) {
  return ConfigError(fmt::format("{} = {}: {}, or name another one in {}", key, value, error.what(), key));
}

Manifest open_found(const std::string& folder, std::string_view key, std::string_view value) {
  try {
    return open_manifest(folder);
  } catch (const NotPermitted& error) {
    throw not_permitted(key, value, error);
  }
}

std::string checkpoint_folder_of(const TrainConfig& config) { return config.checkpoint.dir.value_or(config.run.dir + "/ckpt"); }

bool saves_checkpoints(const TrainConfig& config) { return config.checkpoint.every.at_end; }

bool can_go_on(const TrainConfig& config) {
  return config.checkpoint.content == CheckpointContent::kAll && config.checkpoint.resume.kind != ResumeFrom::Kind::kNever;
}

namespace {

// Whether run.overwrite leaves this checkpoint of its own folder for a new run.
bool begins_over(const TrainConfig& config, const Resume& resume) {
  if (!config.run.overwrite || !goes_on_in_run_dir(config, resume)) return false;
  const std::optional<std::string> token = lease_token_given();
  const std::optional<LeaseRecord> lease = token ? newest_lease(checkpoint_folder_of(config)) : std::nullopt;
  if (lease && lease->holder.token == *token) return false;  // an earlier start of this supervised run has begun anew
  if (!resume.manifest.complete || resume.manifest.state.updates >= config.run.steps) return true;
  try {
    TrainConfig as_asked = config;
    Resume found = resume;
    adopt(as_asked, found);
  } catch (const ConfigError&) {
    return true;
  }
  return false;
}

}  // namespace

std::optional<Resume> find_resume(const TrainConfig& config, std::optional<std::int64_t> before) {
  constexpr std::string_view kAnew = "set checkpoint.resume to \"never\" to begin anew";
  using Kind = ResumeFrom::Kind;
  if (config.checkpoint.resume.kind == Kind::kNever) return std::nullopt;
  const std::string from = to_string(config.checkpoint.resume);
  const Wanted wanted{"checkpoint.resume", from, Content::kAll, std::string(kAnew)};
  if (config.checkpoint.resume.kind == Kind::kNewest) {
    Wanted newest = wanted;
    if (config.run.overwrite) newest.content = Content::kAny;
    std::optional<Resume> found = newest_in(checkpoint_folder_of(config), before, newest);
    if (found && begins_over(config, *found)) return std::nullopt;
    if (found && !found->manifest.complete) refuse_weights_alone(found->folder, found->manifest, wanted);
    return found;
  }
  std::optional<Resume> resume = named_checkpoint(from, before, wanted);
  if (!resume && !before && is_hf_folder(hub_snapshot(from)))
    throw DataError(
        fmt::format("checkpoint.resume = {}: is a Hugging Face folder, from which no run goes on; begin with its weights: "
                    "name it in model.init_from",
                    from));
  if (!resume && !before) refuse_foreign_folder(from, "checkpoint.resume");
  if (!resume && !before)
    throw DataError(
        fmt::format("checkpoint.resume = {}: there is no checkpoint; name one, the folder of several, or a run's", from));
  return resume;
}

std::optional<Resume> find_initial(const TrainConfig& config) {
  if (!config.model.init_from) return std::nullopt;
  const std::string from = hub_snapshot(*config.model.init_from);
  if (is_hf_folder(from)) return open_initial(from, from, TiedCopies::kCompared);
  std::optional<Resume> initial = named_checkpoint(from, std::nullopt, {"model.init_from", from, Content::kAny, "name another in model.init_from"});
  if (initial) return initial;
  refuse_foreign_folder(from, "model.init_from");
  throw DataError(fmt::format("model.init_from = {}: there is no checkpoint; name one, the folder of several, a run's, or a Hugging "
                              "Face folder, which has config.json and model.safetensors",
                              from));
}

namespace {

Resume open_folder(const std::string& folder, std::string_view key, std::string_view value, TiedCopies copies) {
  try {
    auto hf = open_hf(folder, copies);  // before the object: where it throws within, gcc 12 ends members that never began
    return {{folder, {}, std::move(hf)}};
  } catch (const NotPermitted& error) {
    throw not_permitted(key, value, error);
  }
}

}  // namespace

Resume open_initial(const std::string& folder, std::string_view value, TiedCopies copies) {
  if (is_hf_folder(folder)) return open_folder(folder, "model.init_from", value, copies);
  Manifest manifest = open_found(folder, "model.init_from", value);
  return {{folder, std::move(manifest)}};
}

Resume find_weights(const std::string& path, std::string_view key) {
  std::optional<Resume> found =
      named_checkpoint(path, std::nullopt, {key, path, Content::kAny, fmt::format("name another in {}", key)});
  if (found) {
    for (const std::string& fault : config_of(*found).faults) found->notes.push_back(fmt::format("read as it stands: {}", fault));
    return *std::move(found);
  }
  if (is_hf_folder(hub_snapshot(path)))
    throw DataError(fmt::format("{} = {}: is a Hugging Face folder; name it in --hf", key, path));
  refuse_foreign_folder(path, key);
  throw DataError(fmt::format("{} = {}: there is no checkpoint; name one, the folder of several, or a run's", key, path));
}

Resume find_hf_weights(const std::string& given, std::string_view key) {
  const std::string path = hub_snapshot(given);
  if (is_hf_folder(path)) return open_folder(path, key, path, TiedCopies::kCompared);
  const std::string checkpoints = checkpoint_path(path);
  if (is_there(checkpoints + "/" + std::string(kManifestName)) || !checkpoint_steps(checkpoints).empty())
    throw DataError(
        fmt::format("{} = {}: holds checkpoints of Trident; name it in {}", key, path, key == "--hf" ? "--ckpt" : "--from ckpt"));
  refuse_foreign_folder(path, key);
  throw DataError(fmt::format("{} = {}: no Hugging Face folder (config.json and {}); name one", key, path, kHfWeightsName));
}

namespace {

// The id of the run whose files are in the folder; "" where nothing says so.
std::string run_id_in(const std::string& run_dir) {
  const std::string path = run_dir + "/config.resolved.json";
  try {
    return file_exists(path) ? run_id_of(read_json_file(path)) : "";
  } catch (const Error&) {
    return "";  // it may have become anything
  }
}

}  // namespace

bool goes_on_in_run_dir(const TrainConfig& config, const std::optional<Resume>& resume) {
  if (!resume) return false;
  const std::string checkpoints = checkpoint_folder_of(config);
  if (!same_folder(std::filesystem::path(resume->folder).parent_path(), checkpoints)) return false;
  if (same_folder(checkpoints, config.run.dir + "/ckpt")) return true;
  const std::string id = run_id_of(resume->manifest.config), id_here = run_id_in(config.run.dir);
  if (!id.empty() && !id_here.empty()) return id == id_here;  // wherever both folders were moved or copied to
  const JsonValue run_dir = value_at(resume->manifest.config, "run.dir");
  return run_dir.is_string() && same_folder(run_dir.as_string(), config.run.dir);
}

std::string run_id_for(const TrainConfig& config, const std::optional<Resume>& resume) {
  const std::string id = goes_on_in_run_dir(config, resume) ? run_id_of(resume->manifest.config) : "";
  return id.empty() ? new_lease_token() : id;
}

namespace {

// A length that nobody gave grows with run.steps. Step `next` is the first that is made by it.
void note_decay_length(const TrainConfig& config, std::int64_t then, std::int64_t next, std::vector<std::string>& notes) {
  const std::int64_t now = decay_length(config);
  if (now == then || next > config.run.steps || config.lr_schedule.type == LrScheduleType::kConstant) return;
  const std::string change = fmt::format("lr_schedule.decay_steps was {} and is {} from here on", then, now);
  if (config.lr_schedule.decay_steps) return notes.push_back(change);
  LrSchedule schedule = lr_schedule_of(config);
  const double rate = schedule.at(next);
  schedule.decay_steps = then;
  notes.push_back(fmt::format("{}, as run.steps grew and it is not given: the learning rate of step {} was {:.4g} and is {:.4g}",
                              change, next, schedule.at(next), rate));
}

void note_rates(const TrainConfig& config, const TrainConfig& then, std::int64_t next, std::vector<std::string>& notes) {
  const JsonValue now = to_json(config), before = to_json(then);
  for (const std::string_view block : kRateBlocks) {
    for (const auto& [key, value] : now.find(block)->members()) {
      if (key == "decay_steps") {
        note_decay_length(config, decay_length(then), next, notes);
      } else if (const JsonValue& earlier = *before.find(block)->find(key); !(value == earlier)) {
        notes.push_back(fmt::format("{}.{} was {} and is {} from here on", block, key, to_json_text(earlier), to_json_text(value)));
      }
    }
  }
}

// A model of a folder that is gone: the configuration has the keys that the checkpoint has.
void note_folder_that_is_gone(const TrainConfig& config, std::vector<std::string>& notes) {
  const std::optional<std::string>& from = config.model.init_from;
  if (from && !is_there(*from))
    notes.push_back(fmt::format("model.init_from = {}: is not there any more, and not needed to go on", *from));
}

}  // namespace

void adopt(TrainConfig& config, Resume& resume) {
  const auto [then, faults] = config_of(resume);
  for (const std::string& fault : faults) resume.warnings.push_back(fmt::format("read as it stands: {}", fault));
  config.lr_schedule.earlier_decay_length = decay_length(then);
  note_folder_that_is_gone(config, resume.notes);
  if (config.data.tokenizer_was_auto && config.data.tokenizer != then.data.tokenizer) {
    resume.notes.push_back(
        fmt::format("data.tokenizer stays {}, as it was at the first start; to change it give the key, and list it in "
                    "checkpoint.allow",
                    then.data.tokenizer ? in_quotes(*then.data.tokenizer) : "null"));
    config.data.tokenizer = then.data.tokenizer;
  }
  if (!same_model(then, config)) {
    if (!allows(config, "model"))
      refuse("model", to_json_text(value_at(to_json(config), "model")), to_json_text(value_at(to_json(then), "model")), resume);
    check_tensors(tensors_of_hf(resolve_model(config)), resume, "checkpoint.resume", to_string(config.checkpoint.resume));
  }
  if (config.optimizer.type != then.optimizer.type)
    throw ConfigError(
        fmt::format("optimizer.type = \"{}\": the states in the checkpoint {} are those of \"{}\"; give that value, or begin from "
                    "its weights alone with model.init_from and another run.dir",
                    to_string(config.optimizer.type), resume.folder, to_string(then.optimizer.type)));
  const JsonValue now = compared_of(config), before = compared_of(then);
  for (const auto& [path, value] : now.members()) {
    const JsonValue* const earlier = before.find(path);
    const auto difference = first_difference(value, earlier == nullptr ? JsonValue() : *earlier, path);
    if (!difference) continue;
    if (!allows(config, difference->path)) refuse(difference->path, difference->a, difference->b, resume);
    resume.notes.push_back(fmt::format("{} was {} and is {} from here on (checkpoint.allow)", difference->path, difference->b, difference->a));
  }
  validate(config);
  note_rates(config, then, resume.manifest.state.updates + 1, resume.notes);
}

namespace {

// What values do not depend on, or what later training may change.
ModelConfig architecture_of(ModelConfig model) {
  model.residual_dropout = model.embedding_dropout = 0;
  model.init_std = 0;
  if (model.position == PositionKind::kRope) model.max_positions = 0;
  return model;
}

void check_initial_folder(const TrainConfig& config, const Resume& initial) {
  const ModelConfig model = resolve_model(config);
  ModelConfig there = model_of_hf(initial.folder);
  // A window that the configuration gives itself is what it wants in the place of the folder's.
  if (config.model.keys.is_object() && config.model.keys.find("sliding_window") != nullptr)
    there.sliding_window = model.sliding_window;
  const std::optional<ModelDifference> difference = model_difference(model, there);
  if (difference && !allows(config, "model"))
    throw ConfigError(fmt::format("model.{} = {}: config.json of model.init_from = {} has {}; give that value or leave the model's "
                                  "keys out, or list \"model\" in checkpoint.allow",
                                  difference->key, difference->a, initial.folder, difference->b));
}

}  // namespace

void check_initial_model(const TrainConfig& config, const std::vector<ManifestTensor>& tensors, const Resume& initial) {
  if (initial.hf != nullptr) return check_initial_folder(config, initial);
  check_tensors(tensors, initial, "model.init_from", initial.folder);
  if (allows(config, "model")) return;
  const TrainConfig then = config_of(initial).config;
  bool is_same = false;
  try {
    is_same = architecture_of(resolve_model(then)) == architecture_of(resolve_model(config));
  } catch (const Error&) {
    is_same = value_at(to_json(then), "model.hf_config") == value_at(to_json(config), "model.hf_config");  // of a file that is no longer there
  }
  if (is_same) return;
  throw ConfigError(fmt::format("model = {}: model.init_from = {} was trained with {}, whose tensors have the same shapes; give that, or list \"model\" in checkpoint.allow",
                                to_json_text(value_at(to_json(config), "model")), initial.folder, to_json_text(value_at(to_json(then), "model"))));
}

bool blend_weights_changed(const TrainConfig& config, const Resume& resume) {
  const TrainConfig then = config_of(resume).config;
  return !std::ranges::equal(config.data.train, then.data.train, {}, &DataSource::weight, &DataSource::weight);
}

JsonValue data_fingerprint(const std::vector<DataFacts>& training) {
  JsonValue::Array items;
  for (const DataFacts& facts : training) {
    JsonValue item;
    item.set("sizes", facts.sizes);
    item.set("content", facts.content);
    items.push_back(std::move(item));
  }
  return items;
}

void check_resumed_data(const TrainConfig& config, const std::vector<DataFacts>& training, const Resume& resume) {
  if (allows(config, "data.train")) return;
  const JsonValue now = data_fingerprint(training);
  if (const auto difference = first_difference(now, resume.manifest.data, "data.train")) {
    refuse("data.train", difference->a, difference->b, resume);
  }
}

}  // namespace trident
