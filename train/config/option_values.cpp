#include "train/config/option_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <span>
#include <utility>

#include "core/at.h"
#include "model/config/hf_reader.h"
#include "model/config/model_presets.h"
#include "train/config/foreign_answers.h"
#include "train/config/option_check.h"

namespace trident {
namespace {

constexpr std::string_view kSettingOrigin = "--set", kModelType = "model.model_type";

// Keys that say the same thing in different ways; all of them are null, or none, where nobody gives them.
constexpr std::array<std::array<std::string_view, 3>, 3> kStandForOne{
    {{"run.steps", "run.epochs"}, {"data.valid", "data.split"}, {"model.preset", "model.hf_config", kModelType}}};

std::string origin_of(const JsonValue& value, std::string_view file) { return fmt::format("{}:{}", file, value.line()); }

std::string keys_of(std::string_view block) {
  std::string keys;
  for (const Option& option : option_table())
    if (block_of(option) == block) keys += (keys.empty() ? "" : ", ") + std::string(key_of(option));
  return keys;
}

[[noreturn]] void refuse_unknown(std::string_view where, std::string_view path, const JsonValue& value) {
  const std::string shown = in_quotes(path);  // foreign text: escaped and cut
  std::string remedy = did_you_mean(path, value);
  const OptionBlock* const block = find_block(path.substr(0, path.find('.')));
  if (remedy.empty() && block != nullptr) remedy = fmt::format("; {} has the keys {}", block->name, keys_of(block->name));
  throw ConfigError(fmt::format("{}unknown key {}{}", where, shown.substr(1, shown.size() - 2), remedy));
}

// Other systems call options so, and no config.json has these words: the model's reader would take them for misspelt keys of the
// model.
bool is_word_of_others(const std::string& key) {
  if (key == "dtype") return false;  // config.json has it, too
  const auto is_refused_word = [](const ForeignAnswer& it) {
    return it.system == ForeignSystem::kHuggingFace && it.row->verdict == Verdict::kRefused;
  };
  const auto is_flag_word = [](const ForeignAnswer& it) {
    return it.system == ForeignSystem::kHuggingFace || it.system == ForeignSystem::kOthers;
  };
  if (std::ranges::any_of(foreign_answers(key), is_refused_word)) return true;
  if (std::ranges::any_of(foreign_answers("model_" + key), is_flag_word)) return true;  // model.name
  return std::ranges::any_of(option_table(),
                             [&](const Option& option) { return std::ranges::find(option.aka, key) != option.aka.end(); });
}

[[noreturn]] void refuse_no_block(const OptionBlock& block, const JsonValue& value, std::string_view where) {
  throw ConfigError(fmt::format("{}{} = {}: must be an object with keys {}{}{}", where, block.name, value_text(value),
                                keys_of(block.name), block.name == "parallel" ? ", or a text such as \"2DP x 2PP x 1TP\"" : "",
                                name_here(block.name, value)));
}

}  // namespace

JsonValue setting_value(std::string_view text, std::string_view where) {
  try {
    return parse_json(text, where);
  } catch (const ConfigError&) {
    if (!text.empty() && (text.front() == '{' || text.front() == '[' || text.front() == '"')) throw;
    return JsonValue(text);
  }
}

void refuse_all(const std::vector<std::string>& faults) {
  if (faults.empty()) return;
  std::string all;
  for (const std::string& fault : std::span(faults).first(std::min(faults.size(), kMostFaults)))
    all += (all.empty() ? "" : "; also ") + fault;
  if (faults.size() > kMostFaults) all += "; also others";
  throw ConfigError(all);
}

OptionValues::OptionValues() {
  for (const Option& option : option_table())
    values_.push_back({option.fallback.empty() ? JsonValue{} : checked_value(option, default_value(option), ""), "default"});
  refusals_.resize(values_.size());
}

const OptionValue& OptionValues::at(std::string_view path) const {
  const Option* option = find_option(path);
  TRIDENT_CHECK(option != nullptr, "no option {}", path);
  return trident::at(values_, option - option_table().data());
}

void OptionValues::take_option(const Option& option, const JsonValue& value, std::string_view where, const std::string& origin) {
  const auto index = static_cast<std::size_t>(&option - option_table().data());
  try {
    values_[index] = {checked_value(option, value, where), origin};
    refusals_[index].clear();
  } catch (const ConfigError& error) {
    if (origin == kSettingOrigin) throw;
    refusals_[index] = error.what();
  }
}

void OptionValues::take_file(const JsonValue& root, std::string_view file, UnknownKeys unknown) {
  if (!root.is_object()) throw ConfigError(fmt::format("{}: must be an object {{...}}, not {}", file, describe(root.kind())));
  for (const JsonMember& member : root.members())
    collect(faults_, [&] {
      const std::string origin = origin_of(member.value, file);
      if (member.key == kResolvedMember) return;
      if (const OptionBlock* block = find_block(member.key))
        take_block(*block, member.value, file, unknown);
      else if (const Option* option = find_option(member.key); option != nullptr && block_of(*option).empty())
        take_option(*option, member.value, origin + ": ", origin);
      else if (unknown == UnknownKeys::kRefused)
        refuse_unknown(origin + ": ", member.key, member.value);
    });
}

void OptionValues::take_block(const OptionBlock& block, const JsonValue& value, std::string_view file, UnknownKeys unknown) {
  const std::string where = origin_of(value, file) + ": ";
  if (block.name == "parallel" && value.is_string()) return take_layout(value.as_string(), where, origin_of(value, file));
  const bool neutral = value.is_null() || value == JsonValue(false) || value == JsonValue(0);
  if (block.name == "checkpoint" && neutral)
    return take_option(*find_option("checkpoint.every"), JsonValue(0), where, origin_of(value, file));
  if (block.name == "adapter" && neutral) return;
  if (!value.is_object()) refuse_no_block(block, value, where);
  for (const JsonMember& member : value.members())
    collect(faults_, [&] {
      const std::string path = fmt::format("{}.{}", block.name, member.key);
      const std::string origin = origin_of(member.value, file);
      if (const OptionBlock* inner = find_block(path))
        take_block(*inner, member.value, file, unknown);
      else if (const Option* option = find_option(path))
        take_option(*option, member.value, origin + ": ", origin);
      else if (block.name == kModelBlock)
        model_keys_.set(member.key, member.value), model_origins_.set(member.key, origin);
      else if (unknown == UnknownKeys::kRefused)
        refuse_unknown(origin + ": ", path, member.value);
    });
}

void OptionValues::take_layout(const std::string& text, std::string_view where, const std::string& origin) {
  const LayoutDegrees degrees = parse_layout(text, where);
  take_option(*find_option("parallel.data"), JsonValue(degrees.data), where, origin);
  take_option(*find_option("parallel.pipeline"), JsonValue(degrees.pipeline), where, origin);
  take_option(*find_option("parallel.tensor"), JsonValue(degrees.tensor), where, origin);
  take_option(*find_option("parallel.context"), JsonValue(degrees.context), where, origin);
}

void OptionValues::take_model_key(std::string_view dotted_key, const JsonValue& value) {
  JsonValue* object = &model_keys_;
  model_origins_.set(dotted_key.substr(0, dotted_key.find('.')), kSettingOrigin);
  while (true) {
    const auto dot = dotted_key.find('.');
    const std::string_view key = dotted_key.substr(0, dot);
    if (key.empty()) throw ConfigError("--set: model." + std::string(dotted_key) + ": an empty key");
    if (dot == std::string_view::npos) return object->set(key, value);
    if (object->find(key) == nullptr || !object->find(key)->is_object()) object->set(key, JsonValue(JsonValue::Object{}));
    object = object->find(key);
    dotted_key.remove_prefix(dot + 1);
  }
}

void OptionValues::take_settings(const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) collect(faults_, [&] { take_setting(setting); });
}

