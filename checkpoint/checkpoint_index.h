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
#include "checkpoint/format/manifest.h"

namespace trident {

// Keys of a kind are `prefix` and a tensor's name: "" for the weights, "master/", "exp_avg/", ...
struct StoredKind {
  std::string prefix;
  DType dtype = DType::kF32;
  bool operator==(const StoredKind&) const = default;
};
// A checkpoint stores these kinds of each tensor: weights, masters unless the weights are f32 themselves, states of the optimizer.
// A frozen tensor has its weights alone, and nothing where they lie in a base.
std::vector<StoredKind> stored_kinds(const Manifest& manifest);

struct StoredBox {
  std::size_t file = 0;    // of the manifest
  std::int64_t begin = 0;  // bytes from the beginning of its data
  TensorBox box;
};

// Whether a file's table says what the manifest says of it. Both have valid hashes, and may have come from different hands.
class TableCheck {
 public:
  explicit TableCheck(const Manifest& manifest);  // which outlives it
  explicit TableCheck(Manifest&&) = delete;

  const std::vector<StoredKind>& kinds() const { return kinds_; }

  struct Place {
    std::size_t kind = 0, tensor = 0;
  };
  // Adds a box of file number `file`. DataError naming `source` and tensor: a key that the manifest does not know, another dtype, a
  // box of another rank or outside of its tensor, one that no run of the file announces, so that readers would not look for it
  // there.
  Place check(std::size_t file, const FileBox& box, std::string_view source) const;

 private:
  const Manifest& manifest_;
  std::vector<StoredKind> kinds_;
  std::unordered_map<std::string_view, std::size_t> tensor_of_;
};

class CheckpointIndex {
 public:
  explicit CheckpointIndex(const Manifest& manifest);  // which outlives it
  explicit CheckpointIndex(Manifest&&) = delete;

  const std::vector<StoredKind>& kinds() const { return check_.kinds(); }

  // Takes in what file number `file` holds. Throws as TableCheck does.
  void add(std::size_t file, const FileTable& table, std::string_view source);

  const std::vector<StoredBox>& boxes(std::size_t kind, std::size_t tensor) const {
    return boxes_[kind * manifest_.tensors.size() + tensor];
  }

  // Once all files are in. DataError naming `source` and the key: the boxes are not the whole tensor, each element once; or are
  // those of a kind that a frozen tensor has not, or one whose values lie in a base.
  void check_tiling(std::size_t kind, std::size_t tensor, std::string_view source) const;

 private:
  const Manifest& manifest_;
  TableCheck check_;
  std::vector<std::vector<StoredBox>> boxes_;
};

// A checkpoint whose values are read in any order. Memory: the tables of all files, one block, and the tables of a few open files
// again.
class StoredTensors {
 public:
  // Reads all tables and checks all tilings; throws as BoxReader and CheckpointIndex do.
  explicit StoredTensors(std::string folder);

  const std::string& folder() const { return folder_; }
  const std::string& lock_note() const { return lock_.note(); }
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
