#include "train/run/adopt.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "core/file_io.h"
#include "device/cpu/cpu_device.h"
#include "train/config/stored_config.h"
#include "train/plan/run_plan.h"
#include "train/run/model_tokenizer.h"
#include "train/run/rank_trainer.h"
#include "train/run/run_inputs.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// Keys that must be what they were.
constexpr std::string_view kCompared[] = {"run.seed",
                                          "train.only",
                                          "train.freeze",
                                          "adapter.type",
                                          "adapter.r",
                                          "adapter.alpha",
                                          "adapter.rslora",
                                          "adapter.target_modules",
                                          "adapter.exclude_modules",
                                          "adapter.modules_to_save",
                                          "adapter.layers",
                                          "loss.type",
                                          "loss.normalize",
                                          "loss.beta",
                                          "loss.variant",
                                          "loss.label_smoothing",
                                          "loss.nll_weight",
                                          "loss.length_normalized",
                                          "batch.global",
                                          "batch.sequence",
                                          "data.split",
                                          "data.shuffle",
                                          "data.samples",
                                          "data.tokenizer",
                                          "data.reset_position_ids",
                                          "data.reset_attention_mask",
                                          "data.eod_mask_loss",
                                          "data.train.weights"};
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
    for (const WeightedPath& source : config.data.train) weights.emplace_back(source.weight);
    if (config.data.train.size() > 1) out.set(path, std::move(weights));
  }
  return out;
}

// Where both find documents: what ends one. A data.eod of null is the tokenizer's, where the other has an id to compare it with.
void add_boundaries(JsonValue& out, const DataConfig& data, const DataConfig& other, const Resume& resume) {
  if (!data.finds_documents() || !other.finds_documents()) return;
  out.set("data.boundaries", std::string(to_string(data.boundaries)));
  if (data.boundaries != DocumentBoundaries::kEod || other.boundaries != DocumentBoundaries::kEod) return;
  JsonValue eod = data.eod;
  if (!data.eod && other.eod && data.tokenizer) {
    try {
      const auto id = find_tokenizer({}, &data, resume, "").tokenizer->special_ids().eod;
      if (id) eod = JsonValue(static_cast<std::int64_t>(*id));
    } catch (const Error&) {  // a tokenizer that is gone
    }
  }
  out.set("data.eod", eod);
}

constexpr std::string_view kBeginAnew = "name another run.dir, or set what is there aside by --set run.overwrite=true";

// A key of another value than the checkpoint's run had.
struct OtherValue {
  Difference difference;
  std::string allowed;  // the name in checkpoint.allow that consents; "": nothing does
};

// A list of many names is one of modules, and is shown by their ends.
std::string shown_value(const std::string& json) {
  constexpr std::size_t kMost = 4;
  if (!json.starts_with('[')) return json;
  const JsonValue value = parse_json(json, "a value");
  const JsonValue::Array& names = value.items();
  if (names.size() <= kMost || !names.front().is_string()) return json;
  std::set<std::string> ends;
  for (const JsonValue& name : names) ends.insert(name.as_string().substr(name.as_string().rfind('.') + 1));
  return fmt::format("{} names that end in {}", names.size(), fmt::join(ends, ", "));
}

// All at once.
[[noreturn]] void refuse(const std::vector<OtherValue>& others, bool had_adapters, const Resume& resume) {
  std::string values, allowed, fixed;
  for (const auto& [difference, consent] : others) {
    values += fmt::format("{}{} = {} (was {})", values.empty() ? "" : ", ", difference.path, shown_value(difference.a),
                          shown_value(difference.b));
    std::string& names = consent.empty() ? fixed : allowed;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", consent.empty() ? difference.path : in_quotes(consent));
  }
  const bool are_adapters = had_adapters && std::ranges::any_of(others, [](const OtherValue& other) {
                              return other.allowed.empty() && other.difference.path.starts_with("adapter.");
                            });
  const std::string go_on =
      fixed.empty()
          ? fmt::format("list {} in checkpoint.allow", allowed)
          : fmt::format("begin in another run.dir with model.init_from = {}, because the checkpoint's tensors and states are those "
                        "of the earlier {}",
                        are_adapters
                            ? "the model that these adapters began with, or with them merged into it (trident convert --from "
                              "ckpt --to peft, then --from peft BASE ADAPTER --to ckpt OUT)"
                            : resume.folder,
                        fixed);
  throw ConfigError(
      fmt::format("{}: the checkpoint {} was trained with other values; {}. To go on from it, give the earlier values, or {}",
                  values, resume.folder, kBeginAnew, go_on));
}

