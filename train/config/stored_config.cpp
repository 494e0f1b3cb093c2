#include "train/config/stored_config.h"

namespace trident {
namespace {

constexpr std::string_view kRunId = "run_id", kDecayLength = "decay_length", kStepsOfEpochs = "steps", kRatio = "bf16_over_fp32";

}  // namespace

JsonValue to_stored(const TrainConfig& config) {
  JsonValue resolved;
  resolved.set(kRunId, config.run.id);
  resolved.set(kDecayLength, decay_length(config));
  if (config.run.epochs) resolved.set(kStepsOfEpochs, config.run.steps);
  if (config.precision.bf16_over_fp32) resolved.set(kRatio, *config.precision.bf16_over_fp32);
  JsonValue stored = to_json(config);
  stored.set(kResolvedMember, std::move(resolved));
  return stored;
}

StoredConfig read_stored(const JsonValue& stored, std::string_view source) {
  OptionValues values;
  values.take_file(stored, source, UnknownKeys::kPassedOver);
  StoredConfig read{.config = {}, .faults = values.drop_illegal()};
  read.config = unvalidated_config(values);
  read.config.run.id = run_id_of(stored);
  const JsonValue& resolved = stored.get(kResolvedMember);
  read.config.lr_schedule.earlier_decay_length = resolved.integer_at(kDecayLength).value_or(0);
  if (const auto steps = resolved.integer_at(kStepsOfEpochs); read.config.run.epochs && steps) read.config.run.steps = *steps;
  read.config.precision.bf16_over_fp32 = resolved.number_at(kRatio);
  try {
    validate(read.config);
  } catch (const ConfigError& error) {
    read.faults.push_back(fmt::format("{}: {}", source, error.what()));
  }
  return read;
}

std::string run_id_of(const JsonValue& stored) { return stored.get(kResolvedMember).text_at(kRunId); }

std::optional<Difference> first_difference(const JsonValue& a, const JsonValue& b, const std::string& path) {
  if (a == b) return std::nullopt;
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.members()) {
      const std::string inner = path.empty() ? key : path + "." + key;
      const JsonValue* other = b.find(key);
      if (other == nullptr) return Difference{inner, to_json_text(value), "nothing"};
      if (auto found = first_difference(value, *other, inner)) return found;
    }
    for (const auto& [key, value] : b.members()) {
      if (a.find(key) == nullptr) return Difference{path.empty() ? key : path + "." + key, "nothing", to_json_text(value)};
    }
  }
  return Difference{path, to_json_text(a), to_json_text(b)};
}

}  // namespace trident
