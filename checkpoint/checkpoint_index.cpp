#include "checkpoint/checkpoint_index.h"

#include <algorithm>
#include <utility>

#include "checkpoint/box_copy.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/file_record.h"
#include "checkpoint/save_plan.h"
#include "core/check.h"

namespace trident {

namespace {

constexpr std::size_t kOpenFiles = 16;
constexpr std::string_view kTensorRemedy = "the checkpoint is damaged: use an older one, or copy it again";

[[noreturn]] void refuse(std::string_view source, std::string_view key, std::string_view what) {
  throw DataError(fmt::format("{}: tensor {}: {}; {}", source, in_quotes(key), what, kTensorRemedy));
}

}  // namespace

std::vector<StoredKind> stored_kinds(const Manifest& manifest) {
  std::vector<StoredKind> kinds{{"", manifest.weights}};
  if (!manifest.complete) return kinds;
  if (manifest.weights != DType::kF32) kinds.push_back({std::string(kMasterPrefix), DType::kF32});
  for (const std::string& state : manifest.optimizer_states) kinds.push_back({state + "/", DType::kF32});
  return kinds;
}

TableCheck::TableCheck(const Manifest& manifest) : manifest_(manifest), kinds_(stored_kinds(manifest)) {
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) tensor_of_.emplace(manifest.tensors[t].name, t);
}

TableCheck::Place TableCheck::check(std::size_t file, const FileBox& box, std::string_view source) const {
  const std::string_view key = box.key;
  const std::size_t slash = key.find('/'), name = slash == key.npos ? 0 : slash + 1;
  const auto kind = std::ranges::find(kinds_, key.substr(0, name), &StoredKind::prefix);
  const auto tensor = tensor_of_.find(key.substr(name));
  if (kind == kinds_.end() || tensor == tensor_of_.end()) refuse(source, key, "the manifest does not name it");
  const std::vector<std::int64_t>& shape = manifest_.tensors[tensor->second].shape;
  if (box.dtype != kind->dtype)
    refuse(source, key, fmt::format("is {}, the manifest says {}", to_string(box.dtype), to_string(kind->dtype)));
  if (!is_inside(box.box, shape))
    refuse(source, key, fmt::format("box {} lies outside of {}", to_string(box.box), to_string(whole(shape))));
  const auto announces = [&, number = static_cast<std::int64_t>(tensor->second)](const TensorRun& run) {
    if (number < run.first || number - run.first >= run.count) return false;
    const TensorParts parts = parts_of(box.box, shape);
    return parts.begin >= run.begin && parts.end <= run.end;
  };
  const bool announced = box.box.elements() == 0 || std::ranges::any_of(manifest_.files[file].runs, announces);
  if (!announced) refuse(source, key, fmt::format("box {} is in no run that the manifest has of this file", to_string(box.box)));
  return {static_cast<std::size_t>(kind - kinds_.begin()), tensor->second};
}

CheckpointIndex::CheckpointIndex(const Manifest& manifest) : manifest_(manifest), check_(manifest) {
  boxes_.resize(kinds().size() * manifest.tensors.size());
}

void CheckpointIndex::add(std::size_t file, const FileTable& table, std::string_view source) {
  for (const FileBox& box : table.boxes) {
    const TableCheck::Place place = check_.check(file, box, source);
    boxes_[place.kind * manifest_.tensors.size() + place.tensor].push_back({file, box.begin, box.box});
  }
}

void CheckpointIndex::check_tiling(std::size_t kind, std::size_t tensor, std::string_view source) const {
  std::vector<TensorBox> parts;
  for (const StoredBox& box : boxes(kind, tensor)) parts.push_back(box.box);
  const ManifestTensor& of = manifest_.tensors[tensor];
  if (of.base || (of.frozen && !kinds()[kind].prefix.empty())) {
    if (!parts.empty())
      refuse(source, kinds()[kind].prefix + of.name,
             fmt::format("is there, and the manifest says that the tensor {}", of.base ? "lies in a base" : "is frozen"));
    return;
  }
  if (const std::optional<std::string> problem = tiling_problem(of.shape, parts))
    refuse(source, kinds()[kind].prefix + of.name, *problem);
}

StoredTensors::StoredTensors(std::string folder)
    : folder_(std::move(folder)), lock_(folder_), manifest_(open_manifest(folder_)), index_(manifest_) {
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    const BoxReader reader(folder_, manifest_.files[f]);
    index_.add(f, reader.table(), reader.path());
  }
  for (std::size_t k = 0; k < index_.kinds().size(); ++k)
    for (std::size_t t = 0; t < manifest_.tensors.size(); ++t) index_.check_tiling(k, t, folder_);
}

void StoredTensors::read(const StoredBox& box, std::int64_t begin, std::span<std::byte> out) {
  if (open_.empty() || open_.front().file != box.file) {
    if (!open_.empty()) open_.front().reader.release();
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const OpenFile& file) { return file.file == box.file; });
    if (found != open_.end()) {
      open_.splice(open_.begin(), open_, found);
    } else {
      if (open_.size() == kOpenFiles) open_.pop_back();
      open_.push_front({box.file, BoxReader(folder_, manifest_.files[box.file])});
    }
  }
  open_.front().reader.read(box.begin + begin, out);
}

}  // namespace trident
