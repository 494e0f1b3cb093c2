// manifest.json: what a checkpoint consists of, and the state of training beside its tensors. A folder with a valid manifest is a
// checkpoint; nothing else is.
//
// One JSON object, its last member "hash": the XXH3-128 of all bytes of the file before `,"hash"`.
// docs/design/checkpoint-format.md describes every member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/hash128.h"
#include "core/check.h"
#include "core/dtype.h"
#include "core/json_reader.h"

namespace trident {

// Where in their tensors the boxes of a file lie, for some of them: the file has boxes of tensors first .. first + count - 1, all
// within parts begin .. end of kTensorParts equal parts of each tensor's elements (row-major). Readers leave files alone that cannot
// have what they look for.
struct TensorRun {
  std::int64_t first = 0, count = 0;
  int begin = 0, end = 0;
  bool operator==(const TensorRun&) const = default;
};
inline constexpr int kTensorParts = 1 << 16;

// A model has no more in a manifest or in the files of another program: the deepest that can be configured has fewer.
inline constexpr std::size_t kMaxTensors = std::size_t{1} << 16;

struct ManifestFile {
  std::string path;              // below the checkpoint's folder: "weights/w-00003-0.safetensors"
  std::int64_t bytes = 0;        // of the whole file
  std::int64_t table_bytes = 0;  // of its header, 8 + N
  Hash128 table;                 // of those bytes
  std::vector<TensorRun> runs;
  bool operator==(const ManifestFile&) const = default;
};

struct ManifestTensor {
  std::string name;  // Hugging Face's
  std::vector<std::int64_t> shape;
  bool frozen = false;  // its weights alone are stored: training left them as they were
  // The tensor is frozen and not stored: this is content_hash() of its values in Manifest::base.
  std::optional<std::uint64_t> base = {};
  bool operator==(const ManifestTensor&) const = default;
};

// Training resumes from these numbers and the tensors.
struct TrainingState {
  std::int64_t updates = 0;           // completed
  std::int64_t batches = 0;           // tried: the data position and the key of dropout
  std::int64_t skipped = 0;           // batches whose gradients were not finite
  std::int64_t skipped_in_a_row = 0;
  std::int64_t position = 0;             // samples that batches took so far: where the next one begins
  std::int64_t samples = 0, tokens = 0;  // of the updates
  double loss_scale = 1;
  std::int64_t loss_scale_clean_steps = 0;
  std::int64_t loss_scale_overflows_left = 0;
  // The rule by which datasets are blended started at this position, when so many samples of each had been taken.
  std::int64_t blend_start = 0;
  std::vector<std::int64_t> blend_taken;  // at blend_start, by dataset; empty: none
  std::vector<std::int64_t> blend_now;    // after `batches`
  std::optional<double> best_valid_loss;
  std::int64_t best_valid_step = 0;
  std::int64_t last_eval = -1;  // updates when validation data were last evaluated; -1: never
  bool operator==(const TrainingState&) const = default;
};
JsonValue to_json(const TrainingState& state);  // all of it

struct Manifest {
  static constexpr int kVersion = 2;  // 1: without a base

  TrainingState state;
  DType weights = DType::kF32;            // of weights/; unless f32, the master weights are stored, too
  bool complete = true;                   // false: weights alone, without masters and optimizer state
  std::vector<std::string> optimizer_states;  // "exp_avg", ...: prefixes of keys, f32
  std::vector<ManifestTensor> tensors;    // in the model's order; indices of TensorRun
  std::string base;                       // where the model lay with which training began; "" where all tensors are stored
  std::vector<ManifestFile> files;
  std::string generation;                 // of the launch that wrote it
  std::int64_t written_unix = 0;          // seconds, from 0
  JsonValue config;                       // resolved
  JsonValue data;                         // fingerprints
  JsonValue writer;                       // versions, hosts, layout: information, never needed to load

  bool operator==(const Manifest&) const = default;
};

// Longer texts are not read.
inline constexpr std::int64_t kMaxManifestBytes = std::int64_t{256} << 20;

// The bytes of all files that the manifest names, without its own.
std::int64_t total_bytes(const Manifest& manifest);

std::string to_text(const Manifest& manifest);

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[768,3072]"

// Manifest::written_unix of this moment: 0 where the clock stands before 1970.
std::int64_t written_now();

// A manifest that only a newer trident understands.
class NewerFormat : public DataError {
 public:
  using DataError::DataError;
};

// NewerFormat, or DataError naming `source` (the file) and, where it can, tensor or file: hash, version, structure; paths that are absolute, have ".."
// or other than letters, digits, '.', '_', '-' and single '/'; runs outside the tensors; numbers that cannot be; names twice.
Manifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace trident
