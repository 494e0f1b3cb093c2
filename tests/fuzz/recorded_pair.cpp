#include "tests/fuzz/recorded_pair.h"

#include <cstdint>

#include "core/file_io.h"
#include "data/indexed_dataset.h"

namespace trident::fuzz {
namespace {

template <class T> void append(std::string& bytes, T value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }

}  // namespace

void write_recorded_pair(const std::string& prefix) {
  write_file(bin_path(prefix), "tokens");
  std::string idx(kIndexMagic);
  append(idx, kIndexVersion);
  append(idx, TokenType::kU16);
  append(idx, std::uint64_t{2});  // sequences
  append(idx, std::uint64_t{3});  // documents and one
  for (const std::int32_t length : {2, 1}) append(idx, length);
  for (const std::int64_t offset : {0, 4}) append(idx, offset);
  for (const std::int64_t first : {0, 1, 2}) append(idx, first);
  write_file(idx_path(prefix), idx);
}

}  // namespace trident::fuzz
