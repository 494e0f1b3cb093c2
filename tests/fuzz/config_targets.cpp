// JSON that users write: configurations, Hugging Face's config.json; and failure.json, which a supervisor reads.
#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/json_reader.h"
#include "model/config/model_config.h"
#include "model/config/model_stats.h"
#include "tests/fuzz/fuzz_target.h"
#include "train/config/train_config.h"
#include "train/launch/failure_file.h"

namespace trident::fuzz {

bool json(std::string_view input) {
  const auto read = [](std::string_view text, JsonComments comments) {
    JsonRules rules;
    rules.comments = comments;
    rules.blame = ExitCode::kData;
    return parse_json(text, "x.json", rules);
  };
  std::optional<JsonValue> value;
  if (!accepts([&] { value = read(input, JsonComments::kAllowed); })) return false;
  for (const int indent : {0, 2})
    require(read(to_json_text(*value, indent), JsonComments::kRefused) == *value, "written and read again it is another value");
  return true;
}

bool train_config(std::string_view input) {
  std::optional<JsonValue> resolved;
  if (!accepts([&] { resolved = to_json(parse_train_config(input, "x.json")); })) return false;
  const std::string text = to_json_text(*resolved, 2);
  require(to_json(parse_train_config(text, "config.resolved.json")) == *resolved, "resolved and read again it is another configuration");
  return true;
}

bool hf_config(std::string_view input) {
  std::optional<ModelConfig> config;
  if (!accepts([&] { config = model_config_from_hf_json(input, "config.json"); })) return false;
  // There is no writer of these files; what was accepted can be counted, and has a meaning that does not depend on spaces.
  require(num_parameters(*config) > 0 && matmul_parameters(*config) > 0, "a model of {} parameters", num_parameters(*config));
  JsonRules rules;
  const std::string text = to_json_text(parse_json(input, "config.json", rules));
  require(model_config_from_hf_json(text, "config.json") == *config, "written and read again it is another model");
  return true;
}

bool failure_json(std::string_view input) {
  static const ScratchFile file("failure.json");
  const std::optional<RunFailure> failure = failure_from(std::string(input));
  if (!failure) return false;
  require(failure->rank >= 0 && !failure->cause.empty(), "rank {} failed by {}", failure->rank, failure->cause);
  const JsonValue written = parse_json(input, "failure.json");
  require(*written.find("rank") == JsonValue(failure->rank), "rank {} of {}", failure->rank, to_json_text(*written.find("rank")));
  const std::string folder = std::filesystem::path(file.path()).parent_path().string();
  write_failure(folder, *failure);
  const std::optional<RunFailure> again = failure_from(failure_text(folder));
  require(again && again->rank == failure->rank && again->host == failure->host && again->cause == failure->cause &&
              again->exit_code == failure->exit_code && again->step == failure->step && again->message == failure->message &&
              again->start == failure->start,
          "written and read again it is another failure");
  return true;
}

}  // namespace trident::fuzz
