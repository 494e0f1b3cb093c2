// A case of the operations' conformance suite as a value: an operation of device/ops.h, its operands, how it is called and what the
// scalar reference says. Cases know no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "device/ops.h"

namespace trident::conformance {

using Index = std::int64_t;
using Values = std::vector<double>;  // elements of any dtype, exactly (integers below 2^53)

// Where the initial values of an operand come from.
struct Draw {
  enum class Kind : std::uint8_t { kNormal, kIntegers, kSpecial };
  Kind kind = Kind::kNormal;
  double a = 0, b = 1;
};
inline Draw normal(double mean = 0.0, double deviation = 1.0) { return {Draw::Kind::kNormal, mean, deviation}; }
inline Draw integers(Index low, Index high) { return {Draw::Kind::kIntegers, double(low), double(high)}; }  // both included
// Normal values with NaN, infinities, ties of rounding, the largest f32 and a subnormal among them.
inline Draw special() { return {Draw::Kind::kSpecial, 0, 1}; }

enum class Zeros : std::uint8_t { kApproximate, kExact, kNoOthers };

// How far a result may lie from the reference's: absolute + relative * |expected| + floor * (largest |expected| of this output, or
// `terms` if that is more: the size of terms that may all cancel). Infinities and NaN are expected as they are. All 0: the expected
// value rounded to the dtype. Zeros::kExact: what is expected to be 0 is 0; kNoOthers: and nothing else is.
struct Tolerance {
  double relative = 0, floor = 0, terms = 0;
  double absolute = 0;
  Zeros zeros = Zeros::kApproximate;
  bool is_exact() const { return relative == 0 && floor == 0; }
};

inline constexpr Tolerance kExact{};
// A few roundings, a division, exp or tanh in f32: exp may be off by 2.5e-7 (row_kernels.h), and what is left of a difference (1 -
// p, x - mean) keeps the error of its terms: hence the floor.
inline constexpr double kElementNoise = 4e-6;
// Sums of up to some thousand f32 terms, in any order: about sqrt(n) 2^-24 of the terms, which may exceed their sum.
inline constexpr double kSumNoise = 1e-5;
inline constexpr double kProductNoise = 4e-7;  // of a product in f32: as a share of its terms' magnitudes

// One rounding changes this, relatively: half a unit of the last of 8 bits (bf16: 2^-8) or 11 (f16: 2^-11). f32's own roundings are
// counted as noise.
constexpr double unit_roundoff(DType t) { return t == DType::kBF16 ? 0x1p-8 : t == DType::kF16 ? 0x1p-11 : 0.0; }

// f32 arithmetic with this noise, then rounded to `t`. `roundings`: how often the contract rounds to `t` on the way. Small
// results of f16 are multiples of 2^-24 and so off by 2^-25.
Tolerance rounded(DType t, double noise, int roundings = 1);
// The value of `t` that is nearest to x.
double nearest(DType t, double x);

enum class Role : std::uint8_t { kInput, kOutput, kInPlace };

struct Operand {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  Role role = Role::kInput;
  Draw draw;            // of inputs and what is updated in place
  Tolerance tolerance;  // of outputs and what is updated in place
};
Operand input(std::string name, DType dtype, Shape shape, Draw draw = normal());
Operand output(std::string name, DType dtype, Shape shape, Tolerance tolerance);
Operand in_place(std::string name, DType dtype, Shape shape, Tolerance tolerance, Draw draw = normal());
// An output, or added to in place.
Operand result(std::string name, DType dtype, Shape shape, Accumulate accumulate, Tolerance tolerance, Draw draw = normal());

struct OpCase {
  std::string op;       // its name in device/ops.h
  std::string variant;  // shapes and options: letters, digits, underscores
  DType dtype = DType::kF32;
  std::vector<Operand> operands;
  Index shift = 0;    // elements by which the operands of `dtype` miss the alignment of their memory
  double flops = 0;   // of products
  double bytes = -1;  // that must be moved; < 0: every operand once, twice in place

  // Announces the call, returns its workspace in bytes. Not set: none.
  std::function<std::int64_t(Ops& ops)> prepare;
  std::function<void(Ops& ops, Stream& stream, std::span<const TensorView> operands, TensorView workspace)> run;
  // The same by other operations, to the bit on devices that do not fuse. Not set: it is no fused operation.
  std::function<void(Ops& ops, Stream& stream, std::span<const TensorView> operands, TensorView workspace)> one_by_one;
  // Inputs that follow from others (statistics of a forward pass, chosen rows). Not set: all are as drawn.
  std::function<void(std::vector<Values>& operands)> derive;
  // From the initial values (outputs: zeros) to the expected ones.
  std::function<void(std::vector<Values>& operands)> reference;
  // Results of one meaning to one form. Not set: they have one form only.
  std::function<void(std::vector<Values>& operands)> canonical;

  std::string name() const;  // "rms_norm_forward/bf16/5x129"
  double bytes_moved() const;
};

// The same call on operands that are aligned to their elements only.
OpCase shifted(OpCase original);

// The initial values of all operands, representable in their dtypes: a function of the seed and the case's name. Outputs: zeros.
// Draws repeat after 65,521 elements.
std::vector<Values> draw_operands(const OpCase& c, std::uint64_t seed);
// For measurements, where sense does not matter: as drawn, and no longer than until they repeat.
std::vector<Values> draw_repeated(const OpCase& c, std::uint64_t seed);

std::vector<std::byte> encode(DType dtype, const Values& values);
Values decode(DType dtype, std::span<const std::byte> bytes);

}  // namespace trident::conformance
