// Which boxes of which named tensors a rank's shards hold, as checkpoints store them: Hugging Face's orientation, no padding, no
// replicas, a tied weight once. Pure.
//
// A shard is cut anywhere, so what it has of a tensor is up to three rectangles: the rest of a row, whole rows, the beginning of a row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/tensor_box.h"
#include "parallel/zero/param_store.h"

namespace trident {

// rows x columns elements of a shard, dense from `begin` on, and the box of a tensor that they are.
struct ShardBox {
  std::size_t shard = 0;    // index in ParamStore::shards()
  int unit = 0;
  std::int64_t begin = 0;   // within the shard
  std::int64_t rows = 1, columns = 1;
  bool transposed = false;  // element (r, c) is element (c, r) of the box; otherwise the box has them in the shard's order
  bool written = false;     // by this rank: of all that hold it, one writes it
  bool trainable = true;    // false: frozen, though others of its shard may train
  std::string tensor = {};
  std::vector<std::int64_t> tensor_shape = {};  // as stored
  TensorBox box = {};

  std::int64_t elements() const { return rows * columns; }
  bool operator==(const ShardBox&) const = default;
};

// The shape that the part's tensor has in files.
std::vector<std::int64_t> stored_shape(const PartSpec& part);

// A rank's place among the ranks that hold the same parameters.
struct ShardHolder {
  int tensor_degree = 1, tensor_rank = 0;
  int data_shards = 1, data_rank = 0;  // N ranks that sum gradients, and this one's number among them
  bool sharded = true;                 // each of the N owns a shard; false: each holds all (ddp)
};

// All that the shards hold, replicas included: what a rank reads. A head that shares the lookup's memory has none.
std::vector<ShardBox> boxes_held(std::span<const ParamShard> shards, const ShardHolder& holder);

// Selects what this rank writes, so that all ranks together write every element of every tensor once. Data ranks that hold a
// parameter alike write an equal slice each; a piece that tensor ranks hold alike goes to the one that has least to write so far.
std::vector<ShardBox> boxes_written(std::span<const ParamShard> shards, const ShardHolder& holder);

}  // namespace trident
