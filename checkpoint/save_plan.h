// A SavePlan lists the files that one rank writes into a checkpoint, and where each of its values goes, in every save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/box_file.h"
#include "checkpoint/shard_boxes.h"
#include "core/checkpoint_content.h"
#include "core/tensor_view.h"

namespace trident {

// The values of one shard: n elements each.
struct ShardTensors {
  ConstTensorView weight;               // in the compute dtype
  ConstTensorView master;               // f32; the weight itself where that is f32; of nothing: frozen
  std::vector<ConstTensorView> states;  // f32, in the order of their names; empty: nothing updates them
};

inline constexpr std::string_view kMasterPrefix = "master/";

// `rows` x `columns` elements go to byte `begin` of the data of file `file`, transposed where it says so.
struct SaveCopy {
  ConstTensorView from;  // dense
  std::int64_t rows = 1, columns = 1;
  bool transposed = false;
  std::size_t file = 0;
  std::int64_t begin = 0;
  int unit = 0;

  std::int64_t bytes() const { return from.num_elements() * size_of(from.dtype()); }
};

struct SaveFile {
  std::string path;  // below the checkpoint's folder
  FileTable table;   // hashes are those of the last save
};

struct SavePlan {
  std::vector<SaveFile> files;   // box k of a tensor lies in file k of its folder, weights/ or optim/
  std::vector<SaveCopy> copies;  // units in the order of `units`; of each file in its own order, back to back
  std::vector<int> units;        // in the order of their next updates
};

// `tensors`: of each shard that `boxes` speak of. `units`: every unit of the boxes, in the order in which they are updated. `rank`
// names the files.
SavePlan make_save_plan(std::span<const ShardBox> boxes, std::span<const ShardTensors> tensors,
                        std::span<const std::string> state_names, std::vector<int> units, CheckpointContent content, int rank);

// Bytes begin .. begin + out.size() of what `copy` puts into its file; multiples of the element's size. `values`: copy.from's, in host
// memory.
void copy_bytes(const SaveCopy& copy, const std::byte* values, std::int64_t begin, std::span<std::byte> out);

}  // namespace trident
