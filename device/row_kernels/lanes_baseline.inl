// SSE2. Without a fused multiply-add, fma() rounds twice.
TRIDENT_ROW_BODY RowVec load(const float* p, AllLanes) { return _mm_loadu_ps(p); }
TRIDENT_ROW_BODY void store(float* p, RowVec x, AllLanes) { _mm_storeu_ps(p, x); }
TRIDENT_ROW_BODY RowVec load(const Bf16* p, AllLanes) {
  const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), half));
}
TRIDENT_ROW_BODY void store(Bf16* p, RowVec x, AllLanes) {
  // Sign-extended, because SSE2 packs 32 to 16 bits with signed saturation only.
  const __m128i wide = _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(round_bits(x)), 16), 16);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(wide, wide));
}
TRIDENT_ROW_BODY RowVec fma(RowVec a, RowVec b, RowVec c) { return a * b + c; }
TRIDENT_ROW_BODY RowVec square_root(RowVec x) { return _mm_sqrt_ps(x); }
// The larger (smaller) of a and b; b where either is NaN.
TRIDENT_ROW_BODY RowVec larger(RowVec a, RowVec b) { return _mm_max_ps(a, b); }
TRIDENT_ROW_BODY RowVec smaller(RowVec a, RowVec b) { return _mm_min_ps(a, b); }
// Products of the even 32-bit lanes.
TRIDENT_ROW_BODY U64s multiply_even(U32s a, U32s b) {
  return reinterpret_cast<U64s>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}
// 4x4 transposes within each group of four lanes: afterwards w[j] holds, in group q, lane 4q + j of the four vectors.
TRIDENT_ROW_BODY void transpose_quads(RowVec (&w)[4]) {
  const auto a = reinterpret_cast<__m128d>(_mm_unpacklo_ps(w[0], w[1])), b = reinterpret_cast<__m128d>(_mm_unpackhi_ps(w[0], w[1]));
  const auto c = reinterpret_cast<__m128d>(_mm_unpacklo_ps(w[2], w[3])), d = reinterpret_cast<__m128d>(_mm_unpackhi_ps(w[2], w[3]));
  w[0] = reinterpret_cast<RowVec>(_mm_unpacklo_pd(a, c));
  w[1] = reinterpret_cast<RowVec>(_mm_unpackhi_pd(a, c));
  w[2] = reinterpret_cast<RowVec>(_mm_unpacklo_pd(b, d));
  w[3] = reinterpret_cast<RowVec>(_mm_unpackhi_pd(b, d));
}
