#include "checkpoint/shard_boxes.h"

#include <algorithm>

namespace trident {

std::vector<std::int64_t> stored_shape(const PartSpec& part) {
  const Shape& shape = part.tensor_shape;
  if (shape.rank() == 1) return {shape[0]};
  return part.transposed_on_disk ? std::vector{shape[1], shape[0]} : std::vector{shape[0], shape[1]};
}

namespace {

// Rows row .. row + rows - 1, columns column .. column + columns - 1 of the tensor as it is used, [out, in].
TensorBox stored_box(const PartSpec& part, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  if (part.tensor_shape.rank() == 1) return {{row}, {rows}};
  if (part.transposed_on_disk) return {{column, row}, {columns, rows}};
  return {{row, column}, {rows, columns}};
}

// The rectangles of a stretch whose first element is element `begin` of the shard.
void append_rectangles(const TensorStretch& stretch, ShardBox box, std::int64_t begin, std::vector<ShardBox>& boxes) {
  const PartSpec& part = *stretch.part;
  box.trainable = part.trainable;
  box.tensor = part.tensor;
  box.tensor_shape = stored_shape(part);
  const std::int64_t width = stretch.columns, end = stretch.first_column + stretch.count;
  for (std::int64_t at = stretch.first_column; at < end;) {
    const std::int64_t column = at % width;
    const bool whole_rows = column == 0 && end - at >= width;
    const std::int64_t rows = whole_rows ? (end - at) / width : 1;
    const std::int64_t columns = whole_rows ? width : std::min(width - column, end - at);
    const std::int64_t first = stretch.first_index + (at / width) * stretch.stride;  // of the row, where the stretch's columns begin
    box.begin = begin + at - stretch.first_column;
    box.rows = rows;
    box.columns = columns;
    box.transposed = part.transposed_on_disk && part.tensor_shape.rank() == 2;
    box.box = stored_box(part, first / stretch.stride, rows, first % stretch.stride + column, columns);
    boxes.push_back(box);
    at += rows * columns;
  }
}

void append_piece(const ShardPiece& piece, const ShardHolder& holder, ShardBox box, std::vector<ShardBox>& boxes) {
  for (const TensorStretch& stretch : tensor_stretches(piece, holder.tensor_degree, holder.tensor_rank)) {
    if (stretch.part != nullptr) append_rectangles(stretch, box, piece.shard_begin + stretch.begin, boxes);
  }
}

bool has_tied_end(std::span<const ParamShard> shards, TiedEnd end) {
  return std::ranges::any_of(shards, [&](const ParamShard& shard) {
    return std::ranges::any_of(shard.pieces, [&](const ShardPiece& piece) { return piece.spec->tie == end; });
  });
}

// The part of `piece` within elements [begin, end) of its shard.
ShardPiece clipped(ShardPiece piece, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = std::max(begin, piece.shard_begin), last = std::min(end, piece.shard_begin + piece.count);
  piece.param_begin += first - piece.shard_begin;
  piece.shard_begin = first;
  piece.count = std::max<std::int64_t>(0, last - first);
  return piece;
}

// Whether this rank writes what tensor ranks hold alike. Every one of them calls this with pieces of the same sizes in the same
// order. `written`: elements, by tensor rank.
bool is_mine(const ShardPiece& piece, const ShardHolder& holder, std::vector<std::int64_t>& written) {
  const TensorSharding& sharding = piece.spec->sharding;
  const int replicas = holder.tensor_degree / (sharding.dim == ShardDim::kNone ? 1 : sharding.shards);
  // Every tensor rank goes through the shares of all, so all come to the same answer.
  std::ptrdiff_t mine = -1;
  for (std::ptrdiff_t first = 0; first < std::ssize(written); first += replicas) {
    const auto group = written.begin() + first;
    const auto least = std::min_element(group, group + replicas);
    *least += piece.count;
    if (holder.tensor_rank / replicas * replicas == first) mine = least - written.begin();
  }
  return mine == holder.tensor_rank;
}

}  // namespace

std::vector<ShardBox> boxes_held(std::span<const ParamShard> shards, const ShardHolder& holder) {
  const bool shares_lookup = has_tied_end(shards, TiedEnd::kLookup);
  std::vector<ShardBox> boxes;
  std::vector<std::int64_t> written_by(static_cast<std::size_t>(holder.tensor_degree));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::int64_t slice = shards[i].elements / (holder.sharded ? 1 : holder.data_shards);
    const std::int64_t begin = holder.sharded ? 0 : holder.data_rank * slice, end = begin + slice;
    for (const ShardPiece& piece : shards[i].pieces) {
      const bool is_head = piece.spec->tie == TiedEnd::kHead;  // the lookup's end writes it
      if (is_head && shares_lookup) continue;
      const auto append = [&](const ShardPiece& part, bool written) {
        if (part.count > 0) append_piece(part, holder, {.shard = i, .unit = shards[i].unit, .written = written}, boxes);
      };
      const ShardPiece mine = clipped(piece, begin, end);
      if (is_head || mine.count == 0 || !is_mine(mine, holder, written_by)) {
        append(piece, false);
        continue;
      }
      append(clipped(piece, 0, begin), false);
      append(mine, true);
      append(clipped(piece, end, shards[i].elements), false);
    }
  }
  return boxes;
}

std::vector<ShardBox> boxes_written(std::span<const ParamShard> shards, const ShardHolder& holder) {
  std::vector<ShardBox> boxes = boxes_held(shards, holder);
  std::erase_if(boxes, [](const ShardBox& box) { return !box.written; });
  return boxes;
}

}  // namespace trident
