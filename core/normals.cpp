#include "core/normals.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace trident {
namespace {

// Box-Muller, sixteen counters at once where the processor has the vectors for it.
//
// The bits are those of libm's functions in double, rounded to float, whatever computes them: vectors compute in double with an
// error far below kDoubt, and where a float's rounding could hang on that, libm decides.

constexpr std::size_t kBlocks = Normals::kAtOnce / 4;
using Words = std::array<std::uint64_t, kBlocks>;  // of 32 bits each

// These functions are always inlined, because they are compiled for each instruction set that their caller is compiled for.

[[gnu::always_inline]] inline double from_word(std::uint64_t word) {
  return std::bit_cast<double>(word | std::uint64_t{0x4330000000000000}) - 0x1p52;
}

// log((word + 1) / 2^32), from log((1 + s) / (1 - s)) = 2 s + 2 s^3 / 3 + ...
[[gnu::always_inline]] inline double log_of_uniform(std::uint64_t word) {
  const auto bits = std::bit_cast<std::uint64_t>(from_word(word) + 1.0);
  const std::uint64_t exponent = (bits - std::bit_cast<std::uint64_t>(1 / std::numbers::sqrt2)) >> 52;
  const double m = std::bit_cast<double>(bits - (exponent << 52));  // from sqrt(1/2) to sqrt(2)
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double sum = 1.0 / 21;
#pragma GCC unroll 16
  for (const double n : {19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0}) sum = sum * z + 1.0 / n;
  return (from_word(exponent) - 32.0) * std::numbers::ln2 + (2.0 * s + 2.0 * s * (z * sum));
}

[[gnu::always_inline]] inline void philox_words(std::uint64_t block, PhiloxKey key, Words& w0, Words& w1, Words& w2, Words& w3) {
  for (std::size_t i = 0; i < kBlocks; ++i) {
    std::uint64_t c0 = (block + i) & 0xffffffffu, c1 = (block + i) >> 32, c2 = 0, c3 = 0;
    PhiloxKey k = key;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = c0 * 0xD2511F53u, p1 = c2 * 0xCD9E8D57u;
      c0 = (p1 >> 32) ^ c1 ^ k[0], c1 = p1 & 0xffffffffu;
      c2 = (p0 >> 32) ^ c3 ^ k[1], c3 = p0 & 0xffffffffu;
      k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
    }
    w0[i] = c0, w1[i] = c1, w2[i] = c2, w3[i] = c3;
  }
}

// Rounds a number that is known to within kDoubt of itself; `doubt` gets bits if another float may be the nearest.
[[gnu::always_inline]] inline float rounded(double x, std::uint32_t& doubt) {
  constexpr double kDoubt = 0x1p-46;
  const float least = static_cast<float>(x - x * kDoubt), most = static_cast<float>(x + x * kDoubt);
  doubt |= std::bit_cast<std::uint32_t>(least) ^ std::bit_cast<std::uint32_t>(most);
  doubt |= x * x < 0x1p-96 ? 1 : 0;  // what is left of an angle whose sine or cosine should be 0, at most 6.7 times 2^-52.3
  return most;
}

// sin and cos of 2 pi word / 2^32, whose angle libm gets rounded to double; by their series about the nearest quarter of a turn.
[[gnu::always_inline]] inline void sine_and_cosine(std::uint64_t word, double& sine, double& cosine) {
  // Products of the first with 0 to 4 are exact.
  constexpr double kQuarterHigh = 0x1.921fb544p+0, kQuarterLow = 0x1.0b4611a626331p-34;
  const std::uint64_t quarter = (word + (std::uint64_t{1} << 29)) >> 30;
  const double angle = 2.0 * std::numbers::pi * (from_word(word) * 0x1p-32), quarters = from_word(quarter);
  const double r = (angle - quarters * kQuarterHigh) - quarters * kQuarterLow, z = r * r;
  double s = -1.0 / 1307674368000, c = 1.0 / 20922789888000;  // 1/15!, 1/16!
#pragma GCC unroll 8
  for (const double n : {6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0}) s = s * z + 1.0 / n;
#pragma GCC unroll 8
  for (const double n : {-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0, -2.0, 1.0}) c = c * z + 1.0 / n;
  const auto sin_bits = std::bit_cast<std::uint64_t>(r + r * (z * s)), cos_bits = std::bit_cast<std::uint64_t>(c);
  const std::uint64_t swapped = (sin_bits ^ cos_bits) & (0 - (quarter & 1));
  sine = std::bit_cast<double>(sin_bits ^ swapped ^ (quarter & 2) << 62);
  cosine = std::bit_cast<double>(cos_bits ^ swapped ^ ((quarter + 1) & 2) << 62);
}

// The numbers of kBlocks counters from `block`; false if libm has to say one.
[[gnu::always_inline]] inline bool draw_in_vectors(std::uint64_t block, PhiloxKey key, float* out) {
  Words w[4];
  philox_words(block, key, w[0], w[1], w[2], w[3]);
  std::array<std::uint32_t, kBlocks> doubts{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    std::array<float, kBlocks> even, odd;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const double radius = __builtin_sqrt(-2.0 * log_of_uniform(w[pair][i]));
      double sine, cosine;
      sine_and_cosine(w[pair + 1][i], sine, cosine);
      even[i] = rounded(radius * cosine, doubts[i]);
      odd[i] = rounded(radius * sine, doubts[i]);
    }
    for (std::size_t i = 0; i < kBlocks; ++i) out[4 * i + pair] = even[i], out[4 * i + pair + 1] = odd[i];
  }
  std::uint32_t doubt = 0;
  for (const std::uint32_t d : doubts) doubt |= d;
  return doubt == 0;
}

[[gnu::target("avx2")]] bool draw_avx2(std::uint64_t block, PhiloxKey key, float* out) {
  return draw_in_vectors(block, key, out);
}
[[gnu::target("avx512f,avx512dq")]] bool draw_avx512(std::uint64_t block, PhiloxKey key, float* out) {
  return draw_in_vectors(block, key, out);
}

}  // namespace

std::span<const DrawNormals> vector_normals() {
  static constexpr std::array<DrawNormals, 2> kForms{draw_avx512, draw_avx2};
  static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  static const bool avx2 = __builtin_cpu_supports("avx2");
  return std::span(kForms).subspan(avx512 ? 0 : avx2 ? 1 : 2);
}

void Normals::draw(std::uint64_t batch) {
  batch_ = batch;
  const std::span<const DrawNormals> vectors = vector_normals();
  if (!vectors.empty() && vectors.front()(batch * kBlocks, key_, values_.data())) return;
  for (std::size_t first = 0; first < kAtOnce; first += 2) {  // words 0,1 of a counter make normals 0,1; words 2,3 make normals 2,3
    const std::uint64_t block = batch * kBlocks + first / 4;
    const PhiloxCounter w = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key_);
    const std::size_t pair = first % 4;
    const double u = (static_cast<double>(w[pair]) + 1.0) * 0x1p-32, v = static_cast<double>(w[pair + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u)), angle = 2.0 * std::numbers::pi * v;
    values_[first] = static_cast<float>(radius * std::cos(angle));
    values_[first + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace trident
