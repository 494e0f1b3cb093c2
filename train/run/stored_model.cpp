#include "train/run/stored_model.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_path.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "model/config/model_config.h"
#include "train/config/option_check.h"
#include "train/config/resolve_model.h"
#include "train/config/stored_config.h"

namespace trident {
namespace {

std::string text_at(const OptionValues& values, std::string_view key) {
  const JsonValue& value = values.at(key).value;
  return value.is_string() ? value.as_string() : "";
}

// The file or folder that says the model; "" where the configuration itself does.
std::string model_path(const OptionValues& values) {
  if (!text_at(values, "model.preset").empty() || values.model_keys().find("model_type") != nullptr) return "";
  const std::string config = text_at(values, "model.hf_config");
  return config.empty() ? text_at(values, "model.init_from") : config;
}

// The model's keys of the newest checkpoint; the start itself says what is wrong with one that cannot be read.
std::optional<JsonValue> model_in(const std::string& folder) {
  try {
    const std::optional<std::string> newest = newest_checkpoint(checkpoint_path(folder));
    return newest ? std::optional(model_keys(read_stored(open_manifest(*newest).config, *newest).config)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The model of the checkpoint that the run would go on from, or else of the one whose weights it begins with.
std::optional<JsonValue> stored_model(const OptionValues& values) {
  const std::string resume = text_at(values, "checkpoint.resume");
  const ResumeFrom from = resume.empty() ? ResumeFrom{} : parse_resume_from(resume);
  std::string folder = from.path;
  if (folder.empty()) folder = text_at(values, "checkpoint.dir");
  if (folder.empty()) folder = text_at(values, "run.dir") + "/ckpt";
  std::optional<JsonValue> model;
  if (from.kind != ResumeFrom::Kind::kNever) model = model_in(folder);
  return model || !text_at(values, "model.hf_config").empty() ? model : model_in(text_at(values, "model.init_from"));
}

}  // namespace

std::vector<std::string> with_stored_model(const std::string& file, const std::vector<std::string>& settings) {
  OptionValues values;
  values.take_file(read_json_file(file), file);
  return with_stored_model(std::move(values), settings);
}

std::vector<std::string> with_stored_model(OptionValues values, const std::vector<std::string>& settings) {
  values.take_settings(settings);
  const std::string named = model_path(values);
  if (named.empty()) return settings;
  try {
    const std::string path = hub_snapshot(named);
    if (is_there(folder_exists(path) ? path + "/config.json" : path)) return settings;
  } catch (const StorageError&) {  // a disk that does not answer: the checkpoint says the model, too
  }
  const std::optional<JsonValue> model = stored_model(values);
  if (!model) return settings;
  std::vector<std::string> with = settings;
  with.emplace_back("model.hf_config=null");  // whoever gave it
  for (const JsonMember& member : model->members()) {
    if (is_informational_hf_key(member.key) && !name_here(member.key).empty()) continue;  // a setting of that name would be refused
    const std::string key = fmt::format("{}.{}", kModelBlock, member.key);
    if (find_option(key) == nullptr && find_block(key) == nullptr && values.model_keys().find(member.key) == nullptr)
      with.push_back(key + "=" + to_json_text(member.value));
  }
  return with;
}

void take_to_plan(OptionValues& values, const std::vector<std::string>& settings) {
  values.take_settings(with_stored_model(values, settings));
  values.take_import("run.epochs", 1, OptionValue().origin, true);
  values.take_import("data.train", "none", OptionValue().origin, true);
}

TrainConfig config_to_plan(OptionValues& values, const std::vector<std::string>& settings) {
  take_to_plan(values, settings);
  return make_train_config(values);
}

}  // namespace trident
