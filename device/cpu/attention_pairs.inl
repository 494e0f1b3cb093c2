// As attention_floats.inl, whose names these are: words of two bf16, which AVX512-BF16 multiplies and adds to one f32.
#include "device/cpu/wide_vectors.inl"

constexpr I kPack = 2;

inline Floats multiply_add(Floats sum, Floats a, Floats b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

template <class T>
__attribute__((always_inline)) inline void store_rounded(T* p, Floats v, I count) {
  if constexpr (__is_same(T, Bf16)) {
    const __m256bh rounded = _mm512_cvtneps_pbh((__m512)v);
    if (count == kWidth)
      __builtin_memcpy(p, &rounded, sizeof rounded);
    else
      __builtin_memcpy(p, &rounded, static_cast<unsigned long>(count) * sizeof(Bf16));
  } else {
    store(p, v, count);
  }
}

inline void pack_rows(float* to, I words, const Bf16* x, I x_row, I rows, I width) {
  for (I r = 0; r < rows; ++r, x += x_row, to += words) {
    for (I c = 0; c < words; c += kWidth) {
      const I left = width - kPack * c;
      Floats v = {};
      if (left >= kPack * kWidth)
        __builtin_memcpy(&v, x + kPack * c, sizeof v);
      else if (left > 0)
        __builtin_memcpy(&v, x + kPack * c, static_cast<unsigned long>(left) * sizeof(Bf16));
      store(to + c, v, kWidth);
    }
  }
}
inline void pack_across(float* to, I columns, const Bf16* x, I x_row, I rows, I width) {
  for (I r = 0; r < rows; r += kPack, x += kPack * x_row, to += columns) {
    for (I c = 0; c < columns; c += kWidth) {
      const I left = width - c, count = left < 0 ? 0 : left < kWidth ? left : kWidth;
      const Words first = load_bits(x + c, count), second = r + 1 < rows ? load_bits(x + x_row + c, count) : Words{};
      store(to + c, (Floats)(first | second << 16), kWidth);
    }
  }
}

// Weights are rounded to 8 bits: a polynomial of degree 4 (minimax for relative error, 3e-6) and the first number are enough.
inline Floats weight_of(Floats x, Floats) {
  constexpr int kLessFloor = 9;  // quietly
  const Floats r = (Floats)_mm512_reduce_ps((__m512)x, kLessFloor);
  Floats p = r * 1.3534168e-2f + 5.2011460e-2f;
  p = p * r + 2.4144275e-1f;
  p = p * r + 6.9300383e-1f;
  p = p * r + 1.0000026f;
  return (Floats)_mm512_scalef_ps((__m512)p, (__m512)x);  // times 2 to the power of the floor
}

inline void store_in_row(float* to, const Floats* v) { store(to, (Floats)_mm512_cvtne2ps_pbh(v[1], v[0]), kWidth); }

template <I... i>
__attribute__((always_inline)) inline Floats interleaved(Pairs v, Indices<i...>) {
  return (Floats)__builtin_shufflevector(v, v, (i / 2 + i % 2 * kWidth)...);
}
inline void store_across(float* to, const Floats* v) {
  store(to, interleaved((Pairs)_mm512_cvtne2ps_pbh(v[1], v[0]), UpTo<kPack * kWidth>()), kWidth);
}

template <class F>
void with_element(RowType, F f) {
  f.template operator()<Bf16>();
}
