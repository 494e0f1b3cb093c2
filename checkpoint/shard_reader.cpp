#include "checkpoint/shard_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "checkpoint/box_tiling.h"
#include "core/bf16.h"
#include "core/check.h"
#include "core/f16.h"

namespace trident {
namespace {

constexpr std::size_t kMaxOpenFiles = 16;  // of a rank
constexpr std::size_t kMaxBlocks = 2;      // of them in memory: of weights and of what the optimizer has, which are read by turns
constexpr std::int64_t kScratchBytes = std::int64_t{1} << 20;

float as_f32(const std::byte* from, DType dtype) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return dtype == DType::kBF16 ? to_float(bf16{bits}) : to_float(f16{bits});
}

// Whether values of a file can fill a shard.
bool converts(DType from, DType to) {
  const bool is_float = from == DType::kF32 || from == DType::kBF16 || from == DType::kF16;
  return from == to || (to == DType::kF32 && is_float);
}

// Where the elements of a box go: element (i, j) of it, of (n, m), to i * row + j * column. Boxes of other ranks are seen as [1, n].
struct Destination {
  std::byte* out = nullptr;
  DType dtype = DType::kF32;
  std::int64_t row = 0, column = 1;

  void put(std::int64_t at, const std::byte* values, std::int64_t count, DType from) const {
    const std::int64_t size = size_of(dtype);
    if (column == 1 && from == dtype) {
      std::memcpy(out + at * size, values, static_cast<std::size_t>(count * size));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      std::byte* const to = out + (at + i * column) * size;
      if (from == dtype) {
        std::memcpy(to, values + i * size, static_cast<std::size_t>(size));
      } else {
        const float value = as_f32(values + i * size_of(from), from);
        std::memcpy(to, &value, sizeof(value));
      }
    }
  }
};

// What the shard has from row `first` on, `rows` of them.
ShardBox rows_of(ShardBox box, std::int64_t first, std::int64_t rows) {
  const std::size_t dimension = box.transposed ? 1 : 0;
  box.begin += first * box.columns;
  box.rows = rows;
  box.box.offset[dimension] += first;
  box.box.shape[dimension] = rows;
  return box;
}

// The first and the last part of its tensor that a box has elements of.
struct PartRange {
  int first = 0, last = 0;
};
PartRange parts_of(const TensorBox& box, const std::vector<std::int64_t>& shape) {
  std::int64_t first = 0, last = 0, elements = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    first = first * shape[d] + box.offset[d];
    last = last * shape[d] + box.offset[d] + box.shape[d] - 1;
    elements *= shape[d];
  }
  const auto part = [&](std::int64_t index) { return static_cast<int>(static_cast<__int128>(index) * kTensorParts / elements); };
  return {part(first), part(last)};
}