void OptionValues::take_setting(std::string_view setting) {
  constexpr std::string_view kWhere = "--set: ";
  const auto equals = setting.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    const std::string_view key = setting.substr(0, setting.find_first_of(": "));  // "run.steps: 3"
    throw ConfigError(fmt::format("--set {}: must be path=value, such as --set {}", in_quotes(setting),
                                  find_option(key) == nullptr ? "parallel.tensor=4" : fmt::format("{}=VALUE", key)));
  }
  const std::string_view path = setting.substr(0, equals), text = setting.substr(equals + 1);
  JsonValue value = setting_value(text, fmt::format("--set {}", path));
  if (const OptionBlock* block = find_block(path)) {
    const bool neutral = value.is_null() || value == JsonValue(false) || value == JsonValue(0);
    if (block->name == "checkpoint" && neutral) return take_setting("checkpoint.every=0");
    if (block->name == "adapter" && neutral) return forget("adapter.type"), forget("adapter.init_from"), leave_out_adapter();
    if (block->name == "adapter" && value.is_object() && value.members().empty())
      throw ConfigError(fmt::format("{}adapter = {{}}: has no key, so that it would change nothing; give its keys, or null to "
                                    "train all weights", kWhere));
    if (value.is_object())
      for (const JsonMember& member : value.members())
        take_setting(fmt::format("{}.{}={}", path, member.key, to_json_text(member.value)));
    else if (block->name == "parallel" && value.is_string()) take_layout(value.as_string(), kWhere, std::string(kSettingOrigin));
    else refuse_no_block(*block, value, kWhere);
    return;
  }
  if (const Option* option = find_option(path)) {
    // A text that happens to look like a number (run.dir=2024) is a text where the option takes nothing else.
    const bool only_text = option->takes == Takes::kString || option->takes == (Takes::kNull | Takes::kString);
    const bool null_meant = value.is_null() && takes(option->takes, Takes::kNull);
    const bool has_folder = !at("adapter.init_from").value.is_null();
    if (path == "adapter.init_from" ? !value.is_null() : path == "adapter.type" && null_meant && !has_folder) leave_out_adapter();
    if (!value.is_null()) replace_same_of_files(path);
    const bool reserved = option->reserved;  // its neutral values stay what they are
    if (only_text && !reserved && !value.is_string() && !null_meant) value = JsonValue(text);
    return take_option(*option, value, kWhere, std::string(kSettingOrigin));
  }
  if (path == kModelType && !value.is_null()) replace_same_of_files(path);
  if (path.substr(0, kModelBlock.size() + 1) == "model.") return take_model_key(path.substr(kModelBlock.size() + 1), value);
  refuse_unknown(kWhere, path, value);
}