std::string found_text(const ManifestTensor* tensor) {
  return tensor == nullptr ? "is not there" : "is " + shape_text(tensor->shape);
}

// Both sides have the model's order: it is mostly number `likely`.
const ManifestTensor* find_tensor(const std::vector<ManifestTensor>& tensors, const std::string& name, std::size_t likely = 0) {
  if (likely < tensors.size() && tensors[likely].name == name) return &tensors[likely];
  const auto found = std::ranges::find(tensors, name, &ManifestTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

// How a run takes the model of the weights that it begins with.
std::string without_model(const TrainConfig& config) {
  const char* const key = config.model.preset ? "preset" : "hf_config";
  if (!config.model.preset && !config.model.hf_config) return "leave the model's keys out";
  return fmt::format("leave the model out (--set model.{}=null)", key);
}

// Refuses another model's tensors; `folder`: of the checkpoint that stores them; `key` and `value`: what asks for them; `instead`:
// than to give its model.
void check_tensors(const std::vector<ManifestTensor>& tensors, const std::vector<ManifestTensor>& stored, const std::string& folder,
                   std::string_view key, std::string_view value, std::string_view instead = "") {
  const auto refuse_shape = [&](const std::string& name) {
    throw ConfigError(
        fmt::format("{} = {}: {} {} in the model, and {} in the checkpoint; {}give the model block of its run (trident ckpt "
                    "show {})",
                    key, value, name, found_text(find_tensor(tensors, name)), found_text(find_tensor(stored, name)), instead,
                    folder));
  };
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const ManifestTensor* const there = find_tensor(stored, tensors[t].name, t);
    if (there == nullptr || there->shape != tensors[t].shape) refuse_shape(tensors[t].name);
  }
  for (std::size_t t = 0; t < stored.size(); ++t)
    if (find_tensor(tensors, stored[t].name, t) == nullptr) refuse_shape(stored[t].name);
}

// By config.json's key where the files that say the models are there; else, and where no such key differs, by the block's.
std::optional<Difference> difference_of_models(TrainConfig a, TrainConfig b) {
  a.model.init_from.reset(), b.model.init_from.reset();  // where weights came from is no part of it
  std::optional<Difference> difference = first_difference(value_at(to_json(a), "model"), value_at(to_json(b), "model"), "model");
  if (!difference) return std::nullopt;
  try {
    const ModelConfig model = resolve_model(a), other = resolve_model(b);
    if (model == other) return std::nullopt;
    if (const auto key = model_difference(model, other)) return Difference{"model." + key->path, key->a, key->b};
  } catch (const Error&) {  // of a file that is no longer there
  }
  return difference;
}

// A length that nobody gave grows with run.steps. Step `next` is the first that is made by it.
void note_decay_length(const TrainConfig& config, std::int64_t then, std::int64_t next, std::vector<std::string>& notes) {
  const std::int64_t now = decay_length(config), steps = config.run.steps;
  if (now > steps && !config.lr_schedule.decay_steps && config.lr_schedule.type != LrScheduleType::kConstant)
    notes.push_back(
        fmt::format("the learning rate decays until step {}, which an earlier start asked for; --set "
                    "lr_schedule.decay_steps={} lets it fall until step {}, where the run ends",
                    now, steps, steps));
  if (now == then || config.lr_schedule.type == LrScheduleType::kConstant) return;
  const std::string change = fmt::format("lr_schedule.decay_steps was {} and is {} from here on", then, now);
  if (config.lr_schedule.decay_steps) return notes.push_back(change);
  LrSchedule schedule = lr_schedule_of(config);
  const double rate = schedule.at(next);
  const char* const why = schedule.decay_steps > now ? ", as if another step came: a last step's is 0 (lr_schedule.min_lr)"
                          : rate == schedule.min_lr  ? ", that of a last step (lr_schedule.min_lr)"
                                                     : "";
  schedule.decay_steps = then;
  schedule.warmup_steps = config.lr_schedule.warmup.within(then);
  schedule.wsd_decay_steps = config.lr_schedule.wsd_decay_steps.value_or(ScheduleLength()).within(then);
  notes.push_back(fmt::format("{}, as run.steps grew and it is not given: the learning rate of step {} was {:.4g} and is {:.4g}{}",
                              change, next, schedule.at(next), rate, why));
}

void note_rates(const TrainConfig& config, const TrainConfig& then, std::int64_t next, std::vector<std::string>& notes) {
  if (next > config.run.steps) return;  // nothing is learned from here on
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
void note_folder_that_is_gone(const TrainConfig& config, const Manifest& manifest, std::vector<std::string>& notes) {
  const std::optional<std::string>& from = config.model.init_from;
  try {
    if (from && manifest.base.empty() && !is_there(*from))
      notes.push_back(fmt::format("model.init_from = {}: is not there any more, and not needed to go on", *from));
  } catch (const StorageError& error) {
    notes.push_back(fmt::format("model.init_from = {}: {}, and it is not needed to go on", *from, error.what()));
  }
}

// A fingerprint's values by one key: those by "content" are the parts that no split changes. Earlier versions have no "tokenizer".
JsonValue column_of(const JsonValue& fingerprint, std::string_view key) {
  JsonValue::Array values;
  if (fingerprint.is_array())
    for (const JsonValue& facts : fingerprint.items()) values.push_back(value_at(facts, key));
  return values;
}

// Keys that values do not depend on, or that later training may change.
ModelConfig architecture_of(ModelConfig model) {
  model.residual_dropout = model.embedding_dropout = 0;
  model.init_std = 0;
  if (model.position == PositionKind::kRope) model.max_positions = 0;
  return model;
}

void check_initial_folder(const TrainConfig& config, const Resume& initial) {
  const ModelConfig model = resolve_model(config);
  ModelConfig of_folder = model_of_hf(initial.folder);
  // Rows are added, and an adapter's copies may have fewer.
  if (initial.adapter != nullptr || model.vocab_size > of_folder.vocab_size) of_folder.vocab_size = model.vocab_size;
  const std::optional<Difference> difference = model_difference(model, of_folder);
  if (difference && !allows(config, "model"))
    throw ConfigError(
        fmt::format("model.{} = {}: config.json of model.init_from = {} has {}; give that value, {}, or list \"model\" in "
                    "checkpoint.allow",
                    difference->path, difference->a, initial.folder, difference->b, without_model(config)));
}

}  // namespace

bool allows(const TrainConfig& config, std::string_view path) {
  return std::ranges::any_of(config.checkpoint.allow,
                             [&](const std::string& key) { return path == key || path.starts_with(key + "."); });
}

void adopt(TrainConfig& config, Resume& resume) {
  const auto [then, faults] = config_of(resume);
  for (const std::string& fault : faults) resume.warnings.push_back(fmt::format("read as it stands: {}", fault));
  config.lr_schedule.earlier_decay_length = decay_length(then);
  config.lr_schedule.adds_one_step = !config.lr_schedule.decay_steps && decay_length(then) < config.run.steps &&
                                     resume.manifest.state.updates + 1 == config.run.steps;
  config.precision.bf16_over_fp32 = then.precision.bf16_over_fp32;
  // Checkpoints of earlier versions do not say: those multiplied bf16 wherever the processor has an instruction for it.
  const CpuFeatures features = detect_cpu_features();
  if (!config.precision.bf16_over_fp32 && has_bf16_products(features, features.level)) config.precision.bf16_over_fp32 = 2;
  note_folder_that_is_gone(config, resume.manifest, resume.changes);
  if (config.data.tokenizer_was_auto && config.data.tokenizer != then.data.tokenizer) {
    resume.changes.push_back(
        fmt::format("data.tokenizer stays {}, as it was at the first start; to change it give the key, and list it in "
                    "checkpoint.allow",
                    then.data.tokenizer ? in_quotes(*then.data.tokenizer) : "null"));
    config.data.tokenizer = then.data.tokenizer;
  }
  std::vector<OtherValue> others;
  if (const std::optional<Difference> difference = difference_of_models(config, then)) {
    if (!allows(config, "model")) {
      others.push_back({*difference, "model"});
    } else {
      check_tensors(tensors_of_hf(resolve_model(config)), without_adapters(resume.manifest.tensors), resume.folder,
                    "checkpoint.resume", to_string(config.checkpoint.resume));
    }
  }
  if (const auto now = config.optimizer.type, before = then.optimizer.type; now != before)
    others.push_back({{"optimizer.type", in_quotes(to_string(now)), in_quotes(to_string(before))}, ""});
  JsonValue now = compared_of(config), before = compared_of(then);
  add_boundaries(now, config.data, then.data, resume);
  add_boundaries(before, then.data, config.data, resume);
  for (const auto& [path, value] : now.members()) {
    const JsonValue* const earlier = before.find(path);
    const auto difference = first_difference(value, earlier == nullptr ? JsonValue() : *earlier, path);
    if (!difference) continue;
    // No consent makes the tensors of the checkpoint's adapters others; these two only scale them.
    const bool is_fixed = path.starts_with("adapter.") && path != "adapter.alpha" && path != "adapter.rslora";
    if (is_fixed || !allows(config, difference->path)) {
      others.push_back({*difference, is_fixed ? "" : difference->path});
      continue;
    }
    resume.changes.push_back(
        fmt::format("{} was {} and is {} from here on (checkpoint.allow)", difference->path, difference->b, difference->a));
  }
  if (!others.empty()) refuse(others, then.adapter.type.has_value(), resume);
  validate(config);
  note_rates(config, then, resume.manifest.state.updates + 1, resume.changes);
}

void check_initial_model(const TrainConfig& config, const std::vector<ManifestTensor>& tensors, const Resume& initial) {
  if (initial.hf != nullptr) return check_initial_folder(config, initial);
  check_tensors(tensors, initial.manifest.tensors, initial.folder, "model.init_from", initial.folder,
                without_model(config) + ", or ");
  if (allows(config, "model")) return;
  const TrainConfig then = config_of(initial).config;
  bool is_same = false;
  try {
    is_same = architecture_of(resolve_model(then)) == architecture_of(resolve_model(config));
  } catch (const Error&) {
    is_same = value_at(to_json(then), "model.hf_config") ==
              value_at(to_json(config), "model.hf_config");  // of a file that is no longer there
  }
  if (is_same) return;
  const Difference difference =
      difference_of_models(config, then).value_or(Difference{"model", "as given", "another model"});
  throw ConfigError(fmt::format(
      "{} = {}: model.init_from = {} was trained with {}, and its tensors have the same shapes; give that value, or list \"model\" "
      "in checkpoint.allow",
      difference.path, difference.a, initial.folder, difference.b));
}

JsonValue data_fingerprint(const std::vector<DataFacts>& training) {
  JsonValue::Array items;
  for (const DataFacts& facts : training) {
    JsonValue item;
    item.set("sizes", facts.sizes);
    item.set("content", facts.content);
    if (!facts.tokenizer.empty()) item.set("tokenizer", facts.tokenizer);
    items.push_back(std::move(item));
  }
  return items;
}

// All training data have one, as far as their records say.
std::string tokenizer_of_data(const JsonValue& fingerprint) {
  const JsonValue names = column_of(fingerprint, "tokenizer");
  for (const JsonValue& name : names.items())
    if (name.is_string() && !name.as_string().empty()) return name.as_string();
  return "";
}

void check_resumed_data(const TrainConfig& config, const std::vector<DataFacts>& training, const Resume& resume) {
  const JsonValue now = data_fingerprint(training), &then = resume.manifest.data;
  const std::string tokenizer = tokenizer_of_data(now), earlier = tokenizer_of_data(then);
  // Other data may be meant, and other tokens are not: to the weights ids mean texts.
  if (!tokenizer.empty() && !earlier.empty() && tokenizer != earlier && !allows(config, "data.tokenizer"))
    throw ConfigError(
        fmt::format("data.train: tokenizer {} made it, and the checkpoint {} was trained with data of tokenizer {}, to which the "
                    "same ids mean other texts; prepare the data with that one, or list \"data.tokenizer\" in checkpoint.allow",
                    tokenizer, resume.folder, earlier));
  if (allows(config, "data.train")) return;
  for (const char* const key : {"sizes", "content"}) {
    if (key == std::string_view("sizes") && allows(config, "data.split")) continue;
    const auto difference = first_difference(column_of(now, key), column_of(then, key), "data.train");
    if (!difference) continue;
    const auto path = [](const WeightedPath& source) { return source.path; };
    const bool is_same = std::ranges::equal(config.data.train, config_of(resume).config.data.train, {}, path, path);
    throw ConfigError(
        fmt::format("data.train: {} the checkpoint {} was trained with: now {}, then {}; {}. To go on from it, {}, or "
                    "list \"data.train\" in checkpoint.allow",
                    is_same ? "the files are others by now than those" : "other data than", resume.folder, difference->a,
                    difference->b, kBeginAnew, is_same ? "put the earlier ones back" : "name those"));
  }
}

}  // namespace trident
