#include "infer/convert/value_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "checkpoint/box_copy.h"
#include "checkpoint/hf_shard_reader.h"
#include "core/json_reader.h"

namespace trident {
namespace {

// Without the sign.
constexpr std::uint16_t infinity_bits(DType dtype) { return dtype == DType::kF16 ? 0x7c00u : 0x7f80u; }

// The first that is infinite in `to_dtype`, f16 or bf16, and was not; -1: none.
std::int64_t first_overflow(const std::byte* from, DType from_dtype, const std::byte* to, DType to_dtype, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, to + i * 2, sizeof bits);
    if ((bits & 0x7fffu) != infinity_bits(to_dtype)) continue;
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
  if (to_dtype == DType::kF32 || to_dtype == from_dtype) return;
  warn(kOverflow, first_overflow(from, from_dtype, to, to_dtype, n), fmt::format("beyond the range of {}", to_string(to_dtype)),
       "infinite now");
}

}  // namespace trident