std::string OptionValues::origin_of_key(std::string_view path) const {
  if (find_option(path) != nullptr) return at(path).origin == OptionValue().origin ? "" : at(path).origin;
  const JsonValue* const origin = model_origins_.find(path.substr(kModelBlock.size() + 1));
  return origin == nullptr ? "" : origin->as_string();
}

void OptionValues::forget(std::string_view path) {
  if (path == kModelType) {  // with the keys that describe that model; what --set says stays
    JsonValue keys, origins;
    if (model_keys_.is_object())
      for (const JsonMember& member : model_keys_.members())
        if (const JsonValue& origin = *model_origins_.find(member.key); origin == JsonValue(kSettingOrigin))
          keys.set(member.key, member.value), origins.set(member.key, origin);
    model_keys_ = std::move(keys), model_origins_ = std::move(origins);
  } else if (const Option* const option = find_option(path)) {
    const auto index = static_cast<std::size_t>(option - option_table().data());
    values_[index] = OptionValues().values_[index];
    refusals_[index].clear();
  }
}

void OptionValues::leave_out_adapter() {
  for (const Option& option : option_table())
    if (option.path.starts_with("adapter.") && origin_of_key(option.path) != kSettingOrigin) forget(option.path);
}

void OptionValues::replace_same_of_files(std::string_view path) {
  for (const auto& group : kStandForOne) {
    if (std::ranges::find(group, path) == group.end()) continue;
    for (const std::string_view other : group)
      if (other != path && !other.empty() && !origin_of_key(other).empty() && origin_of_key(other) != kSettingOrigin) {
        replaced_.push_back(fmt::format("{}: {} has no effect{}, because --set {} takes its place", origin_of_key(other), other,
                                        other == kModelType ? ", nor have the model's other keys there" : "", path));
        forget(other);
      }
  }
}

