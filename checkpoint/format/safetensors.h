// The header of a safetensors file: names, shapes and places of its tensors. Strict in reading, the reference writer's bytes in
// writing.
//
// File: u64 little-endian N, N bytes of JSON, the data. The JSON is one object: tensor name -> {"dtype", "shape", "data_offsets":
// [begin, end]}, offsets in bytes from where the data begins; and "__metadata__", texts by key. Tensors lie back to back, dense,
// row-major, little-endian, in ascending order of their offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/json_reader.h"

namespace trident {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;     // [] is a scalar
  std::int64_t begin = 0, end = 0;     // bytes from the beginning of the data
  std::string other_dtype = {};        // "BOOL", or what the file says: no values of it are read, and `dtype` says nothing
  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, std::string>> metadata;  // in the order of the text
  std::vector<SafetensorsEntry> entries;                      // by ascending offset: end of one is begin of the next

  const std::string* find_metadata(std::string_view key) const;  // nullptr: no such key
  std::int64_t data_bytes() const { return entries.empty() ? 0 : entries.back().end; }
  bool operator==(const SafetensorsHeader&) const = default;
};

// "F32", "BF16", ...; and of an entry, whatever it has.
std::string_view safetensors_name(DType dtype);
std::string_view safetensors_name(const SafetensorsEntry& entry);

// The first 8 + N bytes of a file: the length, the JSON (entries in their order, metadata first) and spaces behind it, so that the
// data begins at a multiple of `alignment` bytes (a power of two, at least 8). The entries' offsets must be complete (InternalError).
std::string to_text(const SafetensorsHeader& header, std::int64_t alignment = 8);

// Largest N that is read, the reference reader's, and how many tensors: an entry takes more memory than its text.
inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::size_t kMaxSafetensorsEntries = std::size_t{1} << 18;
// The header's JSON, and that of its metadata.
inline constexpr JsonRules kSafetensorsRules{.comments = false,
                                             .max_bytes = static_cast<std::size_t>(kMaxSafetensorsHeader),
                                             .max_depth = 8,
                                             .blame = ExitCode::kData};

// N of a file that begins with these 8 bytes and has `file_bytes` in all. DataError naming `source` unless 2 <= N <=
// kMaxSafetensorsHeader and 8 + N <= file_bytes.
std::int64_t safetensors_header_bytes(std::string_view first_8, std::int64_t file_bytes, std::string_view source);

// The header from its JSON text (N bytes). `data_bytes`: what follows it in the file. Refuses, with a DataError that begins with
// `source` and names the tensor: what is not such JSON; a key twice; names above 4 KiB, more than 16 dimensions, negative or
// fractional numbers; sizes that overflow; offsets that overlap, leave a hole, do not start at 0 or end at `data_bytes`; offsets
// that do not fit shape and dtype, where the format has that dtype; metadata that is not text; more than kMaxSafetensorsEntries
// tensors.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, std::string_view source);

}  // namespace trident
