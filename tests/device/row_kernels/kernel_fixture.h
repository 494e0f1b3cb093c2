// The row kernel tests share guarded operands, random values, comparison with the reference, the levels of this machine.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/bf16.h"
#include "core/f16.h"
#include "device/row_kernels/row_kernels.h"

namespace trident {

inline void PrintTo(IsaLevel level, std::ostream* out) { *out << to_string(level); }
inline void PrintTo(RowType type, std::ostream* out) {
  *out << (type == RowType::kF32 ? "f32" : type == RowType::kBF16 ? "bf16" : "f16");
}

}  // namespace trident

namespace trident::testing {

using Index = std::int64_t;
using Values = std::vector<double>;

inline std::vector<IsaLevel> supported_levels() {
  std::vector<IsaLevel> levels{IsaLevel::kBaseline};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    levels.push_back(IsaLevel::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    levels.push_back(IsaLevel::kAvx512);
  return levels;
}

constexpr RowType kRowTypes[] = {RowType::kF32, RowType::kBF16, RowType::kF16};

inline std::string to_string(RowType t) { return ::testing::PrintToString(t); }

// The bits of x in T, and their value.
inline std::uint16_t half_bits(RowType t, float x) { return t == RowType::kBF16 ? to_bf16(x).bits : to_f16(x).bits; }
inline float half_value(RowType t, std::uint16_t bits) { return t == RowType::kBF16 ? to_float(bf16{bits}) : to_float(f16{bits}); }
// x as it is in T.
inline float rounded(RowType t, float x) { return t == RowType::kF32 ? x : half_value(t, half_bits(t, x)); }

// Values of type T (given and read as double), with guard bytes on both sides that the destructor checks, at an address that is a
// multiple of the element size only.
class Operand {
 public:
  Operand(RowType type, const Values& values)
      : type_(type), count_(values.size()), bytes_(2 * kGuard + values.size() * element(), kFill) {
    for (std::size_t i = 0; i < count_; ++i) {
      const float x = static_cast<float>(values[i]);
      const std::uint16_t half = half_bits(type, x);
      unsigned char* p = bytes_.data() + kGuard + i * element();
      if (type == RowType::kF32)
        std::memcpy(p, &x, sizeof(x));
      else
        std::memcpy(p, &half, sizeof(half));
    }
  }
  Operand(RowType type, Index count) : Operand(type, Values(static_cast<std::size_t>(count), 7.0)) {}  // something to overwrite
  Operand(const Operand&) = default;
  ~Operand() {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (bytes_[i] != kFill || bytes_[bytes_.size() - 1 - i] != kFill) {
        ADD_FAILURE() << "guard bytes overwritten beside " << count_ << " elements of " << to_string(type_);
        return;
      }
  }

  void* data() { return bytes_.data() + kGuard; }
  void* at(Index i) { return bytes_.data() + kGuard + static_cast<std::size_t>(i) * element(); }
  float* floats() {
    EXPECT_EQ(type_, RowType::kF32);
    return static_cast<float*>(data());
  }
  Values values() const {
    Values result;
    for (std::size_t i = 0; i < count_; ++i) {
      const unsigned char* p = bytes_.data() + kGuard + i * element();
      float x = 0;
      std::uint16_t half{};
      if (type_ == RowType::kF32)
        std::memcpy(&x, p, 4);
      else
        std::memcpy(&half, p, 2), x = half_value(type_, half);
      result.push_back(x);
    }
    return result;
  }
  // The stored bits of `count` elements from `first` on.
  std::string bits(Index first, Index count) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + kGuard + static_cast<std::size_t>(first) * element(),
            static_cast<std::size_t>(count) * element()};
  }
  std::string bits() const { return bits(0, static_cast<Index>(count_)); }

 private:
  static constexpr std::size_t kGuard = 68;
  static constexpr unsigned char kFill = 0xA5;
  std::size_t element() const { return type_ == RowType::kF32 ? 4 : 2; }

  RowType type_;
  std::size_t count_;
  std::vector<unsigned char> bytes_;
};

// Normal values, exact in T.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  Values values(RowType type, Index count, double mean = 0.0, double deviation = 1.0) {
    std::normal_distribution<double> normal(mean, deviation);
    Values result(static_cast<std::size_t>(count));
    for (double& x : result) {
      const float f = static_cast<float>(normal(engine_));
      x = rounded(type, f);
    }
    return result;
  }
  std::vector<std::int32_t> integers(Index count, std::int32_t low, std::int32_t high) {
    std::uniform_int_distribution<std::int32_t> uniform(low, high);
    std::vector<std::int32_t> result(static_cast<std::size_t>(count));
    for (std::int32_t& x : result) x = uniform(engine_);
    return result;
  }

 private:
  std::mt19937 engine_;
};

// Rounding to T may change half a unit in the last place of 8 (bf16) or 11 (f16) bits, for normal numbers.
inline double rounding_error(RowType t) { return t == RowType::kF32 ? 0.0 : t == RowType::kBF16 ? 0x1p-8 : 0x1p-11; }
// The same for denormal results of f16, which are multiples of 2^-24; f32's and bf16's are beyond what is looked at.
inline double denormal_error(RowType t) { return t == RowType::kF16 ? 0x1p-25 : 0.0; }

// A rounding to T and some f32 noise; `floor` is an absolute error relative to the largest expected value.
inline void expect_close(const Values& actual, const Values& expected, RowType type, const char* what, double floor = 3e-6) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double x : expected)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  const double relative = 4e-6 + rounding_error(type);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities
    ASSERT_LE(std::abs(actual[i] - expected[i]), relative * std::abs(expected[i]) + floor * largest + denormal_error(type))
        << what << "[" << i << "] is " << actual[i] << ", the reference says " << expected[i];
  }
}

}  // namespace trident::testing
