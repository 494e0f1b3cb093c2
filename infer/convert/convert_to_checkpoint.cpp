
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "checkpoint/block_stream.h"
#include "checkpoint/box_copy.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/file_record.h"
#include "checkpoint/hf_value_reader.h"
#include "core/host_name.h"
#include "infer/convert/side_files.h"
#include "infer/convert/convert.h"
#include "infer/convert/output_folder.h"
#include "infer/convert/value_check.h"
#include "train/config/train_config.h"
#include "train/run/resume.h"

namespace trident {
namespace {

constexpr std::int64_t kReadAhead = std::int64_t{16} << 20;

// In the order in which the folder's files have them, so that both sides go straight on.
FileTable table_of(const HfFolder& folder, std::vector<ManifestTensor> tensors, DType dtype) {
  std::ranges::sort(tensors, {}, [&](const ManifestTensor& tensor) {
    const HfFileTensor* const found = folder.find(tensor.name);
    return std::pair(found->file, found->begin);
  });
  FileTable table;
  std::int64_t begin = 0;
  for (ManifestTensor& tensor : tensors) {
    FileBox& box = table.boxes.emplace_back(FileBox{std::move(tensor.name), dtype, whole(std::move(tensor.shape)), begin});
    begin += box.bytes();
  }
  table.blocks.resize(static_cast<std::size_t>(table.num_blocks()));
  return table;
}

// "transformer." or "model." where the folder's tensors have names without it, as those of a model without its head; else nothing.
std::string left_out_of_names(const HfFolder& folder, const std::vector<ManifestTensor>& tensors) {
  std::string left_out;
  for (const ManifestTensor& tensor : tensors) {
    const std::string& in_file = folder.find(tensor.name)->name;
    if (in_file == tensor.name) {
      if (tensor.name.find('.') != tensor.name.rfind(".weight")) return "";  // not lm_head.weight, which has none
      continue;
    }
    left_out = tensor.name.substr(0, tensor.name.size() - in_file.size());
  }
  return left_out;
}

class Importer {
 public:
  Importer(const WeightsSource& source, FileTable table, const OnProgress& progress)
      : folder_(source.hf), values_(source.hf, source.adapter), table_(std::move(table)), progress_(progress),
        adapted_(source.adapter != nullptr) {}

  // Writes the file, and fills in the hashes of its blocks.
  FileTable write(const std::string& path) {
    const std::int64_t table_bytes = std::ssize(to_text(table_));
    BlockFile out(path, table_bytes + table_.data_bytes());
    {
      BlockStream stream(out, table_bytes);
      for (const FileBox& box : table_.boxes) copy(box, stream);
      table_.blocks = stream.finish();
    }
    const std::string text = to_text(table_);
    const Buffer header = allocate_host(direct_size(table_bytes), "a file's table");
    std::memcpy(header.data(), text.data(), text.size());
    out.write(0, {header.data(), static_cast<std::size_t>(header.num_bytes())});
    out.finish();
    return std::move(table_);
  }
  const ValueCheck& check() const { return check_; }
  const ContentHashes& hashes() const { return hashes_; }  // of what an adapter was merged into

 private:
  void copy(const FileBox& box, BlockStream& stream) {
    const HfFileTensor& tensor = *folder_->find(box.key);
    const DType given = values_.dtype_of(box.key);
    const std::int64_t size = size_of(box.dtype), stored = size_of(given), elements = box.box.elements();
    for (std::int64_t at = 0; at < elements;) {
      const std::span<std::byte> room = stream.room();
      const std::int64_t n = std::min(elements - at, std::ssize(room) / size);
      values_.will_need(box.key, at, kReadAhead);
      std::byte* values = room.data();
      if (given != box.dtype) {
        scratch_.resize(static_cast<std::size_t>(n * stored));
        values = scratch_.data();
      }
      values_.read(box.key, at, {values, static_cast<std::size_t>(n * stored)}, adapted_ ? &hashes_[box.key] : nullptr);
      if (given != box.dtype) convert_values(values, given, room.data(), box.dtype, n);
      check_.look({folder_->path(tensor.file), tensor.name}, tensor.shape, at, values, given, room.data(), box.dtype, n);
      stream.filled(static_cast<std::size_t>(n * size));
      at += n;
      done_ += n * size;
      if (progress_) progress_(done_, table_.data_bytes());
    }
  }

  std::shared_ptr<const HfFolder> folder_;
  HfValueReader values_;
  FileTable table_;
  const OnProgress& progress_;
  std::vector<std::byte> scratch_;
  ValueCheck check_;
  bool adapted_;
  ContentHashes hashes_;
  std::int64_t done_ = 0;
};

}  // namespace

ConvertReport hf_to_checkpoint(const HfSource& given, const std::string& to, std::optional<DType> dtype,
                               const OnProgress& progress) {
  refuse_name_of_step(to, checkpoint_name(0));
  const Resume source = find_hf_weights(given.folder, given.key(), given.adapter);
  const std::shared_ptr<const HfFolder>& folder = source.hf;
  const std::string& from = source.folder;
  Manifest manifest;
  manifest.weights = dtype.value_or(folder->common_dtype());
  manifest.complete = false;
  manifest.tensors = tensors_of_hf(model_of(source));
  manifest.config = to_json(parse_train_config(to_json_text(config_of_hf(source)), from + "/config.json"));
  manifest.data = JsonValue(JsonValue::Array{});
  manifest.writer.set("program", "trident");
  manifest.writer.set("host", host_name());
  manifest.writer.set("converted_from", from);
  if (!given.adapter.empty()) manifest.writer.set("merged_adapter", given.adapter);
  if (const std::string left_out = left_out_of_names(*folder, manifest.tensors); !left_out.empty())
    manifest.writer.set(kLeftOutOfNames, left_out);
  manifest.written_unix = written_now();

  OutputFolder out(to);
  create_folder(out.path() + "/weights");
  SaveFile file{"weights/w-00000-0.safetensors", table_of(*folder, manifest.tensors, manifest.weights)};
  Importer importer(source, std::move(file.table), progress);
  file.table = importer.write(out.path() + "/" + file.path);
  check_base(source, importer.hashes(), manifest.tensors);
  manifest.files = {manifest_file(file, manifest.tensors)};
  ConvertReport report{std::ssize(manifest.tensors), file.table.data_bytes(), manifest.weights, from, {file.path},
                       side_files(from)};
  const std::string carried = out.path() + "/" + std::string(kCarriedFolder);
  create_folder(carried);
  copy_carried(from, report.other_files, carried);
  write_file(out.path() + "/" + std::string(kManifestName), to_text(manifest));
  out.commit();
  report.warnings = importer.check().warnings();
  return report;
}

}  // namespace trident
