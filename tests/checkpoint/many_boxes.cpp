#include "tests/checkpoint/many_boxes.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "checkpoint/format/box_file.h"
#include "core/check.h"
#include "core/file_io.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace trident::test {

namespace {

std::string name_of(std::int64_t tensor) {
  return fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", tensor / 100, tensor);
}

// Returns the beginning of file `f`, and its data.
std::pair<std::string, std::string> content_of(const ManyBoxes& many, std::int64_t f) {
  FileTable table;
  std::string data;
  for (std::int64_t t = 0; t < many.tensors; ++t) {
    table.boxes.push_back({name_of(t), DType::kF32, {{f, 0}, {1, 1}}, std::ssize(data)});
    const float value = many.value(t, f);
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  table.blocks = {hash128(data)};
  return {to_text(table), std::move(data)};
}

}  // namespace

Manifest write_many_boxes(const std::string& folder, const ManyBoxes& many, const std::function<bool(std::int64_t)>& is_written) {
  const bool one_block = many.tensors * static_cast<std::int64_t>(sizeof(float)) <= kBlockBytes;
  TRIDENT_CHECK(one_block && kTensorParts % many.files == 0, "{} tensors, {} files", many.tensors, many.files);
  Manifest manifest = small_manifest(DType::kF32);
  manifest.complete = false;
  manifest.optimizer_states.clear();
  manifest.tensors.clear();
  for (std::int64_t t = 0; t < many.tensors; ++t) manifest.tensors.push_back({name_of(t), {many.files, 1}});
  create_folder(folder);
  create_folder(folder + "/weights");
  const std::int64_t largest = std::ssize(content_of(many, many.files - 1).first), parts = kTensorParts / many.files;
  for (std::int64_t f = 0; f < many.files; ++f) {
    ManifestFile file{fmt::format("weights/w-{:05}-0.safetensors", f), largest + 4 * many.tensors, largest, {}, {}};
    const std::string path = folder + "/" + file.path;
    if (is_written(f)) {
      const auto [table, data] = content_of(many, f);
      file.bytes = std::ssize(table) + std::ssize(data);
      file.table_bytes = std::ssize(table);
      file.table = hash128(table);
      write_file(path, table + data);
    } else {
      write_file(path, "");
      std::filesystem::resize_file(path, static_cast<std::uintmax_t>(file.bytes));
    }
    // As manifest_file() says it: row f is one element of `files`.
    file.runs = {{0, many.tensors, static_cast<int>(f * parts), static_cast<int>(f * parts) + 1}};
    manifest.files.push_back(std::move(file));
  }
  write_manifest(folder, manifest);
  return manifest;
}

std::vector<float> read_rows(ShardReader& reader, const ManyBoxes& many, std::int64_t first, std::int64_t rows) {
  std::vector<float> values(static_cast<std::size_t>(many.tensors * rows), -1);
  const TensorView shard(values.data(), DType::kF32, {std::ssize(values)});
  for (std::int64_t t = 0; t < many.tensors; ++t) {
    ShardBox box{.begin = t * rows, .rows = rows, .columns = 1};
    box.tensor = name_of(t);
    box.tensor_shape = {many.files, 1};
    box.box = {{first, 0}, {rows, 1}};
    reader.read("", box, shard);
  }
  return values;
}

}  // namespace trident::test
