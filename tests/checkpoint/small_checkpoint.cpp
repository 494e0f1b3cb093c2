#include "tests/checkpoint/small_checkpoint.h"

#include <algorithm>
#include <cstdint>

#include "checkpoint/checkpoint_folder.h"
#include "core/bf16.h"
#include "core/file_io.h"

namespace trident::test {

namespace {

std::string tensor_of(const std::string& key) { return key.substr(key.find('/') + 1); }

std::size_t tensor_index(const Manifest& manifest, const std::string& key) {
  const auto found = std::find_if(manifest.tensors.begin(), manifest.tensors.end(),
                                  [&](const ManifestTensor& tensor) { return tensor.name == tensor_of(key); });
  TRIDENT_CHECK(found != manifest.tensors.end(), "no tensor {}", key);
  return static_cast<std::size_t>(found - manifest.tensors.begin());
}

// Row-major numbers of a box's elements in its tensor.
std::vector<std::int64_t> indices_of(const TensorBox& box, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> indices{0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int64_t> finer;
    for (const std::int64_t index : indices)
      for (std::int64_t i = 0; i < box.shape[d]; ++i) finer.push_back(index * shape[d] + box.offset[d] + i);
    indices = std::move(finer);
  }
  return indices;
}

}  // namespace

double some_value(const std::string& key, std::int64_t index) {
  return static_cast<double>(static_cast<std::int64_t>(hash128(fmt::format("{} {}", key, index)).low)) * 0x1p-63;
}

Manifest write_checkpoint(const std::string& folder, Manifest manifest, std::vector<SmallFile> files, const ValueOf& value) {
  for (SmallFile& file : files) {
    FileTable table{file.boxes, {}, file.block_bytes};
    std::string data;
    ManifestFile entry{file.path, 0, 0, {}, {}};
    for (FileBox& box : table.boxes) {
      box.begin = std::ssize(data);
      const std::size_t tensor = tensor_index(manifest, box.key);
      const std::vector<std::int64_t> indices = indices_of(box.box, manifest.tensors[tensor].shape);
      for (const std::int64_t index : indices) {
        const auto wide = static_cast<float>(value(box.key, index));
        const bf16 narrow = to_bf16(wide);
        data.append(box.dtype == DType::kBF16 ? reinterpret_cast<const char*>(&narrow) : reinterpret_cast<const char*>(&wide),
                    static_cast<std::size_t>(size_of(box.dtype)));
      }
      entry.runs.push_back({static_cast<std::int64_t>(tensor), 1, 0, kTensorParts});
    }
    for (std::int64_t begin = 0; begin < std::ssize(data); begin += table.block_bytes)
      table.blocks.push_back(
          hash128(std::string_view(data).substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(table.block_bytes))));
    const std::string text = to_text(table);
    entry.bytes = std::ssize(text) + std::ssize(data);
    entry.table_bytes = std::ssize(text);
    entry.table = hash128(text);
    create_folder_of(folder + "/" + file.path);
    write_file(folder + "/" + file.path, text + data);
    manifest.files.push_back(std::move(entry));
  }
  write_manifest(folder, manifest);
  return manifest;
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  create_folder(folder);
  write_file(folder + "/" + std::string(kManifestName), to_text(manifest));
}

Manifest small_manifest(DType weights) {
  Manifest manifest;
  manifest.state.updates = manifest.state.batches = 7;
  manifest.weights = weights;
  manifest.optimizer_states = {"exp_avg", "exp_avg_sq"};
  manifest.tensors = {{"w", {6, 10}}, {"b", {7}}, {"scale", {}}};
  return manifest;
}

std::vector<SmallFile> small_files(const Manifest& manifest, int cut) {
  std::vector<std::vector<TensorBox>> boxes;  // by tensor and file
  if (cut == 0) boxes = {{{{0, 0}, {6, 10}}}, {{{0}, {7}}}, {{{}, {}}}};
  if (cut == 1) boxes = {{{{0, 0}, {1, 10}}, {{1, 0}, {2, 10}}, {{3, 0}, {3, 10}}}, {{{0}, {3}}, {{3}, {4}}}, {{{}, {}}}};
  if (cut == 2) boxes = {{{{0, 0}, {6, 3}}, {{0, 3}, {6, 7}}}, {{{5}, {2}}, {{0}, {5}}}, {{{}, {}}}};
  std::vector<SmallFile> files;
  for (std::size_t f = 0; f < boxes[0].size(); ++f) {
    SmallFile weights{fmt::format("weights/w-{:05}-0.safetensors", f), {}},
        optimizer{fmt::format("optim/o-{:05}-0.safetensors", f), {}};
    for (std::size_t t = 0; t < boxes.size(); ++t) {
      if (f >= boxes[t].size()) continue;
      const std::string& name = manifest.tensors[t].name;
      weights.boxes.push_back({name, manifest.weights, boxes[t][f]});
      if (!manifest.complete) continue;
      if (manifest.weights != DType::kF32) optimizer.boxes.push_back({"master/" + name, DType::kF32, boxes[t][f]});
      for (const std::string& state : manifest.optimizer_states)
        optimizer.boxes.push_back({state + "/" + name, DType::kF32, boxes[t][f]});
    }
    files.push_back(std::move(weights));
    if (!optimizer.boxes.empty()) files.push_back(std::move(optimizer));
  }
  return files;
}

}  // namespace trident::test
