// Vectors of kWidth floats, and how they come from memory and go there. Included inside a namespace of the instruction set's name
// and an unnamed one, after kWidth: what an instruction set has no registers for, the compiler takes apart, through memory.

using I = std::int64_t;
typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kWidth)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * kWidth)));
typedef std::int16_t Pairs __attribute__((vector_size(4 * kWidth)));

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

constexpr float kInfinity = __builtin_inff();
constexpr double kLog2E = 1.44269504088896341, kLn2 = 0.693147180559945309;

inline I smaller(I a, I b) { return a < b ? a : b; }
inline I larger(I a, I b) { return a > b ? a : b; }
inline I up_to_multiple(I a, I of) { return (a + of - 1) / of * of; }
inline I within(I a, I end) { return larger(0, smaller(a, end)); }

inline Floats broadcast(float x) { return x - Floats{}; }
// Its bits may be anything, pairs of bf16 for instance.
inline Floats broadcast_word(const float* p) {
  std::int32_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return (Floats)(bits - Ints{});
}
inline Floats largest(Floats a, Floats b) { return a > b ? a : b; }

// 2^x: degree-6 polynomial (Cephes' coefficients), relative error below 3e-7, for x < 128; 0 below -126.5, NaN stays NaN.
inline Floats power_of_two(Floats x) {
  const Floats y = largest(broadcast(-127.0f), x);
  const Floats magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, in the lowest bits
  const Floats shifted = y + magic;
  const Floats r = y - (shifted - magic);
  Floats p = r * 1.535336188319500e-4f + 1.339887440266574e-3f;
  p = p * r + 9.618437357674640e-3f;
  p = p * r + 5.550332471162809e-2f;
  p = p * r + 2.402264791363012e-1f;
  p = p * r + 6.931472028550421e-1f;
  p = p * r + 1.0f;
  return p * (Floats)(((Words)shifted << 23) + 0x3f800000u);
}

// Below 0.625 an odd polynomial (the coefficients of Cephes' tanhf, S. Moshier), beyond it 1 - 2 / (exp(2x) + 1).
inline Floats hyperbolic_tangent(Floats x) {
  const Floats square = x * x, magnitude = x < 0.0f ? -x : x;
  Floats p = square * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const Floats near_zero = p * square * x + x;
  const Floats beyond =
      1.0f - 2.0f / (power_of_two(largest(broadcast(-40.0f), -magnitude) * static_cast<float>(-2 * kLog2E)) + 1.0f);
  return magnitude < 0.625f ? near_zero : x < 0.0f ? -beyond : beyond;
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

template <I... i>
constexpr Ints counted(Indices<i...>) {
  return Ints{static_cast<std::int32_t>(i)...};
}

// Takes the blocks of d x d elements beside the diagonal for one another.
template <I d, I... i>
__attribute__((always_inline)) inline void exchange(Floats& a, Floats& b, Indices<i...>) {
  const Floats left = __builtin_shufflevector(a, b, ((i & d) == 0 ? i : kWidth + i - d)...);
  b = __builtin_shufflevector(a, b, ((i & d) == 0 ? i + d : kWidth + i)...);
  a = left;
}
// Element j of v[i] and element i of v[j] for one another, of kWidth vectors, from d = kWidth / 2 on.
template <I d>
__attribute__((always_inline)) inline void transpose(Floats* v) {
#pragma GCC unroll 16
  for (I i = 0; i < kWidth; ++i) {
    if ((i & d) == 0) exchange<d>(v[i], v[i + d], UpTo<kWidth>());
  }
  if constexpr (d > 1) transpose<d / 2>(v);
}

// Element i of the lower half and i of the upper, and again of what that makes.
template <class Vector, class Both, I... i>
__attribute__((always_inline)) inline float fold_halves(Vector v, Both both, Indices<i...>) {
  constexpr I kHalf = sizeof...(i);
  const auto folded = both(__builtin_shufflevector(v, v, i...), __builtin_shufflevector(v, v, (i + kHalf)...));
  if constexpr (kHalf == 2) {
    return both(folded, __builtin_shufflevector(folded, folded, 1, 0))[0];
  } else {
    return fold_halves(folded, both, UpTo<kHalf / 2>());
  }
}

inline float sum_of(Floats v) {
  return fold_halves(v, [](auto a, auto b) { return a + b; }, UpTo<kWidth / 2>());
}
inline float largest_of(Floats v) {
  return fold_halves(v, [](auto a, auto b) { return a > b ? a : b; }, UpTo<kWidth / 2>());
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
