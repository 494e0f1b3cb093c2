// Vectors of kWidth floats, and how they come from memory and go there. Included inside a namespace of the instruction set's name
// and an unnamed one, after kWidth: what an instruction set has no registers for, the compiler takes apart, through memory.

using I = std::int64_t;
typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kWidth)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * kWidth)));

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

constexpr float kInfinity = __builtin_inff();

inline Floats broadcast(float x) { return x - Floats{}; }
inline Floats largest(Floats a, Floats b) { return a > b ? a : b; }

// Degree-6 polynomial (Cephes' coefficients), relative error below 3e-7; 0 below the normal range, NaN stays NaN.
inline Floats exponential(Floats x) {
  const Floats low = broadcast(-87.33f), high = broadcast(88.37f);
  Floats y = x < low ? low : x;
  y = y > high ? high : y;
  const Floats magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = y * 1.44269504088896341f + magic;
  const Floats n = shifted - magic;
  const Floats r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Ints power = __builtin_convertvector(n, Ints) + 127;
  const Floats result = p * (Floats)(power << 23);
  return x < low ? Floats{} : result;
}

template <I... i>
struct Indices {};
template <I N, I... i>
struct CountedDown : CountedDown<N - 1, N - 1, i...> {};
template <I... i>
struct CountedDown<0, i...> {
  using Counted = Indices<i...>;
};
template <I N>
using UpTo = typename CountedDown<N>::Counted;

template <class Vector, I... i>
__attribute__((always_inline)) inline float sum_of_halves(Vector v, Indices<i...>) {
  constexpr I kHalf = sizeof...(i);
  const auto sums = __builtin_shufflevector(v, v, i...) + __builtin_shufflevector(v, v, (i + kHalf)...);
  if constexpr (kHalf == 2) {
    return sums[0] + sums[1];
  } else {
    return sum_of_halves(sums, UpTo<kHalf / 2>());
  }
}

// Element i of the lower half and i of the upper, and again of what that makes.
inline float sum_of(Floats v) { return sum_of_halves(v, UpTo<kWidth / 2>()); }

inline float largest_of(Floats v) {
  float m = v[0];
  for (I i = 1; i < kWidth; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// Loads and stores of `count` <= kWidth elements; missing elements read as 0.
inline Floats load(const float* p, I count) {
  Floats v = {};
  if (count == kWidth) {
    __builtin_memcpy(&v, p, sizeof v);
  } else {
    __builtin_memcpy(&v, p, static_cast<unsigned long>(count) * sizeof(float));
  }
  return v;
}

// `count` values of 16 bits, widened.
inline Words load_bits(const void* p, I count) {
  Halves h = {};
  if (count == kWidth) {
    __builtin_memcpy(&h, p, sizeof h);
  } else {
    __builtin_memcpy(&h, p, static_cast<unsigned long>(count) * sizeof(std::uint16_t));
  }
  return __builtin_convertvector(h, Words);
}

inline void store_bits(void* p, Words bits, I count) {
  const Halves h = __builtin_convertvector(bits, Halves);
  if (count == kWidth) {
    __builtin_memcpy(p, &h, sizeof h);
  } else {
    __builtin_memcpy(p, &h, static_cast<unsigned long>(count) * sizeof(std::uint16_t));
  }
}

inline Floats load(const Bf16* p, I count) { return (Floats)(load_bits(p, count) << 16); }

// Denormals are multiples of 2^-24, and as such integers in the lowest bits of 2^23 + n.
inline Floats load(const F16* p, I count) {
  const Words h = load_bits(p, count), sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  const Words denormal = (Words)(((Floats)(magnitude + 0x4b000000u) - 8388608.0f) * 0x1p-24f);
  const Words normal = (magnitude + (112u << 10)) << 13;
  const Words special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  return (Floats)(sign | (magnitude < 0x0400u ? denormal : magnitude < 0x7c00u ? normal : special));
}

inline void store(float* p, Floats v, I count) {
  if (count == kWidth) {
    __builtin_memcpy(p, &v, sizeof v);
  } else {
    __builtin_memcpy(p, &v, static_cast<unsigned long>(count) * sizeof(float));
  }
}

// Rounds to nearest, ties to even; a NaN becomes the quiet NaN.
inline void store(Bf16* p, Floats v, I count) {
  const Words bits = (Words)v;
  const Words rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const Words nan = Words{} + 0x7fc0u;
  store_bits(p, (v != v) ? nan : rounded, count);
}

// Likewise. Below 2^-14 the sum with 0.5 is rounded where the result is to be.
inline void store(F16* p, Floats v, I count) {
  const Words sign = (Words)v >> 16 & 0x8000u, u = (Words)v & 0x7fffffffu;
  const Words normal = (u - (112u << 23) + 0xfffu + (u >> 13 & 1u)) >> 13;
  const Words tiny = (Words)((Floats)u + 0.5f) - 0x3f000000u;
  const Words infinity = Words{} + 0x7c00u, nan = Words{} + 0x7e00u;
  const Words finite = u < 0x38800000u ? tiny : u < 0x477ff000u ? normal : infinity;
  store_bits(p, sign | (u > 0x7f800000u ? nan : finite), count);
}
