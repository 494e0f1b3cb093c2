// Operands for tests of operations: random or small-integer values in a Buffer, as the dtype asked for and as doubles.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/bf16.h"
#include "core/f16.h"
#include "core/philox.h"
#include "device/buffer.h"

namespace trident {

// A tensor with guard bytes behind it: an operation that writes past the end is found by guards_intact().
class TestTensor {
 public:
  TestTensor(DType dtype, Shape shape, std::int64_t misalign_elements = 0)
      : buffer_(allocate_host(shape.num_elements() * size_of(dtype) + kGuard + misalign_elements * size_of(dtype), "test tensor")),
        view_(buffer_.data() + misalign_elements * size_of(dtype), dtype, shape) {
    std::memset(end(), 0xA5, kGuard);
  }

  TensorView view() const { return view_; }
  bool guards_intact() const {
    for (std::int64_t i = 0; i < kGuard; ++i) {
      if (end()[i] != std::byte{0xA5}) return false;
    }
    return true;
  }
  double at(std::int64_t i) const {
    if (view_.dtype() == DType::kBF16) return to_float(view_.as<bf16>()[i]);
    if (view_.dtype() == DType::kF16) return to_float(view_.as<f16>()[i]);
    return view_.dtype() == DType::kF64 ? view_.as<double>()[i] : view_.as<float>()[i];
  }
  void set(std::int64_t i, double x) {
    if (view_.dtype() == DType::kBF16) view_.as<bf16>()[i] = to_bf16(static_cast<float>(x));
    if (view_.dtype() == DType::kF16) view_.as<f16>()[i] = to_f16(static_cast<float>(x));
    if (view_.dtype() == DType::kF32) view_.as<float>()[i] = static_cast<float>(x);
  }
  std::vector<double> values() const {
    std::vector<double> v;
    for (std::int64_t i = 0; i < view_.num_elements(); ++i) v.push_back(at(i));
    return v;
  }
  TestTensor& fill(double x) {
    for (std::int64_t i = 0; i < view_.num_elements(); ++i) set(i, x);
    return *this;
  }
  // Uniform in (-scale, scale], different for every name.
  TestTensor& randomize(const std::string& name, double scale = 1.0) {
    const PhiloxKey key = random_key(1234, RandomPurpose::kTest, name);
    for (std::int64_t i = 0; i < view_.num_elements(); ++i)
      set(i, scale * (2.0 * uniform_at(key, static_cast<std::uint64_t>(i)) - 1.0));
    return *this;
  }
  // Integers -3..3: their sums are exact in any order.
  TestTensor& integers(const std::string& name) {
    const PhiloxKey key = random_key(99, RandomPurpose::kTest, name);
    for (std::int64_t i = 0; i < view_.num_elements(); ++i)
      set(i, std::floor(7.0 * uniform_at(key, static_cast<std::uint64_t>(i)) - 0.001) - 3.0);
    return *this;
  }
  bool same_bits(const TestTensor& other) const {
    return std::memcmp(view_.data(), other.view_.data(), static_cast<std::size_t>(view_.num_bytes())) == 0;
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  std::byte* end() const { return view_.data() + view_.num_bytes(); }

  Buffer buffer_;
  TensorView view_;
};

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace trident
