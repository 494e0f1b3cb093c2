#include "core/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trident {

namespace {

constexpr std::int64_t kDigitMask = 0xffffffff;
constexpr int kMantissaBits = 53;
constexpr int kLowestExponent = -1074;  // of the weight of digit 0, bit 0

// Carries upwards; arithmetic shift floors, so digits end up in [0, 2^32) and the sign in the last one.
void carry(std::span<std::int64_t> digits) {
  std::int64_t carried = 0;
  for (std::size_t i = 0; i + 1 < digits.size(); ++i) {
    const std::int64_t x = digits[i] + carried;
    digits[i] = x & kDigitMask;
    carried = x >> 32;
  }
  digits.back() += carried;
}

// Bits [first, first + count) of a number whose digits are in [0, 2^32) but the last, which is not negative; count <= 53.
std::uint64_t bits_from(std::span<const std::int64_t> digits, int first, int count) {
  std::uint64_t bits = 0;
  for (int b = 0; b < count;) {
    const int position = first + b;
    const auto i = std::min(static_cast<std::size_t>(position / 32), digits.size() - 1);
    const int offset = position - 32 * static_cast<int>(i);
    const int taken = i + 1 < digits.size() ? std::min(32 - offset, count - b) : count - b;
    const std::uint64_t part = static_cast<std::uint64_t>(digits[i]) >> offset;
    bits |= (part & ((std::uint64_t{1} << taken) - 1)) << b;
    b += taken;
  }
  return bits;
}

}  // namespace

void ExactSum::add(double x) {
  if (pending_ >= kMaxPending) [[unlikely]]
    normalise();
  ++pending_;
  const Addend addend = addend_of(x);
  for (int i = 0; i < addend.count; ++i) limbs_[addend.first + static_cast<std::size_t>(i)] += addend.by[i];
}

// Mantissas of one exponent are added before they are shifted to their place, where there are enough of them.
void ExactSum::add(std::span<const double> xs) {
  constexpr std::size_t kExponents = 0x7ff, kWorthExponents = 1024;
  if (xs.size() < kWorthExponents) {
    for (const double x : xs) add(x);
    return;
  }
  constexpr std::size_t kAtOnce = std::size_t{1} << 30;  // sums of so many times 32 bits have 62
  for (; xs.size() > kAtOnce; xs = xs.subspan(kAtOnce)) add(xs.first(kAtOnce));
  constexpr std::uint64_t kLeading = std::uint64_t{1} << (kMantissaBits - 1);
  std::array<std::int64_t, kExponents> low{}, high{};  // 32 bits of each mantissa, and the others
  for (const double x : xs) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::size_t exponent = (bits >> (kMantissaBits - 1)) & kExponents;
    if (exponent == kExponents) [[unlikely]] {
      add(x);
      continue;
    }
    const auto mantissa = static_cast<std::int64_t>((bits & (kLeading - 1)) | (exponent == 0 ? 0 : kLeading));
    const std::int64_t sign = static_cast<std::int64_t>(bits) >> 63;
    low[exponent] += ((mantissa & kDigitMask) ^ sign) - sign;
    high[exponent] += ((mantissa >> 32) ^ sign) - sign;
  }
  if (pending_ + static_cast<std::int64_t>(kExponents) >= kMaxPending) normalise();
  for (std::size_t exponent = 0; exponent < kExponents; ++exponent) {
    if ((low[exponent] | high[exponent]) == 0) continue;
    const std::size_t shift = exponent == 0 ? 0 : exponent - 1;
    const __int128 sum = ((static_cast<__int128>(high[exponent]) << 32) + low[exponent]) << shift % 32;
    const std::int64_t sign = sum < 0 ? -1 : 1;
    __int128 rest = sum < 0 ? -sum : sum;
    for (std::size_t digit = shift / 32; rest != 0; ++digit, rest >>= 32)
      limbs_[digit] += sign * (static_cast<std::int64_t>(rest) & kDigitMask);
    ++pending_;
  }
}

void ExactSum::merge(const ExactSum& other) {
  normalise();
  ExactSum addend = other;
  addend.normalise();
  for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += addend.limbs_[i];
  pending_ += addend.pending_;
}

void ExactSum::normalise() {
  carry(std::span(limbs_).first(kDigits));
  pending_ = 1;  // a normalised digit is below 2^32, as one add's is
}

bool ExactSum::finite() const { return limbs_[kNan] == 0 && limbs_[kPlusInfinity] == 0 && limbs_[kMinusInfinity] == 0; }

double ExactSum::value() const {
  if (limbs_[kNan] != 0 || (limbs_[kPlusInfinity] != 0 && limbs_[kMinusInfinity] != 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (limbs_[kPlusInfinity] != 0) return std::numeric_limits<double>::infinity();
  if (limbs_[kMinusInfinity] != 0) return -std::numeric_limits<double>::infinity();

  std::array<std::int64_t, kDigits> digits;
  std::copy_n(limbs_.begin(), kDigits, digits.begin());
  carry(digits);
  const bool negative = digits.back() < 0;
  if (negative) {
    for (std::int64_t& d : digits) d = -d;
    carry(digits);
  }
  std::size_t top = kDigits - 1;
  while (top > 0 && digits[top] == 0) --top;
  if (digits[top] == 0) return 0.0;
  const int length = 32 * static_cast<int>(top) + std::bit_width(static_cast<std::uint64_t>(digits[top]));
  const int shift = std::max(length - kMantissaBits, 0);  // bits below the mantissa; 0 also for subnormals, which are exact
  std::uint64_t mantissa = bits_from(digits, shift, std::min(length, kMantissaBits));
  if (shift > 0 && bits_from(digits, shift - 1, 1) != 0) {
    bool above_half = false;
    for (int b = 0; b < shift - 1 && !above_half; b += 32) above_half = bits_from(digits, b, std::min(32, shift - 1 - b)) != 0;
    mantissa += above_half || (mantissa & 1) != 0 ? 1 : 0;
  }
  const double magnitude = std::ldexp(static_cast<double>(mantissa), shift + kLowestExponent);
  return negative ? -magnitude : magnitude;
}

}  // namespace trident