void OptionValues::take_import(std::string_view path, const JsonValue& value, const std::string& origin, bool is_default) {
  std::vector<std::string_view> same{path};
  for (const auto& group : kStandForOne)
    if (std::ranges::find(group, path) != group.end()) same.assign(group.begin(), std::ranges::find(group, ""));
  std::string before;
  for (const std::string_view other : same)
    if (const std::string known = origin_of_key(other); !known.empty()) before += (before.empty() ? "" : ", ") + known;
  const bool is_of_another =
      find_option(path) == nullptr && !(at("model.preset").value.is_null() && at("model.hf_config").value.is_null());
  if (is_default && (!before.empty() || is_of_another)) return;
  if (!before.empty() && same.size() > 1) std::ranges::for_each(same, [&](std::string_view other) { forget(other); });
  const std::string both = before.empty() ? origin : fmt::format("{} in the place of {}", origin, before);
  if (const Option* const option = find_option(path)) return take_option(*option, value, origin + ": ", both);
  const std::string_view key = path.substr(kModelBlock.size() + 1);
  model_keys_.set(key, value), model_origins_.set(key, both);
}

std::vector<std::string> OptionValues::drop_illegal() {
  std::vector<std::string> reasons;
  for (std::string& refusal : refusals_)
    if (!refusal.empty()) reasons.push_back(std::exchange(refusal, ""));
  return reasons;
}

void OptionValues::refuse_illegal() const {
  std::vector<std::string> faults;
  std::ranges::copy_if(refusals_, std::back_inserter(faults), [](const std::string& refusal) { return !refusal.empty(); });
  faults.insert(faults.end(), faults_.begin(), faults_.end());
  if (const OptionValue& preset = at("model.preset"); !preset.value.is_null())
    collect(faults, [&] { model_preset_json(preset.value.as_string(), preset.origin + ": model.preset"); });
  if (!faults.empty()) collect(faults, [&] { check_model(); });
  refuse_all(faults);
}

void OptionValues::check_model() const {
  const auto hint = [](const std::string& key) { return name_here(fmt::format("{}.{}", kModelBlock, key)); };
  if (model_keys_.find("model_type") != nullptr) model_config_from_hf(model_keys_, kModelBlock, 0.0, model_origins_, hint);
}

