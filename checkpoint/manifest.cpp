#include "checkpoint/manifest.h"

#include <cmath>
#include <cstdint>

#include "checkpoint/safetensors.h"
#include "core/check.h"

namespace trident {

namespace {

JsonValue list_of(const std::vector<std::int64_t>& values) { return JsonValue::Array(values.begin(), values.end()); }

JsonValue to_json(const TrainingState& state) {
  TRIDENT_CHECK(std::isfinite(state.loss_scale), "loss scale {}", state.loss_scale);
  JsonValue json;
  json.set("updates", state.updates);
  json.set("batches", state.batches);
  json.set("skipped", state.skipped);
  json.set("skipped_in_a_row", state.skipped_in_a_row);
  json.set("position", state.position);
  json.set("samples", state.samples);
  json.set("tokens", state.tokens);
  json.set("loss_scale", state.loss_scale);
  json.set("loss_scale_clean_steps", state.loss_scale_clean_steps);
  json.set("loss_scale_overflows_left", state.loss_scale_overflows_left);
  json.set("blend_start", state.blend_start);
  json.set("blend_taken", list_of(state.blend_taken));
  json.set("blend_now", list_of(state.blend_now));
  json.set("best_valid_loss", state.best_valid_loss ? JsonValue(*state.best_valid_loss) : JsonValue());
  json.set("best_valid_step", state.best_valid_step);
  json.set("last_eval", state.last_eval);
  return json;
}

JsonValue to_json(const ManifestTensor& tensor) {
  return JsonValue::Object{{"name", tensor.name}, {"shape", list_of(tensor.shape)}};
}

JsonValue to_json(const ManifestFile& file) {
  JsonValue::Array runs;
  for (const TensorRun& run : file.runs) runs.push_back(JsonValue::Array{run.first, run.count, run.begin, run.end});
  return JsonValue::Object{{"path", file.path},
                           {"bytes", file.bytes},
                           {"table_bytes", file.table_bytes},
                           {"table", to_string(file.table)},
                           {"runs", std::move(runs)}};
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  JsonValue::Array tensors, files;
  for (const ManifestTensor& tensor : manifest.tensors) tensors.push_back(to_json(tensor));
  for (const ManifestFile& file : manifest.files) files.push_back(to_json(file));
  JsonValue root;
  root.set("format", "trident-checkpoint");
  root.set("version", Manifest::kVersion);
  root.set("min_reader_version", Manifest::kVersion);
  root.set("state", to_json(manifest.state));
  root.set("weights", safetensors_name(manifest.weights));
  root.set("complete", manifest.complete);
  root.set("optimizer_states", JsonValue::Array(manifest.optimizer_states.begin(), manifest.optimizer_states.end()));
  root.set("tensors", std::move(tensors));
  root.set("files", std::move(files));
  root.set("generation", manifest.generation);
  root.set("written_unix", manifest.written_unix);
  root.set("config", manifest.config);
  root.set("data", manifest.data);
  root.set("writer", manifest.writer);
  std::string text = to_json_text(root);
  text.pop_back();  // the brace, which comes behind the hash
  const std::string hash = to_string(hash128(text));
  return text + ",\"hash\":\"" + hash + "\"}\n";
}

}  // namespace trident
