#include "train/run/run_manifest.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "checkpoint/shard_boxes.h"
#include "core/host_name.h"
#include "core/printable.h"
#include "train/config/resolve_model.h"
#include "train/config/stored_config.h"
#include "train/run/adopt.h"

namespace trident {
namespace {

JsonValue writer_facts(const RunPlan& plan) {
  std::error_code ignored;
  return JsonValue::Object{{"program", "trident"},
                           {"host", host_name()},
                           {"working_dir", on_one_line(std::filesystem::current_path(ignored).string())},
                           {"saved_with", layout_json(plan)}};
}

// "4DP x 1PP x 2TP, zero1"; "" of another version's facts.
std::string layout_in(const JsonValue& writer) {
  std::string texts[5];
  std::string_view keys[] = {"dp", "pp", "tp", "zero", "virtual_stages"};
  for (std::size_t i = 0; i < std::size(keys); ++i) {
    const JsonValue* const value = writer.get("saved_with").find(keys[i]);
    if (value == nullptr) return "";
    texts[i] = on_one_line(value->is_string() ? value->as_string() : to_json_text(*value));
  }
  return fmt::format("{}DP x {}PP x {}TP, {}{}", texts[0], texts[1], texts[2], texts[3],
                     texts[4] == "1" ? "" : fmt::format(", {} virtual stages", texts[4]));
}

}  // namespace

JsonValue layout_json(const RunPlan& plan) {
  const ParallelDegrees degrees = plan.grid.degrees();
  return JsonValue::Object{{"ranks", plan.world_size()},
                           {"tp", degrees.tensor},
                           {"pp", degrees.pipeline},
                           {"dp", degrees.data},
                           {"virtual_stages", plan.config.parallel.virtual_stages},
                           {"zero", to_string(plan.zero.preset)}};
}

std::vector<ManifestTensor> stored_tensors(const RunPlan& plan) {
  std::vector<ManifestTensor> tensors;
  std::set<std::string_view> seen;
  for (const UnitLayout& unit : plan.units) {
    for (const ParamSpec& spec : unit.specs) {
      for (const PartSpec& part : spec.parts) {
        if (seen.insert(part.tensor).second) tensors.push_back({part.tensor, stored_shape(part), !part.trainable});
      }
    }
  }
  return tensors;
}

void leave_frozen(std::vector<ManifestTensor>& tensors) {
  for (ManifestTensor& tensor : tensors)
    if (tensor.frozen) tensor.base = 0;
}

std::string recorded_path(const std::string& path) { return std::filesystem::absolute(path).lexically_normal().string(); }

JsonValue config_of_manifest(TrainConfig config) {
  for (std::optional<std::string>* from : {&config.model.init_from, &config.adapter.init_from})
    if (*from) **from = recorded_path(**from);
  if (config.model.hf_config) {
    config.model.keys = model_keys(config);
    config.model.hf_config.reset();
  }
  return to_stored(config);
}

void check_manifest(const RunInputs& inputs) {
  const std::string source = "manifest.json";
  const Manifest manifest = manifest_of(inputs, {}, "none");
  const auto refuse = [](const std::string& why) {
    throw ConfigError(fmt::format("no checkpoint of this run could be read back: {}; give another value, or save none "
                                  "(checkpoint.every = 0)",
                                  why));
  };
  try {
    const JsonValue stored = parse_manifest(to_text(manifest), source).config;  // names that are no UTF-8 have lost those bytes
    const StoredConfig back = read_stored(stored, source);
    if (!back.faults.empty()) refuse(back.faults.front());
    const auto difference = first_difference(stored, config_of_manifest(back.config));
    if (difference) refuse(fmt::format("{} = {} comes back as {}", difference->path, difference->a, difference->b));
    ModelConfig model = inputs.plan.model;
    model.tuning.reset();
    if (!(resolve_model(back.config) == model)) refuse("model comes back as another one");
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    refuse(error.what());
  }
}

Manifest manifest_of(const RunInputs& inputs, const TrainingState& state, const std::string& generation) {
  const RunPlan& plan = inputs.plan;
  Manifest manifest;
  manifest.state = state;
  manifest.weights = plan.compute;
  manifest.complete = plan.config.checkpoint.content == CheckpointContent::kAll;
  if (manifest.complete) manifest.optimizer_states = state_keys(plan.config.optimizer.type);
  manifest.tensors = stored_tensors(plan);
  manifest.generation = generation;
  manifest.written_unix = written_now();
  manifest.config = config_of_manifest(plan.config);
  manifest.data = data_fingerprint(inputs.training_facts());
  manifest.writer = writer_facts(plan);
  return manifest;
}

std::string saved_layout(const Manifest& manifest) { return layout_in(manifest.writer); }

std::string other_layout(const Manifest& manifest, const RunPlan& plan) {
  const std::string then = layout_in(manifest.writer);
  return then == layout_in(writer_facts(plan)) ? "" : then;
}

// "path bytes table_bytes hash first,count,begin,end ...".
std::string to_line(const ManifestFile& file) {
  std::string line = fmt::format("{} {} {} {}", file.path, file.bytes, file.table_bytes, to_string(file.table));
  for (const TensorRun& run : file.runs) line += fmt::format(" {},{},{},{}", run.first, run.count, run.begin, run.end);
  return line + "\n";
}

ManifestFile manifest_file_from(const std::string& line) {
  std::istringstream in(line);
  ManifestFile file;
  std::string hash, run;
  in >> file.path >> file.bytes >> file.table_bytes >> hash;
  file.table = hash_from(hash).value();
  while (in >> run) {
    TensorRun& out = file.runs.emplace_back();
    char comma = 0;
    std::istringstream(run) >> out.first >> comma >> out.count >> comma >> out.begin >> comma >> out.end;
  }
  return file;
}

}  // namespace trident
