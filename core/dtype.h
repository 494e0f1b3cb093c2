// Element types.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/check.h"

namespace trident {

enum class DType : std::uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU16, kU8 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: case DType::kI64: return 8;
    case DType::kF32: case DType::kI32: return 4;
    case DType::kBF16: case DType::kF16: case DType::kU16: return 2;
    case DType::kU8: return 1;
  }
  return 0;
}

constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kI64: return "i64";
    case DType::kI32: return "i32";
    case DType::kU16: return "u16";
    case DType::kU8: return "u8";
  }
  return "?";
}

struct bf16;
struct f16;

// The DType of a C++ element type: dtype_of<float> == DType::kF32.
template <class T> struct DTypeOf;
template <> struct DTypeOf<double> { static constexpr DType value = DType::kF64; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::kF32; };
template <> struct DTypeOf<bf16> { static constexpr DType value = DType::kBF16; };
template <> struct DTypeOf<f16> { static constexpr DType value = DType::kF16; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::kI64; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::kI32; };
template <> struct DTypeOf<std::uint16_t> { static constexpr DType value = DType::kU16; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::kU8; };
template <class T> inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace trident
