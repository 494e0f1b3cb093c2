#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/peft_adapter.h"
#include "checkpoint/shard_reader.h"
#include "core/check.h"
#include "core/file_io.h"
#include "core/name_pattern.h"
#include "infer/convert/convert.h"
#include "infer/convert/output_folder.h"
#include "infer/convert/side_files.h"
#include "model/config/param_names.h"
#include "model/config/peft_config.h"
#include "train/config/resolve_tuning.h"
#include "train/run/model_tokenizer.h"
#include "train/run/resume.h"

namespace trident {
namespace {

JsonValue number_json(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

// The base of the adapters, by name: a run that began with a checkpoint of adapters has the base of these, unless modules beside
// them trained whole, which the base has not.
std::optional<std::string> base_of(const WeightsSource& source) {
  const TrainConfig config = config_of(source).config;
  const WeightsSource* const base = source.base.get();
  const bool is_beside_another =
      base != nullptr && base->base != nullptr && config_of(*base).config.adapter.modules_to_save == config.adapter.modules_to_save;
  return is_beside_another ? base_of(*base) : config.model.init_from;
}

// As PEFT names modules: by the ends of their names where these say which, else by whole names.
std::vector<std::string> names_of(const std::vector<AdaptedModule>& adapted, const ModelConfig& model) {
  std::vector<std::string> whole, ends;
  for (const AdaptedModule& module : adapted) {
    whole.push_back(module.module);
    if (std::ranges::count(ends, last_word(module.module)) == 0) ends.emplace_back(last_word(module.module));
  }
  const std::vector<std::string> all = adaptable_modules(model);
  const auto named = std::ranges::count_if(all, [&](const std::string& it) { return std::ranges::count(ends, last_word(it)) > 0; });
  return named == std::ssize(whole) ? ends : whole;
}

// Makes adapter_config.json with its keys in order, as PEFT writes it. Keys that it leaves out are null, empty or false to PEFT,
// and earlier versions do not know all of them.
JsonValue peft_config_json(const TrainConfig& config, const ModelConfig& model, const AdapterSpec& spec,
                           const std::optional<std::string>& base) {
  const std::vector<std::string> names = names_of(spec.modules, model);
  JsonValue::Array modules(names.begin(), names.end());
  std::map<std::string, JsonValue> keys;
  keys["base_model_name_or_path"] = base;
  keys["bias"] = "none";
  keys["fan_in_fan_out"] = block_names(model, 0).transposed_on_disk;
  keys["inference_mode"] = true;
  keys["init_lora_weights"] = true;
  keys["lora_alpha"] = number_json(config.adapter.alpha);
  keys["lora_dropout"] = config.adapter.dropout;
  keys["peft_type"] = "LORA";
  keys["r"] = config.adapter.r;
  keys["target_modules"] = std::move(modules);
  JsonValue::Array saved;
  const EndNames ends = end_names(model);
  const std::vector<std::string>& to_save = config.adapter.modules_to_save;
  const bool tied = model.tie_embeddings && (is_saved_module(to_save, ends.embedding) || is_saved_module(to_save, ends.head));
  for (const std::string& name : to_save)
    if (!tied || !(ends.head.ends_with(name) || ends.embedding.ends_with(name))) saved.emplace_back(name);
  if (tied) saved.emplace_back(ends.embedding), keys["ensure_weight_tying"] = true;
  if (!saved.empty()) keys["modules_to_save"] = std::move(saved);
  keys["task_type"] = "CAUSAL_LM";
  keys["use_dora"] = spec.dora;
  keys["use_rslora"] = config.adapter.rslora;
  JsonValue json;
  for (auto& [key, value] : keys) json.set(key, std::move(value));
  return json;
}

std::vector<float> read_all(ShardReader& reader, const ManifestTensor& tensor) {
  ShardBox box;
  box.box = whole(tensor.shape);
  box.columns = tensor.shape.back();
  box.rows = box.box.elements() / box.columns;
  box.tensor = tensor.name;
  box.tensor_shape = tensor.shape;
  std::vector<float> values(static_cast<std::size_t>(box.elements()));
  reader.read(reader.exact_prefix(tensor.name), box, TensorView(values.data(), DType::kF32, {box.elements()}));
  return values;
}

ConvertReport write_adapters(Resume source, const std::string& to, const OnProgress& progress) {
  try {
    if (is_there(source.manifest.base)) open_base(source);  // for its names alone: adapters go out without it, too
  } catch (const ConfigError& error) {
    source.notes.emplace_back(error.what());
  } catch (const StorageError& error) {
    source.notes.emplace_back(error.what());
  }
  const Manifest& manifest = source.manifest;
  const TrainConfig config = config_of(source).config;
  if (!config.adapter.type)
    throw ConfigError(fmt::format("--to peft: {} is of a run without adapters (adapter.type); write --to hf", source.folder));
  const ModelConfig model = model_of(source);
  const std::shared_ptr<const Tuning> tuning = resolve_tuning(config, model);

  std::map<std::string, ManifestTensor> tensors;  // by the name in the file
  const EndNames ends = end_names(model);
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!tuning->trains(tensor.name)) continue;
    tensors.emplace(fmt::format("{}{}", kPeftPrefix, tensor.name), tensor);
    // PEFT saves a tied head, too.
    if (model.tie_embeddings && tensor.name == ends.embedding + ".weight")
      tensors.emplace(fmt::format("{}{}.weight", kPeftPrefix, ends.head), tensor);
  }
  SafetensorsHeader header{{{"format", "pt"}}, {}};
  JsonValue base_values;
  for (const ManifestTensor& tensor : manifest.tensors)
    if (tensor.base) base_values.set(base_value_key(tensor), fmt::format("{:016x}", *tensor.base));
  if (base_values.is_object()) header.metadata.emplace_back(kPeftBaseValues, to_json_text(base_values));
  for (const auto& [name, tensor] : tensors) {
    const std::int64_t begin = header.data_bytes(), bytes = whole(tensor.shape).elements() * size_of(DType::kF32);
    header.entries.push_back({name, DType::kF32, tensor.shape, begin, begin + bytes});
  }