void OptionValues::require_complete() const {
  refuse_illegal();
  std::vector<std::string> faults;
  const bool preset = !at("model.preset").value.is_null(), file = !at("model.hf_config").value.is_null();
  const auto table = option_table();
  for (std::size_t i = 0; i < table.size(); ++i)
    if (table[i].fallback.empty() && values_[i].value.is_null())
      collect(faults, [&] {
        throw ConfigError(fmt::format("{}: missing; give {} ({})", table[i].path, expected_text(table[i]),
                                      table[i].doc.substr(0, table[i].doc.find('.'))));
      });
  if (at("run.steps").value.is_null() && at("run.epochs").value.is_null())
    collect(faults, [] { throw ConfigError("run.steps: missing; give an integer >= 1, or run.epochs"); });
  const bool spelled_out = model_keys_.find("model_type") != nullptr;
  if (!preset && !file && !spelled_out && at("model.init_from").value.is_null() && model_keys_.is_null())
    collect(faults, [] {
      throw ConfigError(
          "model: missing; give model.preset, model.hf_config, the keys of a Hugging Face config.json (\"model_type\", ...), or a "
          "Hugging Face folder in model.init_from");
    });
  if (!faults.empty()) collect(faults, [&] { check_model(); });
  refuse_all(faults);
  if (static_cast<int>(preset) + static_cast<int>(file) + static_cast<int>(spelled_out) > 1)
    throw ConfigError(
        "model: preset, hf_config and model_type exclude each other; keep one of them "
        "(--set model.preset=NAME takes the place of a file's)");
  if (model_keys_.is_object()) {
    // A config.json that stands here whole may have words of others that change nothing; who types one alone means something by it.
    const auto is_of_config_json = [&](const JsonMember& member) {
      return spelled_out && is_informational_hf_key(member.key) && *model_origins_.find(member.key) != JsonValue(kSettingOrigin);
    };
    const bool adds_keys = spelled_out || (!preset && !file && !at("model.init_from").value.is_null());
    for (const JsonMember& member : model_keys_.members()) {
      const std::string path = "model." + member.key;
      if (!is_of_config_json(member) && (is_word_of_others(member.key) || (!adds_keys && !did_you_mean(path).empty())))
        collect(faults, [&] { refuse_unknown("", path, member.value); });
    }
    refuse_all(faults);
  }
  // A Hugging Face folder says the model itself; make_train_config() asks it.
  if (!preset && !file && !spelled_out && !at("model.init_from").value.is_null()) return;
  if (!spelled_out && !model_keys_.is_null()) {
    const JsonMember& first = model_keys_.members().front();
    const std::string path = "model." + first.key;
    if (preset || file) {
      if (path == "model.sliding_window" && model_keys_.members().size() == 1) return;  // instead of that of the preset or file
      throw ConfigError(
          fmt::format("{} = {}: keys of a model (but sliding_window) go with model_type, not with model.{}; set that to null, or "
                      "leave this out", path,
                      value_text(first.value), preset ? "preset" : "hf_config"));
    }
    throw ConfigError(
        fmt::format("model: has {} but no model_type; add it, or give model.preset or model.hf_config", in_quotes(path.substr(6))));
  }
}

LayoutDegrees parse_layout(std::string_view text, std::string_view where) {
  const auto refuse = [&](std::string_view why) {
    throw ConfigError(fmt::format("{}parallel = {}: {}; write it like \"2DP x 4PP x 4TP\"", where, in_quotes(text), why));
  };
  LayoutDegrees degrees;
  std::string seen;
  std::size_t at = 0;
  const auto is_digit = [&] { return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; };
  const auto skip_joints = [&] {
    while (at < text.size()) {
      const bool times_sign = text.substr(at, 2) == "\xc3\x97";
      if (!times_sign && std::string_view(" xX*,").find(text[at]) == std::string_view::npos) return;
      at += times_sign ? 2 : 1;
    }
  };
  for (skip_joints(); at < text.size(); skip_joints()) {
    std::int64_t degree = 0;
    const std::size_t begin = at;
    for (; is_digit() && at - begin < 7; ++at) degree = degree * 10 + (text[at] - '0');
    if (at == begin) refuse("expected a number before each axis");
    while (at < text.size() && text[at] == ' ') ++at;
    const char axis = at + 1 < text.size() ? static_cast<char>(std::toupper(static_cast<unsigned char>(text[at]))) : '\0';
    std::int64_t* slot = axis == 'D' ? &degrees.data : axis == 'P' ? &degrees.pipeline : axis == 'T' ? &degrees.tensor
                         : axis == 'C' ? &degrees.context : nullptr;
    if (slot == nullptr || std::toupper(static_cast<unsigned char>(text[at + 1])) != 'P')
      refuse("expected TP, PP, DP or CP after each number");
    if (seen.find(axis) != std::string::npos) refuse(fmt::format("{}P is there twice", axis));
    seen += axis;
    *slot = degree;
    at += 2;
  }
  if (seen.empty()) refuse("no axis in it");
  if (std::string_view("pP").find(text[text.find_last_not_of(' ')]) == text.npos) refuse("expected an axis behind the last sign");
  return degrees;
}

}  // namespace trident
