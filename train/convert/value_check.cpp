#include "train/convert/value_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

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

void ValueCheck::look(const Place& place, const std::vector<std::int64_t>& shape, std::int64_t first, const std::byte* from,
                      DType from_dtype, const std::byte* to, DType to_dtype, std::int64_t n) {
  const auto warn = [&](Kind kind, std::int64_t at, std::string_view what, std::string_view then) {
    if (at < 0 || named_[kind] == place.tensor) return;
    named_[kind] = place.tensor;
    warnings_.push_back(fmt::format("{}: tensor {} has values {}, the first at {}; they are {}", place.file,
                                    in_quotes(place.tensor), what, place_text(first + at, shape), then));
  };
  const OddValues odd = odd_values(from, from_dtype, n);
  warn(kNaN, odd.nan, "that are no numbers", "kept");
  warn(kInfinite, odd.infinity, "that are infinite", "kept");
  if (to_dtype != DType::kF16 || from_dtype == DType::kF16) return;
  warn(kOverflow, first_overflow(from, from_dtype, to, n), "beyond the range of f16", "infinite now");
}

}  // namespace trident
