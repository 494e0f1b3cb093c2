// One file of a checkpoint: a safetensors file of boxes, whose header also says where each box lies in its tensor and what every
// block of the data hashes to.
//
// __metadata__ has "format": "pt"; DCP_VERSION and DCP_SHARDING_INFO ({key: {"saved_offsets": [...]}}, as PyTorch's distributed
// checkpoint reads them); "trident.block_bytes" and "trident.blocks": the XXH3-128 of each block of the data, 32 hexadecimal digits
// each, back to back. A block is kBlockBytes, the last one what is left. The data begins at a multiple of kDataAlignment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/hash128.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/tensor_box.h"
#include "core/dtype.h"

namespace trident {

inline constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;
inline constexpr std::int64_t kDataAlignment = 4096;  // for direct I/O

// A box in a file, under a key that the file has once: the tensor's name, with "master/" or a state's name and "/" before it where it
// is not the weight itself.
struct FileBox {
  std::string key;
  DType dtype = DType::kF32;
  TensorBox box;
  std::int64_t begin = 0;  // bytes from the beginning of the data

  std::int64_t bytes() const { return box.elements() * size_of(dtype); }
  bool operator==(const FileBox&) const = default;
};

// A file's own table of contents.
struct FileTable {
  std::vector<FileBox> boxes;   // in the file's order, back to back
  std::vector<Hash128> blocks;  // of each block of the data
  std::int64_t block_bytes = kBlockBytes;

  std::int64_t data_bytes() const { return boxes.empty() ? 0 : boxes.back().begin + boxes.back().bytes(); }
  std::int64_t num_blocks() const { return (data_bytes() + block_bytes - 1) / block_bytes; }
  bool operator==(const FileTable&) const = default;
};

// The table as the first bytes of its file: 8 + N, a multiple of kDataAlignment. As long for any hashes as for those of the table, so
// that the data can be placed before it is hashed.
std::string to_text(const FileTable& table);

// The table of a file that begins with `text` (8 + N bytes) and has `file_bytes`. DataError naming `source` and, where it can, the
// tensor: what is no safetensors header, keys without offsets or the other way round, offsets that are negative or of other rank than
// the shape, a number of hashes that is not the number of blocks, block_bytes outside 4 KiB .. 4 MiB.
FileTable parse_file_table(std::string_view text, std::int64_t file_bytes, std::string_view source);

}  // namespace trident
