// PREFIX.mask: which tokens of PREFIX.bin count as targets. A prefix without one trains on every token.
//
// Little-endian: 4 bytes "TMSK", u32 version = 1, u64 T tokens of the .bin, then ceil(T / 8) bytes: token t is bit t % 8, the
// lowest first, of byte 16 + t / 8. 1: the token counts where it is a target. Bits behind the last token are 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/file_io.h"

namespace trident {

inline constexpr std::string_view kMaskMagic = "TMSK";
inline constexpr std::uint32_t kMaskVersion = 1;

std::string mask_path(const std::string& prefix);

// Reading by pread. Immutable: threads share one.
class LossMask {
 public:
  // DataError that names file, field and remedy: the file is no mask of a .bin of `num_tokens` tokens. StorageError.
  LossMask(RandomAccessFile file, std::int64_t num_tokens);

  const RandomAccessFile& file() const { return file_; }
  // counts[i] = 1 where token first + i counts, else 0. One pread up to 32,761 tokens; allocates nothing. StorageError.
  void read(std::int64_t first, std::span<std::uint8_t> counts) const;
  // How many of these tokens count.
  std::int64_t counted(std::int64_t first, std::int64_t count) const;
  // As IndexedDataset's.
  void will_need(std::int64_t first, std::int64_t count) const;

 private:
  RandomAccessFile file_;
  std::int64_t num_tokens_;
};

// Appends the whole mask of a .bin of `num_tokens` tokens, one after the other, to a new file that outlives it.
class LossMaskWriter {
 public:
  LossMaskWriter(AtomicFile& file, std::int64_t num_tokens);

  void append(bool counts);  // of the next token
  void finish();             // after the last one

  std::int64_t counted() const { return counted_; }

 private:
  void write_byte();

  AtomicFile& file_;
  std::int64_t num_tokens_, appended_ = 0, counted_ = 0;
  std::uint8_t byte_ = 0;  // the one that is being filled
};

}  // namespace trident
