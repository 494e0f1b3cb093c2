#include "parallel/zero/param_layout.h"

#include <algorithm>
#include <cmath>

#include "core/at.h"
#include "core/dtype.h"
#include "core/int_math.h"
#include "core/normals.h"
#include "core/philox.h"

namespace trident {
namespace {

bool same_group(const BucketLayout& bucket, const ParamSpec& spec) {
  return bucket.partial_over == spec.grad_partial_over && bucket.trainable == spec.trainable && bucket.tie == TiedEnd::kNone &&
         spec.tie == TiedEnd::kNone;
}

bool owns_norm(const ParamSpec& spec, int tensor_degree, int tensor_rank) {
  const int shards = spec.sharding.dim == ShardDim::kNone ? 1 : spec.sharding.shards;
  return tensor_rank % (tensor_degree / shards) == 0;  // the first of the ranks that hold this part
}

// Cuts a piece where parts that train and frozen ones meet, and again at the next multiple of kParamAlignment, so that blocks of
// the norm are the same wherever shards are cut.
void append_parts(const ShardPiece& whole, int tensor_degree, int tensor_rank, std::vector<ShardPiece>& pieces) {
  const auto append = [&](std::int64_t begin, std::int64_t end, bool trains) {  // within `whole`
    if (begin >= end) return;
    pieces.push_back({whole.spec, whole.param_begin + begin, whole.shard_begin + begin, end - begin, trains, whole.norm_owner});
  };
  std::int64_t begin = 0;
  bool trains = true;  // padding is as what stands before it
  const auto close = [&](std::int64_t end) {
    const std::int64_t aligned = std::min(end, round_up(whole.param_begin + begin, kParamAlignment) - whole.param_begin);
    append(begin, aligned, trains);
    append(aligned, end, trains);
    begin = end;
  };
  for (const TensorStretch& stretch : tensor_stretches(whole, tensor_degree, tensor_rank)) {
    if (stretch.part == nullptr || stretch.part->trainable == trains) continue;
    close(stretch.begin);
    trains = stretch.part->trainable;
  }
  close(whole.count);
}

}  // namespace

std::vector<BucketLayout> make_buckets(const std::vector<ParamSpec>& specs, int tensor_degree, int shards,
                                       std::int64_t bucket_bytes) {
  std::vector<BucketLayout> buckets;
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const ParamSpec& spec = specs[p];
    const Shape shape = local_shape(spec, tensor_degree);
    const std::int64_t bytes = shape.num_elements() * size_of(DType::kF32);
    // The open bucket of this group is its last one; a full bucket is left as it is.
    BucketLayout* bucket = nullptr;
    for (BucketLayout& candidate : buckets) {
      if (same_group(candidate, spec)) bucket = &candidate;
    }
    if (bucket == nullptr || bucket->elements * size_of(DType::kF32) + bytes > bucket_bytes) {
      bucket = &buckets.emplace_back();
      bucket->partial_over = spec.grad_partial_over;
      bucket->tie = spec.tie;
      bucket->trainable = spec.trainable;
    }
    bucket->entries.push_back({static_cast<int>(p), bucket->elements, shape});
    bucket->elements = round_up(bucket->elements + shape.num_elements(), kParamAlignment);
  }
  for (BucketLayout& bucket : buckets) {
    bucket.shard_elements = round_up(ceil_div(bucket.elements, shards), kParamAlignment);
    bucket.elements = bucket.shard_elements * shards;
  }
  return buckets;
}

