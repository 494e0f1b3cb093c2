// A dataset of 10^8 sequences and 1 TB that costs nothing: both files are all holes, and what the index would hold is made when it
// is read.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/check.h"
#include "data/indexed_dataset.h"

namespace trident {

class HugeDataset {
 public:
  // `sequences` documents of `length` tokens each, of type uint16, all of them 0. `prefix` lies in a folder of the test.
  HugeDataset(const std::string& prefix, std::int64_t sequences, std::int64_t length)
      : prefix_(prefix), sequences_(sequences), length_(length) {
    is_there_ = make_hole(bin_path(prefix), 2 * sequences * length) && make_hole(idx_path(prefix), index_bytes());
  }

  const std::string& prefix() const { return prefix_; }
  bool is_there() const { return is_there_; }  // false: this file system holds no file so large
  std::int64_t num_tokens() const { return sequences_ * length_; }
  std::int64_t index_bytes() const { return 34 + 12 * sequences_ + 8 * (sequences_ + 1); }

  void put_token(std::int64_t position, std::uint16_t id) const {
    const int file = ::open(bin_path(prefix_).c_str(), O_WRONLY | O_CLOEXEC);
    TRIDENT_CHECK(::pwrite(file, &id, sizeof id, 2 * position) == sizeof id);
    ::close(file);
  }

  // Counts, and makes up the index. The object outlives it.
  ReadAt read_at() {
    return [this](int descriptor, void* out, std::size_t bytes, off_t offset) -> ssize_t {
      ++num_reads;
      bytes_read += static_cast<std::int64_t>(bytes);
      struct stat status {};
      TRIDENT_CHECK(::fstat(descriptor, &status) == 0);
      if (status.st_size != index_bytes()) return ::pread(descriptor, out, bytes, offset);
      for (std::size_t i = 0; i < bytes; ++i) static_cast<std::byte*>(out)[i] = index_byte(offset + static_cast<std::int64_t>(i));
      return static_cast<ssize_t>(bytes);
    };
  }

  std::atomic<std::int64_t> num_reads{0}, bytes_read{0};

 private:
  static bool make_hole(const std::string& path, std::int64_t bytes) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const bool made = file >= 0 && ::ftruncate(file, bytes) == 0;
    if (file >= 0) ::close(file);
    return made;
  }
  template <class T> static std::byte byte_of(T value, std::int64_t at) {
    return std::as_bytes(std::span(&value, 1))[static_cast<std::size_t>(at)];
  }
  std::byte index_byte(std::int64_t at) const {
    const std::int64_t lengths = 34, offsets = lengths + 4 * sequences_, documents = offsets + 8 * sequences_;
    if (at < 9) return static_cast<std::byte>(kIndexMagic[static_cast<std::size_t>(at)]);
    if (at < 17) return byte_of(kIndexVersion, at - 9);
    if (at < 18) return byte_of(TokenType::kU16, 0);
    if (at < 26) return byte_of(sequences_, at - 18);
    if (at < 34) return byte_of(sequences_ + 1, at - 26);
    if (at < offsets) return byte_of(static_cast<std::int32_t>(length_), (at - lengths) % 4);
    if (at < documents) return byte_of(2 * length_ * ((at - offsets) / 8), (at - offsets) % 8);
    return byte_of((at - documents) / 8, (at - documents) % 8);
  }

  std::string prefix_;
  std::int64_t sequences_, length_;
  bool is_there_ = false;
};

}  // namespace trident
