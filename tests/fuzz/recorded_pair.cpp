#include "tests/fuzz/recorded_pair.h"

#include <cstdint>

#include "core/file_io.h"
#include "data/indexed_dataset.h"

namespace trident::fuzz {
namespace {

template <class T> void add(std::string& bytes, T value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }

}  // namespace

void write_recorded_pair(const std::string& prefix) {
  write_file(bin_path(prefix), "tokens");
  std::string idx(kIndexMagic);
  add(idx, kIndexVersion);
  add(idx, TokenType::kU16);
  add(idx, std::uint64_t{2});  // sequences
  add(idx, std::uint64_t{3});  // documents and one
  for (const std::int32_t length : {2, 1}) add(idx, length);
  for (const std::int64_t offset : {0, 4}) add(idx, offset);
  for (const std::int64_t first : {0, 1, 2}) add(idx, first);
  write_file(idx_path(prefix), idx);
}

}  // namespace trident::fuzz
