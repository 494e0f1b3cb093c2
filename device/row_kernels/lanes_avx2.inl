// AVX2, FMA and F16C.
TRIDENT_ROW_BODY RowVec load(const float* p, AllLanes) { return _mm256_loadu_ps(p); }
TRIDENT_ROW_BODY void store(float* p, RowVec x, AllLanes) { _mm256_storeu_ps(p, x); }
TRIDENT_ROW_BODY RowVec load(const Bf16* p, AllLanes) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
TRIDENT_ROW_BODY void store(Bf16* p, RowVec x, AllLanes) {
  const __m256i wide = reinterpret_cast<__m256i>(round_bits(x));
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
TRIDENT_ROW_BODY __m128i to_f16s(RowVec x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
TRIDENT_ROW_BODY RowVec round_to_f16(RowVec x) { return _mm256_cvtph_ps(to_f16s(x)); }
TRIDENT_ROW_BODY RowVec load(const F16* p, AllLanes) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TRIDENT_ROW_BODY void store(F16* p, RowVec x, AllLanes) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_f16s(x)); }
TRIDENT_ROW_BODY RowVec fma(RowVec a, RowVec b, RowVec c) { return _mm256_fmadd_ps(a, b, c); }
TRIDENT_ROW_BODY RowVec square_root(RowVec x) { return _mm256_sqrt_ps(x); }
// The larger (smaller) of a and b; b where either is NaN.
TRIDENT_ROW_BODY RowVec larger(RowVec a, RowVec b) { return _mm256_max_ps(a, b); }
TRIDENT_ROW_BODY RowVec smaller(RowVec a, RowVec b) { return _mm256_min_ps(a, b); }
// Products of the even 32-bit lanes.
TRIDENT_ROW_BODY U64s multiply_even(U32s a, U32s b) {
  return reinterpret_cast<U64s>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
// 4x4 transposes within each group of four lanes: afterwards w[j] holds, in group q, lane 4q + j of the four vectors.
TRIDENT_ROW_BODY void transpose_quads(RowVec (&w)[4]) {
  const auto a = reinterpret_cast<__m256d>(_mm256_unpacklo_ps(w[0], w[1])),
             b = reinterpret_cast<__m256d>(_mm256_unpackhi_ps(w[0], w[1]));
  const auto c = reinterpret_cast<__m256d>(_mm256_unpacklo_ps(w[2], w[3])),
             d = reinterpret_cast<__m256d>(_mm256_unpackhi_ps(w[2], w[3]));
  w[0] = reinterpret_cast<RowVec>(_mm256_unpacklo_pd(a, c));
  w[1] = reinterpret_cast<RowVec>(_mm256_unpackhi_pd(a, c));
  w[2] = reinterpret_cast<RowVec>(_mm256_unpacklo_pd(b, d));
  w[3] = reinterpret_cast<RowVec>(_mm256_unpackhi_pd(b, d));
}
