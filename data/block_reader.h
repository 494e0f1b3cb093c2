// Values of a file in ascending order, without a system call for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "core/file_io.h"

namespace trident {

// Reads a block where a value lies outside the one before, and asks for the next block ahead. Used by one thread; the file outlives
// it.
class BlockReader {
 public:
  // `block_bytes` = 0: each value is read by itself, which allocates nothing.
  BlockReader(const RandomAccessFile& file, std::int64_t block_bytes) : file_(&file), block_bytes_(block_bytes) {
    if (block_bytes == 0) block_.reserve(sizeof(std::int64_t));
  }

  // The `bytes` bytes from `offset` on, until the next call. StorageError: as RandomAccessFile::read.
  const std::byte* bytes_at(std::int64_t offset, std::int64_t bytes);

  // From `offset` to the end of its block, until the next call; at the end of the file nothing.
  std::span<const std::byte> block_at(std::int64_t offset);

  template <class T> T value_at(std::int64_t offset) {
    T value;
    std::memcpy(&value, bytes_at(offset, sizeof value), sizeof value);
    return value;
  }

 private:
  const RandomAccessFile* file_;
  std::int64_t block_bytes_;
  std::int64_t begin_ = std::numeric_limits<std::int64_t>::max();  // of block_: nothing yet
  std::vector<std::byte> block_;
};

}  // namespace trident
