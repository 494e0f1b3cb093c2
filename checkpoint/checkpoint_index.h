// Where a checkpoint has the values of its tensors: what its files' tables say together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/box_reader.h"
#include "checkpoint/commit.h"
#include "checkpoint/manifest.h"

namespace trident {

// Keys of a kind are `prefix` and a tensor's name: "" for the weights, "master/", "exp_avg/", ...
struct StoredKind {
  std::string prefix;
  DType dtype = DType::kF32;
  bool operator==(const StoredKind&) const = default;
};
// What a checkpoint has of each of its tensors: weights, masters unless the weights are f32 themselves, states of the optimizer.
std::vector<StoredKind> stored_kinds(const Manifest& manifest);

struct StoredBox {
  std::size_t file = 0;    // of the manifest
  std::int64_t begin = 0;  // bytes from the beginning of its data
  TensorBox box;
};

class CheckpointIndex {
 public:
  explicit CheckpointIndex(const Manifest& manifest);

  const std::vector<StoredKind>& kinds() const { return kinds_; }

  // Takes in what file number `file` holds. DataError naming `source` and tensor: a key that the manifest does not know, another
  // dtype, a box of another rank or outside of its tensor, one that no run of the file announces.
  void add(std::size_t file, const FileTable& table, std::string_view source);

  const std::vector<StoredBox>& boxes(std::size_t kind, std::size_t tensor) const {
    return boxes_[kind * tensors_.size() + tensor];
  }

  // Once all files are in. DataError naming `source` and the key: the boxes are not the whole tensor, each element once.
  void check_tiling(std::size_t kind, std::size_t tensor, std::string_view source) const;

 private:
  std::vector<StoredKind> kinds_;
  std::vector<ManifestTensor> tensors_;
  std::vector<std::vector<TensorRun>> runs_;  // by file
  std::unordered_map<std::string, std::size_t> kind_of_, tensor_of_;
  std::vector<std::vector<StoredBox>> boxes_;
};

// A checkpoint whose values are read in any order. Memory: the tables of all files, one block, and the tables of a few open files
// again.
class StoredTensors {
 public:
  // Reads all tables and checks all tilings; throws as BoxReader and CheckpointIndex do.
  explicit StoredTensors(std::string folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const CheckpointIndex& index() const { return index_; }

  // The bytes of a box from `begin` on, counted from its first element.
  void read(const StoredBox& box, std::int64_t begin, std::span<std::byte> out);

 private:
  struct OpenFile {
    std::size_t file;
    BoxReader reader;
  };

  std::string folder_;
  CheckpointReadLock lock_;  // it is not removed meanwhile
  Manifest manifest_;
  CheckpointIndex index_;
  std::list<OpenFile> open_;  // the one used last is first, and alone keeps a block
};

}  // namespace trident
