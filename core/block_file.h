// A new file that is written block by block at chosen places, past the page cache where the file system can: what is written once and
// not read soon takes no memory from those who work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trident {

// Direct writes need addresses, offsets and lengths that are multiples of this.
inline constexpr std::int64_t kDirectAlignment = 4096;

constexpr std::int64_t direct_size(std::int64_t bytes) { return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment; }

// StorageError naming the file for whatever the file system refuses. Used by one thread at a time.
class BlockFile {
 public:
  // Makes the file, which must not be there, with room for `bytes` where the file system can reserve it.
  BlockFile(const std::string& path, std::int64_t bytes);
  ~BlockFile();
  BlockFile(BlockFile&& other) noexcept;
  BlockFile& operator=(BlockFile&& other) noexcept;

  const std::string& path() const { return path_; }

  // Address, offset and length are multiples of kDirectAlignment; what a last block has beyond the file's end is cut off by finish().
  void write(std::int64_t offset, std::span<const std::byte> data);

  // The file has its size, and all of it is on the disk, its name in the folder excepted (sync_folder_of). No write after this. What
  // fsync once refused is not to be trusted, and not tried again.
  void finish();

 private:
  void close();

  std::string path_;
  std::int64_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace trident
