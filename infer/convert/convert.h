// Hugging Face folders to checkpoints and back, value by value, in memory that does not grow with the model. Both write a folder
// that appears whole (output_folder.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/on_progress.h"

namespace trident {

// The written output.
struct ConvertReport {
  std::int64_t tensors = 0, bytes = 0;  // of values
  DType dtype = DType::kF32;
  std::string from = {};  // the folder that was read: of several checkpoints the newest
  std::vector<std::string> weight_files = {}, other_files = {};  // names in the folder
  // One line each: values that are no numbers or became infinite, checkpoints passed over, keys that transformers ignores.
  std::vector<std::string> warnings = {};
};

// A Hugging Face folder, and an adapter of PEFT's form that is merged into it, in f32 and rounded once; "": none.
struct HfSource {
  std::string folder, adapter = {};
  std::string_view key() const { return adapter.empty() ? "--from hf" : "--from peft"; }
};

// Makes the folder `to` a checkpoint of weights alone with those of the Hugging Face folder `from`, in `dtype`: f32, bf16 or f16;
// not given: the folder's own, f32 where it has several. What else the folder holds is carried along (side_files.h).
// model.init_from takes the result. ConfigError: `to` is there, config.json says something that is not supported; DataError naming
// file and tensor; StorageError. Then nothing is left of `to`.
ConvertReport hf_to_checkpoint(const HfSource& from, const std::string& to, std::optional<DType> dtype,
                               const OnProgress& progress = {});

// Makes the folder `to` one of Hugging Face's form with the weights of the checkpoint `from`, or of the newest valid one in that
// folder (find_weights()): masters where `dtype` is not that of the weights and there are any. Adapters are merged into the base as
// peft_to_hf() merges those that checkpoint_to_peft() makes. `shard_bytes`: of values in a file,
// except where one tensor has more; not given: files are cut as those that the checkpoint was made from, or at 5e9 bytes.
// config.json is the one that was carried along where it says the same model and dtype, otherwise made anew. Errors as above.
struct ExportOptions {
  std::optional<DType> dtype = {};  // not given: that of the checkpoint's weights
  std::optional<std::int64_t> shard_bytes = {};
  std::optional<std::string> init_from = {};  // of checkpoint_to_hf(): where the base lies, if not where the checkpoint says
};
ConvertReport checkpoint_to_hf(const std::string& from, const std::string& to, const ExportOptions& options,
                               const OnProgress& progress = {});

// Makes the folder `to` one of Hugging Face's form with the weights of another and its adapter, in the folder's dtype where none is
// given, f32 where it has several; files are cut as the folder's, and what else it holds is carried along. Errors as above, and as
// PeftAdapter.
ConvertReport peft_to_hf(const HfSource& from, const std::string& to, const ExportOptions& options,
                         const OnProgress& progress = {});

// Makes the folder `to` one of PEFT's form with the adapters of the checkpoint `from`, in f32: adapter_config.json, where modules
// have their whole names, and adapter_model.safetensors. Errors as above; ConfigError where the checkpoint has no adapters.
ConvertReport checkpoint_to_peft(const std::string& from, const std::string& to, const OnProgress& progress = {});

// Key of the manifest's writer: what the names in the folder that the checkpoint was made from leave out at their beginning.
inline constexpr std::string_view kLeftOutOfNames = "left_out_of_names";

// Which tensors go into which file, as huggingface_hub cuts them: in their order, each file filled up to `limit` bytes, a larger
// tensor in a file of its own. Pure. `bytes`: of each tensor; its indices.
std::vector<std::vector<std::size_t>> split_into_files(const std::vector<std::int64_t>& bytes, std::int64_t limit);

}  // namespace trident
