// Where every parameter element of a rank lies: buckets, shards, and back from an element to the named tensor. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/zero/shard_spec.h"

namespace trident {

// Every parameter starts at a multiple of this many elements of its bucket, and every shard cut is one: 256-byte aligned f32, and
// the block of the gradient norm never straddles two ranks (docs/decisions/0001-gradient-norm.md).
inline constexpr std::int64_t kParamAlignment = 64;

// One flat buffer of parameters of one unit that are reduced alike. Rank i of the N ranks that hold the same parameters owns the
// i-th of N equal slices, wherever that cuts. Gaps between parameters and at the end are zero in every format.
struct BucketLayout {
  struct Entry {
    int param = 0;            // index in the unit's spec list
    std::int64_t offset = 0;  // elements
    Shape shape;              // dense local shape
    std::int64_t elements() const { return shape.num_elements(); }
  };
  std::vector<Entry> entries;
  std::int64_t elements = 0;        // padded: N * shard_elements
  std::int64_t shard_elements = 0;  // a multiple of kParamAlignment
  std::vector<SubAxis> partial_over;
  TiedEnd tie = TiedEnd::kNone;
  bool trainable = true;
};

// Buckets of one unit: parameters in declaration order, grouped by (partial axes, tie, trainable), a group split where
// `bucket_bytes` of f32 gradients are reached; a tied weight is alone in its bucket, so that its cuts are the same wherever it is
// held.
std::vector<BucketLayout> make_buckets(const std::vector<ParamSpec>& specs, int tensor_degree, int shards,
                                       std::int64_t bucket_bytes);

// A stretch of one parameter inside a shard.
struct ShardPiece {
  const ParamSpec* spec = nullptr;
  // First element within the dense local parameter; a multiple of kParamAlignment, or where a part begins that trains or does not
  // unlike the one before.
  std::int64_t param_begin = 0;
  std::int64_t shard_begin = 0;  // first element within the shard
  std::int64_t count = 0;
  bool trains = true;
  bool norm_owner = true;  // this tp rank counts it in the gradient norm (one of the ranks that hold a replica does)
};

// The pieces of elements [begin, begin + count) of a bucket, on tp rank `tensor_rank`.
std::vector<ShardPiece> shard_pieces(const BucketLayout& bucket, const std::vector<ParamSpec>& specs, std::int64_t begin,
                                     std::int64_t count, int tensor_degree, int tensor_rank);

// A stretch of a piece whose elements lie in one named tensor, or are padding. With j = first_column + i, element i of it is element
// first_index + (j / columns) * stride + j % columns of the whole tensor ([out, in], row-major).
struct TensorStretch {
  const PartSpec* part = nullptr;  // null: padding
  std::int64_t begin = 0, count = 0;  // elements of the piece
  std::int64_t first_index = 0, first_column = 0, columns = 1, stride = 1;
  bool operator==(const TensorStretch&) const = default;
};
// In the order of the piece; together they are all of it. Neighbours that one stretch could hold are one.
std::vector<TensorStretch> tensor_stretches(const ShardPiece& piece, int tensor_degree, int tensor_rank);

// Initial values of `piece` (f32), each a pure function of (seed, tensor name, index in the tensor).
void draw_initial_values(const ShardPiece& piece, int tensor_degree, int tensor_rank, std::uint64_t seed, std::span<float> out);

}  // namespace trident
