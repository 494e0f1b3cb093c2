// Fuzz targets of files of users and runs: configurations, words of other systems, Hugging Face's config.json, hosts, studies,
// tables of cases; and failure.json, which a supervisor reads.
#include <filesystem>
#include <optional>
#include <vector>

#include "app/foreign_flag_hint.h"
#include "core/json_reader.h"
#include "model/config/model_config.h"
#include "model/config/model_stats.h"
#include "model/config/peft_config.h"
#include "planner/published/case_row.h"
#include "planner/study/study_spec.h"
#include "supervise/hostfile.h"
#include "tests/fuzz/fuzz_target.h"
#include "train/config/stored_config.h"
#include "train/config/train_config.h"
#include "train/launch/failure_file.h"

namespace trident::fuzz {

bool json(std::string_view input) {
  const auto read = [](std::string_view text, bool comments) {
    JsonRules rules;
    rules.comments = comments;
    rules.blame = ExitCode::kData;
    return parse_json(text, "x.json", rules);
  };
  std::optional<JsonValue> value;
  if (!accepts([&] { value = read(input, true); })) return false;
  for (const int indent : {0, 2})
    require(read(to_json_text(*value, indent), false) == *value, "written and read again it is another value");
  return true;
}

bool train_config(std::string_view input) {
  std::optional<JsonValue> resolved;
  if (!accepts([&] { resolved = to_json(parse_train_config(input, "x.json")); })) return false;
  const std::string text = to_json_text(*resolved, 2);
  require(to_json(parse_train_config(text, "config.resolved.json")) == *resolved, "resolved and read again it is another configuration");
  return true;
}

bool stored_config(std::string_view input) {
  std::optional<JsonValue> resolved;
  const auto read = [](std::string_view text) {
    const StoredConfig stored = read_stored(parse_json(text, "config.resolved.json"), "config.resolved.json");
    for (const std::string& fault : stored.faults) check_message(fault);
    return to_stored(stored.config);
  };
  if (!accepts([&] { resolved = read(input); })) return false;
  require(read(to_json_text(*resolved, 2)) == *resolved, "stored and read again it is another configuration");
  return true;
}

// A flag, a zero byte, the argument behind it; the same as a key of a file.
bool foreign_word(std::string_view input) {
  const std::vector<std::string_view> parts = parts_of_input(input, 2);
  const bool is_answered = !foreign_flag_hint(std::string(parts[0]), std::string(parts[1])).empty();
  JsonValue file;
  file.set(parts[0], parts[1]);
  const bool accepted = accepts([&] { parse_train_config(to_json_text(file), "x.json"); });
  require(!accepted, "{} is a whole configuration", in_quotes(parts[0]));
  return is_answered;
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

bool peft_config(std::string_view input) {
  static const ModelConfig base = model_config_from_hf_json(
      R"({"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24})",
      "x");
  std::optional<PeftConfig> config;
  const auto read = [&](std::string_view text) {
    return read_peft_config(parse_json(text, "adapter_config.json"), base, "adapter_config.json");
  };
  if (!accepts([&] { config = read(input); })) return false;
  for (const PeftModule& module : config->modules)
    require(module.rank >= 1 && module.in >= 16 && module.out >= 16, "{} has an adapter of rank {}", module.name, module.rank);
  require(read(to_json_text(parse_json(input, "adapter_config.json"))).modules.size() == config->modules.size(),
          "written and read again it is another adapter");
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

bool hostfile(std::string_view input) {
  std::optional<std::vector<HostSlots>> hosts;
  if (!accepts([&] { hosts = parse_hostfile(input, "hosts"); })) return false;
  require(parse_hostfile(hostfile_text(*hosts), "hosts") == *hosts, "written and read again they are other hosts");
  return true;
}

bool study(std::string_view input) {
  static ScratchFile file("study.json");
  file.set(input);
  std::optional<StudySpec> spec;
  if (!accepts([&] { spec = read_study(file.path()); })) return false;
  accepts([&] { check_spec(*spec); });
  accepts([&] { require(points_of(*spec).size() <= kMaxStudyPoints, "more points than there may be"); });
  return true;
}

bool case_rows(std::string_view input) {
  std::optional<std::vector<CaseRow>> rows;
  if (!accepts([&] { rows = case_rows_of_text(input, "cases.json"); })) return false;
  for (const CaseRow& row : *rows) {
    if (row.refused.empty()) require(row.fields.is_object() && row.id.is_string(), "a row that is none");
    else check_message(row.refused);
  }
  return true;
}

}  // namespace trident::fuzz