  OutputFolder out(to);
  ShardReader reader(source.folder, manifest);
  AtomicFile file(fmt::format("{}/{}", out.path(), kPeftWeightsName));
  file.append(to_text(header));
  std::int64_t done = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::vector<float> values = read_all(reader, tensor);
    file.append(std::as_bytes(std::span(values)));
    done += std::ssize(values) * size_of(DType::kF32);
    if (progress) progress(done, header.data_bytes());
  }
  file.commit();
  write_file(fmt::format("{}/{}", out.path(), kPeftConfigName),
             to_json_text(peft_config_json(config, model, tuning->adapters, base_of(source)), 2) + "\n");
  if (const std::optional<std::string> tokenizer = added_tokenizer_of(source))
    copy_carried(*tokenizer, tokenizer_files(*tokenizer), out.path());
  out.commit();
  ConvertReport report{std::ssize(tensors), header.data_bytes(), DType::kF32, source.folder, {std::string(kPeftWeightsName)},
                       {std::string(kPeftConfigName)}, source.notes};
  if (!reader.lock_note().empty()) report.warnings.push_back(reader.lock_note());
  if (!config.model.init_from)
    report.warnings.emplace_back("the run began with random weights; name the adapter's base in base_model_name_or_path");
  return report;
}

}  // namespace

ConvertReport checkpoint_to_peft(const std::string& from, const std::string& to, const OnProgress& progress) {
  refuse_name_of_step(to);
  return use_newest_weights(from, "--from ckpt",
                            [&](Resume source) { return write_adapters(std::move(source), to, progress); });
}

}  // namespace trident
