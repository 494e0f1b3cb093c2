#include "checkpoint/shard_reader.h"

#include <algorithm>
#include <optional>

#include "checkpoint/content_hash.h"
#include "checkpoint/file_record.h"
#include "checkpoint/save_plan.h"
#include "core/at.h"

namespace trident {
namespace {

constexpr std::size_t kMaxOpenFiles = 16;  // of a rank
constexpr std::size_t kMaxBlocks = 2;      // of them in memory: of weights and of what the optimizer has, which are read by turns

bool may_hold(const ManifestFile& file, std::int64_t tensor, const TensorParts& parts) {
  return std::ranges::any_of(file.runs, [&](const TensorRun& run) {
    return tensor >= run.first && tensor - run.first < run.count && parts.begin < run.end && run.begin < parts.end;
  });
}

}  // namespace

struct ShardReader::Table {
  explicit Table(std::shared_ptr<const FileTable> of_file) : file(std::move(of_file)) {
    for (const FileBox& box : file->boxes) boxes.emplace(box.key, &box);
  }
  std::shared_ptr<const FileTable> file;
  std::unordered_map<std::string_view, const FileBox*> boxes;
};

ShardReader::ShardReader(std::string folder, Manifest manifest) : folder_(std::move(folder)), lock_(folder_), manifest_(std::move(manifest)), check_(manifest_) {
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) index_.emplace(manifest_.tensors[i].name, static_cast<std::int64_t>(i));
}

ShardReader::~ShardReader() = default;

std::int64_t ShardReader::find(std::string_view tensor) const {
  const auto found = index_.find(tensor);
  return found == index_.end() ? -1 : found->second;
}

std::vector<std::string> ShardReader::odd_values() const {
  std::vector<std::string> lines;
  for (const std::string& tensor : odd_)
    lines.push_back(fmt::format("{}: tensor {} has values that are no numbers or infinite", folder_, in_quotes(tensor)));
  return lines;
}

const ShardReader::Table& ShardReader::table_of(std::size_t file) {
  if (const auto known = tables_.find(file); known != tables_.end()) return *known->second;
  const BoxReader& reader = open(file);
  for (const FileBox& box : reader.table().boxes) check_.check(file, box, reader.path());
  return *tables_.emplace(file, std::make_unique<Table>(reader.shared_table())).first->second;
}

const FileBox* ShardReader::find_box(std::size_t file, const std::string& key) {
  const Table& table = table_of(file);
  const auto found = table.boxes.find(key);
  return found == table.boxes.end() ? nullptr : found->second;
}

BoxReader& ShardReader::open(std::size_t file) {
  if (const auto found = open_.find(file); found != open_.end()) return *found->second;
  if (opened_.size() == kMaxOpenFiles) {
    open_.erase(opened_.front());
    std::erase(with_block_, opened_.front());
    opened_.erase(opened_.begin());
  }
  const ManifestFile& entry = manifest_.files[file];
  const auto known = tables_.find(file);
  const auto added = known == tables_.end()
                         ? open_.emplace(file, std::make_unique<BoxReader>(folder_, entry)).first
                         : open_.emplace(file, std::make_unique<BoxReader>(folder_, entry, known->second->file)).first;
  opened_.push_back(file);
  return *added->second;
}

// Before a block of the file is read: that of the file that was not read for longest goes.
BoxReader& ShardReader::reader_of(std::size_t file) {
  BoxReader& reader = open(file);
  std::erase(with_block_, file);
  if (with_block_.size() == kMaxBlocks) {
    open_.at(with_block_.front())->release();
    with_block_.erase(with_block_.begin());
  }
  with_block_.push_back(file);
  return reader;
}

std::string_view ShardReader::exact_prefix(std::string_view tensor) const {
  const bool has_masters = manifest_.complete && manifest_.weights != DType::kF32;
  const std::int64_t t = find(tensor);
  return has_masters && t >= 0 && !at(manifest_.tensors, t).frozen ? kMasterPrefix : std::string_view();
}

void ShardReader::read(std::string_view prefix, const ShardBox& box, const TensorView& shard, const WriteValues& write_values,
                       Narrowing narrowing, std::uint64_t* hash) {
  const std::int64_t tensor = find(box.tensor);
  if (tensor < 0) throw DataError(fmt::format("{}: has no tensor {}; it is of another model", folder_, box.tensor));
  if (const std::vector<std::int64_t>& shape = at(manifest_.tensors, tensor).shape; shape != box.tensor_shape)
    throw DataError(fmt::format("{}: {} is {}, the model has {}; it is of another model", folder_, box.tensor,
                                to_string(whole(shape)), to_string(whole(box.tensor_shape))));
  try {
    fill_shard(box, shard, write_values,
               [&](const ShardBox& part, std::byte* out, DType dtype) { read_host(prefix, part, out, dtype, narrowing, hash); });
  } catch (const NotPermitted&) {
    throw;
  } catch (const DataError& error) {
    throw DamagedValues(folder_, error);
  }
}

void ShardReader::read_host(std::string_view prefix, const ShardBox& box, std::byte* out, DType dtype, Narrowing narrowing,
                            std::uint64_t* hash) {
  const std::int64_t tensor = find(box.tensor);
  const bool is_weight = prefix.empty() || prefix == kMasterPrefix;  // not of the optimizer
  const std::string key = std::string(prefix) + box.tensor;
  const std::vector<std::int64_t>& shape = at(manifest_.tensors, tensor).shape;
  std::int64_t found = 0;
  std::vector<TensorBox> held;  // the parts, as of a tensor that is the box
  const TensorParts parts = parts_of(box.box, shape);
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    if (!may_hold(manifest_.files[f], tensor, parts)) continue;
    const FileBox* const entry = find_box(f, key);
    if (entry == nullptr) continue;
    const FileBox& stored = *entry;
    const std::string where = fmt::format("{}/{}", folder_, manifest_.files[f].path);
    if (!converts(stored.dtype, dtype, narrowing))
      throw DataError(fmt::format("{}: {} is {}, not {}; use another checkpoint", where, key, to_string(stored.dtype), to_string(dtype)));
    const auto part = intersection(stored.box, box.box);
    if (!part) continue;
    held.push_back(*part);
    for (std::size_t d = 0; d < shape.size(); ++d) held.back().offset[d] -= box.box.offset[d];
    BoxReader& reader = reader_of(f);
    found += copy_shared(stored.box, stored.dtype, box, out, dtype, scratch_, [&](std::int64_t begin, std::span<std::byte> bytes) {
      reader.read(stored.begin + begin, bytes);
      if (hash != nullptr) *hash += content_hash(stored.box, shape, begin / size_of(stored.dtype), bytes, stored.dtype);
      if (!is_weight) return;
      const OddValues odd = trident::odd_values(bytes.data(), stored.dtype, std::ssize(bytes) / size_of(stored.dtype));
      if (std::max(odd.nan, odd.infinity) >= 0) odd_.insert(box.tensor);
    });
  }
  if (found == box.elements()) {
    // As many may be some twice and others not at all.
    const std::optional<std::string> problem = held.size() > 1 ? tiling_problem(box.box.shape, held) : std::nullopt;
    if (!problem) return;
    throw DataError(fmt::format("{}: {} {}: {}, counted from its first element; use another checkpoint", folder_, key,
                                to_string(box.box), *problem));
  }
  // Perhaps a file has the rest, and the manifest does not say so of it.
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) table_of(f);
  throw DataError(fmt::format("{}: {} of the {} elements {} of {} are stored; the checkpoint is not complete", folder_, found, box.elements(), to_string(box.box), key));
}

}  // namespace trident
