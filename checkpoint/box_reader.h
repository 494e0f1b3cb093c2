// Reading one file of a checkpoint: no byte of it is handed out that its hashes do not vouch for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/box_file.h"
#include "checkpoint/format/manifest.h"
#include "core/file_io.h"

namespace trident {

// Used by one thread. Memory: the table, and one block once something was read that is no whole block.
class BoxReader {
 public:
  // Opens `file` below the checkpoint's `folder`, through no symbolic link, and reads its table. DataError naming the file: it is
  // missing, or no regular file; its size or the hash of its table is not the manifest's; the table is none (parse_file_table).
  BoxReader(const std::string& folder, const ManifestFile& file, ReadAt read_at = ::pread);
  // The same file again, whose table is known: only its size is compared anew, and its blocks with the hashes of that table.
  BoxReader(const std::string& folder, const ManifestFile& file, std::shared_ptr<const FileTable> table, ReadAt read_at = ::pread);

  const std::string& path() const { return file_.path(); }
  const FileTable& table() const { return *table_; }
  const std::shared_ptr<const FileTable>& shared_table() const { return table_; }

  // Fills `out` with the bytes of the data from `begin` on, counted from the beginning of the data; they must lie within them. Each
  // block that this touches is read whole and compared with its hash first. DataError naming file, tensors, block and both hashes;
  // `out` is undefined then. Blocks in ascending order are read from the disk ahead.
  void read(std::int64_t begin, std::span<std::byte> out);

  // Gives the memory of the block back.
  void release();

 private:
  void read_block(std::int64_t block, std::span<std::byte> out);

  RandomAccessFile file_;
  std::int64_t data_begin_ = 0;
  std::shared_ptr<const FileTable> table_;
  std::vector<std::byte> cache_;
  std::int64_t cached_ = -1;  // the block in cache_; -1: none
  std::int64_t last_ = -1;    // the block read last
};

}  // namespace trident
