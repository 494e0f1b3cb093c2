#include "tests/conformance/op_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "core/bf16.h"
#include "core/f16.h"
#include "core/normals.h"
#include "core/philox.h"

namespace trident::conformance {

Tolerance rounded(DType t, double noise, int roundings) {
  return {.relative = noise + roundings * unit_roundoff(t),
          .floor = noise,
          .absolute = t == DType::kF16 ? roundings * 0x1p-25 : 0.0};
}

double nearest(DType t, double x) {
  const auto value = static_cast<float>(x);
  return t == DType::kBF16 ? to_float(to_bf16(value)) : t == DType::kF16 ? to_float(to_f16(value)) : value;
}

Operand input(std::string name, DType dtype, Shape shape, Draw draw) {
  return {std::move(name), dtype, shape, Role::kInput, draw, kExact};
}
Operand output(std::string name, DType dtype, Shape shape, Tolerance tolerance) {
  return {std::move(name), dtype, shape, Role::kOutput, {}, tolerance};
}
Operand in_place(std::string name, DType dtype, Shape shape, Tolerance tolerance, Draw draw) {
  return {std::move(name), dtype, shape, Role::kInPlace, draw, tolerance};
}
Operand result(std::string name, DType dtype, Shape shape, Accumulate accumulate, Tolerance tolerance, Draw draw) {
  return accumulate == Accumulate::kYes ? in_place(std::move(name), dtype, shape, tolerance, draw)
                                        : output(std::move(name), dtype, shape, tolerance);
}

std::string OpCase::name() const { return fmt::format("{}/{}/{}", op, to_string(dtype), variant); }

double OpCase::bytes_moved() const {
  if (bytes >= 0) return bytes;
  double sum = 0;
  for (const Operand& o : operands)
    sum += static_cast<double>(o.shape.num_elements() * size_of(o.dtype)) * (o.role == Role::kInPlace ? 2 : 1);
  return sum;
}

OpCase shifted(OpCase original) {
  original.shift = 1;
  original.variant += "_shifted";
  return original;
}

// ---- values

namespace {

constexpr Index kPeriod = 65521;  // a prime: no power-of-two shape repeats its rows

constexpr std::array kSpecials = {std::numeric_limits<double>::quiet_NaN(),
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  1 + 0x1p-8,  // ties of rounding to bf16: down to even, up to even
                                  1 + 0x3p-8,
                                  double{std::numeric_limits<float>::max()},
                                  1e-40};
constexpr Index kSpecialEvery = 5;

Values draw(const Draw& from, Index count, PhiloxKey key) {
  Values values(static_cast<std::size_t>(count));
  Normals normals(key);
  for (Index i = 0; i < count; ++i) {
    const auto number = static_cast<std::uint64_t>(i);
    double& x = values[static_cast<std::size_t>(i)];
    if (from.kind == Draw::Kind::kIntegers) {
      x = from.a + std::floor((from.b - from.a + 1) * (1.0 - uniform_at(key, number)));
    } else if (from.kind == Draw::Kind::kSpecial && i % kSpecialEvery == 0) {
      x = kSpecials[static_cast<std::size_t>(i / kSpecialEvery) % kSpecials.size()];
    } else {
      x = from.a + from.b * normals.at(number);
    }
  }
  return values;
}

template <class T>
T store(double x) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return from_float<T>(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}
template <class T>
double load(T x) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return to_float(x);
  } else {
    return static_cast<double>(x);
  }
}

// Calls f with an object of the dtype's type.
template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64: return f(double{});
    case DType::kF32: return f(float{});
    case DType::kBF16: return f(bf16{});
    case DType::kF16: return f(f16{});
    case DType::kI64: return f(std::int64_t{});
    case DType::kI32: return f(std::int32_t{});
    default: throw InternalError(fmt::format("operands of {} are not compared", to_string(dtype)));
  }
}

}  // namespace

std::vector<std::byte> encode(DType dtype, const Values& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  with_type(dtype, [&](auto type) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto x = store<decltype(type)>(values[i]);
      std::memcpy(bytes.data() + i * sizeof x, &x, sizeof x);
    }
  });
  return bytes;
}

Values decode(DType dtype, std::span<const std::byte> bytes) {
  Values values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  with_type(dtype, [&](auto type) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&type, bytes.data() + i * sizeof type, sizeof type);
      values[i] = load(type);
    }
  });
  return values;
}

std::vector<Values> draw_repeated(const OpCase& c, std::uint64_t seed) {
  std::vector<Values> values;
  for (const Operand& o : c.operands)
    values.push_back(
        draw(o.draw, std::min(o.shape.num_elements(), kPeriod), random_key(seed, RandomPurpose::kTest, c.name() + o.name)));
  return values;
}

std::vector<Values> draw_operands(const OpCase& c, std::uint64_t seed) {
  std::vector<Values> values = draw_repeated(c, seed);
  const auto representable = [&] {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode(c.operands[i].dtype, encode(c.operands[i].dtype, values[i]));
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto drawn = values[i].size();
    values[i].resize(static_cast<std::size_t>(c.operands[i].shape.num_elements()));
    if (c.operands[i].role == Role::kOutput)
      std::fill(values[i].begin(), values[i].end(), 0.0);
    else
      for (std::size_t j = drawn; j < values[i].size(); ++j) values[i][j] = values[i][j - drawn];
  }
  representable();
  if (c.derive) {
    c.derive(values);
    representable();
  }
  return values;
}

}  // namespace trident::conformance
