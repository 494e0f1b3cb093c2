// The bytes of an input file in order, decompressed while they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/file_io.h"
#include "data/input_file.h"

namespace trident {

inline constexpr std::int64_t kStoredBlock = std::int64_t{1} << 20;  // bytes that a stream reads at once

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Writes the next bytes to `out` (not empty) and returns how many, at least one; 0 once the data has ended. Memory does not grow
  // with the file. Compressed data that is damaged or ends too early: DataError that names the file.
  virtual std::size_t read(std::span<char> out) = 0;

  // How much of the file as stored has been used.
  virtual std::int64_t bytes_consumed() const = 0;
};

// DataError, StorageError: as RandomAccessFile. `waiting` is called now and then while standard input has nothing to read.
std::unique_ptr<ByteStream> open_byte_stream(const InputFile& input, std::function<void()> waiting = {});

}  // namespace trident