bool may_hold(const ManifestFile& file, std::int64_t tensor, const PartRange& parts) {
  return std::ranges::any_of(file.runs, [&](const TensorRun& run) {
    return tensor >= run.first && tensor - run.first < run.count && parts.first < run.end && run.begin <= parts.last;
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

void ShardReader::read(std::string_view prefix, const ShardBox& box, const TensorView& shard, const WriteValues& write_values) {
  const TensorView to = shard.range(box.begin, box.elements());
  if (to.where() == MemoryKind::kHost) return read_host(prefix, box, to.data(), to.dtype());
  const std::int64_t row_bytes = box.columns * size_of(to.dtype());
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kBlockBytes / row_bytes);
  std::vector<std::byte> values;
  for (std::int64_t row = 0; row < box.rows; row += rows_at_once) {
    const ShardBox part = rows_of(box, row, std::min(rows_at_once, box.rows - row));
    values.resize(static_cast<std::size_t>(part.elements() * size_of(to.dtype())));
    read_host(prefix, part, values.data(), to.dtype());
    write_values(shard.range(part.begin, part.elements()), values.data());
  }
}

namespace {

// A box as rows and columns: [n] is one row of n, and of more than two dimensions the last is the columns.
std::int64_t columns_of(const TensorBox& box) { return box.shape.empty() ? 1 : box.shape.back(); }

// Calls run(element of a, element of b, count) for every stretch of the intersection that is dense in both boxes.
template <class Run> void for_each_run(const TensorBox& part, const TensorBox& a, const TensorBox& b, Run&& run) {
  const std::size_t rank = part.shape.size();
  if (rank == 0) return run(0, 0, 1);
  std::size_t inner = rank - 1;  // dimensions from here on are one stretch
  while (inner > 0 && part.shape[inner] == a.shape[inner] && part.shape[inner] == b.shape[inner]) --inner;
  std::int64_t count = 1;
  for (std::size_t d = inner; d < rank; ++d) count *= part.shape[d];
  std::vector<std::int64_t> at(rank, 0);  // within `part`
  const auto element = [&](const TensorBox& box) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < rank; ++d) index = index * box.shape[d] + part.offset[d] + at[d] - box.offset[d];
    return index;
  };
  for (;;) {
    run(element(a), element(b), count);
    std::size_t d = inner;
    while (d > 0 && ++at[d - 1] == part.shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace

void ShardReader::read_host(std::string_view prefix, const ShardBox& box, std::byte* out, DType dtype) {
  const std::int64_t tensor = find(box.tensor);
  const std::string key = std::string(prefix) + box.tensor;
  if (tensor < 0) throw DataError(fmt::format("{}: has no tensor {}; it is of another model", folder_, box.tensor));
  const std::vector<std::int64_t>& shape = manifest_.tensors[static_cast<std::size_t>(tensor)].shape;
  if (shape != box.tensor_shape)
    throw DataError(fmt::format("{}: {} is {}, the model has {}; it is of another model", folder_, box.tensor, to_string(whole(shape)), to_string(whole(box.tensor_shape))));
  const std::int64_t columns = columns_of(box.box);
  Destination to{out, dtype, columns, 1};
  if (box.transposed) to.row = 1, to.column = box.columns;
  std::int64_t found = 0;
  std::vector<TensorBox> held;  // the parts, as of a tensor that is the box
  const PartRange parts = parts_of(box.box, shape);
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    if (!may_hold(manifest_.files[f], tensor, parts)) continue;
    const FileBox* const entry = find_box(f, key);
    if (entry == nullptr) continue;
    const FileBox& stored = *entry;
    const std::string where = fmt::format("{}/{}", folder_, manifest_.files[f].path);
    if (!converts(stored.dtype, dtype))
      throw DataError(fmt::format("{}: {} is {}, not {}; use another checkpoint", where, key, to_string(stored.dtype), to_string(dtype)));
    const auto part = intersection(stored.box, box.box);
    if (!part) continue;
    held.push_back(*part);
    for (std::size_t d = 0; d < shape.size(); ++d) held.back().offset[d] -= box.box.offset[d];
    const std::int64_t size = size_of(stored.dtype), at_once = kScratchBytes / size;
    scratch_.resize(static_cast<std::size_t>(kScratchBytes));
    BoxReader& reader = reader_of(f);
    for_each_run(*part, stored.box, box.box, [&](std::int64_t from, std::int64_t into, std::int64_t count) {
      found += count;
      for (std::int64_t done = 0; done < count;) {
        // A row at a time where rows do not follow each other in the shard.
        const std::int64_t left_of_row = to.column == 1 ? count - done : columns - (into + done) % columns;
        const std::int64_t n = std::min({count - done, at_once, left_of_row});
        const std::span<std::byte> values(scratch_.data(), static_cast<std::size_t>(n * size));
        reader.read(stored.begin + (from + done) * size, values);
        const std::int64_t element = into + done;
        to.put(element / columns * to.row + element % columns * to.column, values.data(), n, stored.dtype);
        done += n;
      }
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
