// A sum of doubles without rounding: the same bits for every order and every split over ranks.
//
// A fixed-point number wide enough for every double (Kulisch's long accumulator; Demmel and Nguyen 2015 for its use in reductions),
// held as 64-bit limbs of which 32 bits are payload. The spare bits hold carries, so limbs of several accumulators are added limb
// by limb: an ordinary integer all-reduce over limbs() sums over ranks exactly. Gradient norms and losses become independent of how
// tensors, samples and layers are laid out.
#pragma once

#include <array>
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

  std::array<std::int64_t, kLimbs> limbs_{};
  std::int64_t pending_ = 0;  // upper bound of |digit| / 2^32 since the last normalisation
};

}  // namespace trident
