// The manifest of a run's checkpoints, without their boxes.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "train/run/run_inputs.h"

namespace trident {

// The tensors of a model, as files have them, in the model's order.
std::vector<ManifestTensor> stored_tensors(const RunPlan& plan);
// Leaves frozen ones in a base; their hashes are not known yet.
void leave_frozen(std::vector<ManifestTensor>& tensors);

// A run's configuration as checkpoints have it: to_stored(), but with the keys of a model that a file has (model.hf_config),
// because that may be gone when the checkpoint is read, and model.init_from as an absolute path, because who converts the
// checkpoint looks there for the tokenizer, from wherever that is done.
JsonValue config_of_manifest(TrainConfig config);
// Makes a path absolute, as manifests have that of model.init_from.
std::string recorded_path(const std::string& path);

// Refuses (ConfigError) a run whose configuration is another one when a reader of its checkpoints has parsed it.
void check_manifest(const RunInputs& inputs);

// The manifest of a checkpoint that this run saves now, without its files. `generation`: of this launch.
Manifest manifest_of(const RunInputs& inputs, const TrainingState& state, const std::string& generation);

// {"ranks", "tp", "pp", "dp", "virtual_stages", "zero"}: a layout, as checkpoints and run.json have it.
JsonValue layout_json(const RunPlan& plan);
// "4DP x 1PP x 2TP, zero1": the layout that saved it; "" where the writer does not say it.
std::string saved_layout(const Manifest& manifest);
// The same, where it is not the plan's; else "".
std::string other_layout(const Manifest& manifest, const RunPlan& plan);

// A file's writer tells rank 0 of it in a line, and back. Paths have no spaces.
std::string to_line(const ManifestFile& file);
ManifestFile manifest_file_from(const std::string& line);

}  // namespace trident
