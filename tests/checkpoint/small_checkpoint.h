// Checkpoints of a few tensors, written by the tests themselves in any cut: what readers are tried on without the product's writer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/box_file.h"
#include "checkpoint/format/manifest.h"

namespace trident::test {

// The value of element `index` (row-major) of the tensor under a key ("w", "master/w", "exp_avg/w"). Rounded where the key is bf16.
using ValueOf = std::function<double(const std::string& key, std::int64_t index)>;

// A hash of key and index as a number in [-1, 1).
double some_value(const std::string& key, std::int64_t index);

struct SmallFile {
  std::string path;
  std::vector<FileBox> boxes;  // `begin` is filled in
  std::int64_t block_bytes = 4096;
};

// Writes `files` of values and a manifest below `folder`, which it makes. `manifest`: tensors, weights, optimizer_states, complete,
// state; its files are filled in, each with the runs that its boxes need. Returns what was written.
Manifest write_checkpoint(const std::string& folder, Manifest manifest, std::vector<SmallFile> files,
                          const ValueOf& value = some_value);
// Replaces the manifest of a checkpoint.
void write_manifest(const std::string& folder, const Manifest& manifest);

// Tensors w [6, 10] and b [7], scale [] with masters and exp_avg, exp_avg_sq; bf16 weights. `cut` 0: whole, in one file each; 1: by
// rows over three files; 2: by columns and rows over two.
Manifest small_manifest(DType weights = DType::kBF16);
std::vector<SmallFile> small_files(const Manifest& manifest, int cut);

}  // namespace trident::test