std::vector<ShardPiece> shard_pieces(const BucketLayout& bucket, const std::vector<ParamSpec>& specs, std::int64_t begin,
                                     std::int64_t count, int tensor_degree, int tensor_rank) {
  std::vector<ShardPiece> pieces;
  for (const BucketLayout::Entry& entry : bucket.entries) {
    const std::int64_t first = std::max(begin, entry.offset);
    const std::int64_t last = std::min(begin + count, entry.offset + entry.elements());
    if (first >= last) continue;
    const ParamSpec& spec = at(specs, entry.param);
    const ShardPiece piece{&spec, first - entry.offset, first - begin, last - first, spec.trainable,
                           owns_norm(spec, tensor_degree, tensor_rank)};
    if (spec.trainable && !std::ranges::all_of(spec.parts, &PartSpec::trainable))
      append_parts(piece, tensor_degree, tensor_rank, pieces);
    else
      pieces.push_back(piece);
  }
  return pieces;
}

std::vector<TensorStretch> tensor_stretches(const ShardPiece& piece, int tensor_degree, int tensor_rank) {
  const Shape shape = local_shape(*piece.spec, tensor_degree);
  const std::int64_t columns = shape.rank() == 2 ? shape[1] : 1;
  const std::int64_t end = piece.param_begin + piece.count;
  std::vector<TensorStretch> stretches;
  std::int64_t at = piece.param_begin;
  const auto pad_to = [&](std::int64_t next) {
    if (next > at) stretches.push_back({.begin = at - piece.param_begin, .count = next - at});
    at = std::max(at, next);
  };
  for (const LocalPart& local : local_parts(*piece.spec, tensor_degree, tensor_rank)) {
    const std::int64_t first = std::max(piece.param_begin, local.local_row * columns);
    const std::int64_t last = std::min(end, (local.local_row + local.box.rows()) * columns);
    if (first >= last) continue;
    pad_to(first);
    const Shape& tensor = local.part->tensor_shape;
    const std::int64_t stride = tensor.rank() == 2 ? tensor[1] : 1, row = local.box.row_begin + first / columns - local.local_row;
    const TensorStretch next{local.part, first - piece.param_begin, last - first, row * stride + local.box.column_begin, first % columns,
                             columns, stride};
    at = last;
    if (!stretches.empty()) {
      TensorStretch& before = stretches.back();
      const bool same = before.part != nullptr && before.part->tensor == next.part->tensor && columns == stride;
      if (same && before.first_index + before.first_column + before.count == next.first_index + next.first_column) {
        before.count += next.count;
        continue;
      }
    }
    stretches.push_back(next);
  }
  pad_to(end);
  return stretches;
}

void draw_initial_values(const ShardPiece& piece, int tensor_degree, int tensor_rank, std::uint64_t seed, std::span<float> out) {
  for (const TensorStretch& stretch : tensor_stretches(piece, tensor_degree, tensor_rank)) {
    const auto values = out.subspan(static_cast<std::size_t>(stretch.begin), static_cast<std::size_t>(stretch.count));
    if (stretch.part == nullptr || stretch.part->init.kind == InitKind::kZeros) {
      std::ranges::fill(values, 0.0f);
      continue;
    }
    const Init& init = stretch.part->init;
    const PhiloxKey key = random_key(seed, RandomPurpose::kInit, init.of.empty() ? stretch.part->tensor : init.of);
    Normals normals(key);
    std::int64_t index = stretch.first_index + stretch.first_column, column = stretch.first_column;
    for (float& value : values) {
      const auto number = static_cast<std::uint64_t>(index);
      if (init.kind == InitKind::kOnes) value = 1.0f;
      if (init.kind == InitKind::kNormal) value = init.standard_deviation * normals.at(number);
      if (init.kind == InitKind::kUniform) value = init.standard_deviation * (2.0f * uniform_at(key, number) - 1.0f);
      if (init.kind == InitKind::kRowLength) {
        double squares = 0;
        for (std::int64_t at = index * init.columns, end = at + init.columns; at < end; ++at) {
          const double drawn = init.standard_deviation * normals.at(static_cast<std::uint64_t>(at));
          squares += drawn * drawn;
        }
        value = static_cast<float>(std::sqrt(squares));
      }
      ++index;
      if (++column == stretch.columns) index += stretch.stride - stretch.columns, column = 0;
    }
  }
}

}  // namespace trident
