// A sum of doubles without rounding: the same bits for every order and every split over ranks.
//
// A fixed-point number wide enough for every double (Kulisch's long accumulator; Demmel and Nguyen 2015 for its use in reductions),
// held as 64-bit limbs of which 32 bits are payload. The spare bits hold carries, so limbs of several accumulators are added limb
// by limb: an ordinary integer all-reduce over limbs() sums over ranks exactly. Gradient norms and losses become independent of how
// tensors, samples and layers are laid out.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trident {

class ExactSum {
 public:
  // Limb i < kDigits has weight 2^(32 i - 1074) and may be negative; 67 of them (the last with 63 bits) hold 2^77 times the largest
  // double. The last three count NaN, +infinity and -infinity.
  static constexpr std::size_t kDigits = 67;
  static constexpr std::size_t kLimbs = kDigits + 3;

  // Adding a double means limbs[first + i] += by[i] for i < count.
  struct Addend {
    std::size_t first = 0;
    int count = 0;
    std::int64_t by[3] = {0, 0, 0};
  };
  static constexpr Addend addend_of(double x);

  // Exact for every double, subnormal or not finite.
  void add(double x);
  void add(std::span<const double> xs);
  void merge(const ExactSum& other);

  // Carries every digit but the last into [0, 2^32). The number it holds does not change; equal sums then have equal limbs.
  void normalise();

  // To sum over ranks: normalise(), then all-reduce limbs() as 64-bit integers, over at most 2^30 ranks in all, axis by axis or at
  // once. value() takes the result as it is; normalise() again before adding more.
  std::span<std::int64_t, kLimbs> limbs() { return limbs_; }
  std::span<const std::int64_t, kLimbs> limbs() const { return limbs_; }

  // The sum, rounded once to the nearest double (ties to even); beyond the range infinity. Any NaN, or infinities of both signs:
  // NaN.
  double value() const;
  bool finite() const;

 private:
  // An add changes a digit by less than 2^32: 2^30 of them after a normalisation leave it below 2^63. normalise() is called before.
  static constexpr std::int64_t kMaxPending = std::int64_t{1} << 30;

  static constexpr std::size_t kNan = kDigits, kPlusInfinity = kDigits + 1, kMinusInfinity = kDigits + 2;

  std::array<std::int64_t, kLimbs> limbs_{};
  std::int64_t pending_ = 0;  // upper bound of |digit| / 2^32 since the last normalisation
};

constexpr ExactSum::Addend ExactSum::addend_of(double x) {
  constexpr std::uint64_t kDigitMask = 0xffffffff, kFraction = (std::uint64_t{1} << 52) - 1;
  const auto u = std::bit_cast<std::uint64_t>(x);
  const auto biased = static_cast<int>((u >> 52) & 0x7ff);
  const bool negative = (u >> 63) != 0;
  const std::uint64_t fraction = u & kFraction;
  if (biased == 0x7ff) [[unlikely]]
    return {fraction != 0 ? kNan : negative ? kMinusInfinity : kPlusInfinity, 1, {1, 0, 0}};
  const std::uint64_t mantissa = biased == 0 ? fraction : fraction | (std::uint64_t{1} << 52);
  const int shift = biased == 0 ? 0 : biased - 1;  // of the mantissa's lowest bit, in units of 2^-1074
  const int offset = shift % 32;
  // 53 + 31 bits: three digits.
  const std::uint64_t low = (mantissa & kDigitMask) << offset;
  const std::uint64_t high = ((mantissa >> 32) << offset) + (low >> 32);
  const std::int64_t sign = negative ? -1 : 1;
  return {static_cast<std::size_t>(shift / 32),
          3,
          {sign * static_cast<std::int64_t>(low & kDigitMask), sign * static_cast<std::int64_t>(high & kDigitMask),
           sign * static_cast<std::int64_t>(high >> 32)}};
}

}  // namespace trident
