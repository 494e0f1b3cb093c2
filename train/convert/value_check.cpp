#include "train/convert/value_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "checkpoint/box_copy.h"
#include "checkpoint/hf_shard_reader.h"
#include "core/f16.h"
#include "core/json_reader.h"

namespace trident {
namespace {

// The first that is infinite in f16 and was not; -1: none.
std::int64_t first_overflow(const std::byte* from, DType from_dtype, const std::byte* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    f16 value;
    std::memcpy(&value, to + i * 2, sizeof value);
    if ((value.bits & 0x7fffu) != 0x7c00u) continue;
    float before = 0;
    convert_values(from + i * size_of(from_dtype), from_dtype, reinterpret_cast<std::byte*>(&before), DType::kF32, 1);
    if (std::isfinite(before)) return i;
  }
  return -1;
}

}  // namespace

void ValueCheck::look(const std::string& tensor, const std::vector<std::int64_t>& shape, std::int64_t first, const std::byte* from,
                      DType from_dtype, const std::byte* to, DType to_dtype, std::int64_t n) {
  if (with_nan_ != tensor) {
    if (const std::int64_t at = first_nan(from, from_dtype, n); at >= 0) {
      with_nan_ = tensor;
      warnings_.push_back(fmt::format("tensor {} has values that are no numbers, the first at {}; they are kept", in_quotes(tensor),
                                      place_text(first + at, shape)));
    }
  }
  if (to_dtype != DType::kF16 || from_dtype == DType::kF16 || with_infinity_ == tensor) return;
  if (const std::int64_t at = first_overflow(from, from_dtype, to, n); at >= 0) {
    with_infinity_ = tensor;
    warnings_.push_back(fmt::format("tensor {} has values beyond the range of f16, the first at {}; they are infinite now",
                                    in_quotes(tensor), place_text(first + at, shape)));
  }
}

}  // namespace trident
