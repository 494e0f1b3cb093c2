// Reads boxes of a checkpoint's tensors, whatever layout wrote them: a wanted box is intersected with the boxes of the files.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/box_copy.h"
#include "checkpoint/box_reader.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/commit.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/shard_boxes.h"
#include "core/check.h"
#include "core/tensor_view.h"

namespace trident {

// Values of the checkpoint in a folder are missing, or damaged.
class DamagedValues : public DataError {
 public:
  DamagedValues(std::string folder, const DataError& error)
      : DataError(error.what(), error.system_error()), folder_(std::move(folder)) {}
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// Memory beside the shards, whatever the tensors' sizes: two blocks of files (kBlockBytes each), a scratch of 1 MiB, and for shards
// on a device one block of rows (at least one row). And the tables of the files that were needed, some 300 bytes a box, each read
// once, because a tensor that many ranks wrote is in more files than are kept open.
class ShardReader {
 public:
  // `folder`: of the checkpoint that has this manifest. Opens nothing yet.
  ShardReader(std::string folder, Manifest manifest);
  ~ShardReader();

  const Manifest& manifest() const { return manifest_; }
  const std::string& lock_note() const { return lock_.note(); }
  // One line for every tensor in which weights were read that are no numbers or infinite.
  std::vector<std::string> odd_values() const;
  // Index in the manifest, or -1.
  std::int64_t find(std::string_view tensor) const;

  // Under which prefix the most exact values of a tensor are stored: its master's, or where it has none its weights'.
  std::string_view exact_prefix(std::string_view tensor) const;

  // Fills the elements of `shard` (all of the shard's; f32, the stored dtype, or with kRounded bf16 or f16) that `box` speaks of
  // with the values stored under `prefix` ("" for the weights), converted to its dtype. DamagedValues naming file and tensor for
  // what is missing, damaged or not what the manifest says (TableCheck), before any such value is used; DataError for a tensor of
  // another model; StorageError for what cannot be read. `write_values` as the shards need it; `hash` as HfShardReader's.
  void read(std::string_view prefix, const ShardBox& box, const TensorView& shard, const WriteValues& write_values = {},
            Narrowing narrowing = Narrowing::kRefused, std::uint64_t* hash = nullptr);

 private:
  struct Table;
  // Elements of `box` into dense host memory.
  void read_host(std::string_view prefix, const ShardBox& box, std::byte* out, DType dtype, Narrowing narrowing,
                 std::uint64_t* hash);
  // Returns a file's table, compared with the manifest.
  const Table& table_of(std::size_t file);
  // The box under a key of a file, or nothing.
  const FileBox* find_box(std::size_t file, const std::string& key);
  BoxReader& open(std::size_t file);
  BoxReader& reader_of(std::size_t file);

  std::string folder_;
  CheckpointReadLock lock_;  // it is not removed meanwhile
  Manifest manifest_;
  TableCheck check_;
  std::unordered_map<std::string_view, std::int64_t> index_;
  std::unordered_map<std::size_t, std::unique_ptr<Table>> tables_;
  std::unordered_map<std::size_t, std::unique_ptr<BoxReader>> open_;
  std::vector<std::size_t> opened_;      // the oldest first
  std::vector<std::size_t> with_block_;  // of those open, the one read last at the end
  ReadScratch scratch_;
  std::set<std::string> odd_;  // tensors of odd_values()
};

}  // namespace trident
