// AVX-512 F, BW, DQ, VL. bf16 is rounded with integers here too: vcvtneps2bf16 treats denormals as zero, and trident::to_bf16 does
// not.
TRIDENT_ROW_BODY __mmask16 mask_of(SomeLanes lanes) { return static_cast<__mmask16>((1u << lanes.count) - 1u); }

TRIDENT_ROW_BODY RowVec load(const float* p, AllLanes) { return _mm512_loadu_ps(p); }
TRIDENT_ROW_BODY RowVec load(const float* p, SomeLanes lanes) { return _mm512_maskz_loadu_ps(mask_of(lanes), p); }
TRIDENT_ROW_BODY void store(float* p, RowVec x, AllLanes) { _mm512_storeu_ps(p, x); }
TRIDENT_ROW_BODY void store(float* p, RowVec x, SomeLanes lanes) { _mm512_mask_storeu_ps(p, mask_of(lanes), x); }
TRIDENT_ROW_BODY RowVec widen(__m256i half) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)); }
TRIDENT_ROW_BODY RowVec load(const Bf16* p, AllLanes) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
TRIDENT_ROW_BODY RowVec load(const Bf16* p, SomeLanes lanes) { return widen(_mm256_maskz_loadu_epi16(mask_of(lanes), p)); }
TRIDENT_ROW_BODY __m256i narrow(RowVec x) { return _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(round_bits(x))); }
TRIDENT_ROW_BODY void store(Bf16* p, RowVec x, AllLanes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
TRIDENT_ROW_BODY void store(Bf16* p, RowVec x, SomeLanes lanes) { _mm256_mask_storeu_epi16(p, mask_of(lanes), narrow(x)); }
TRIDENT_ROW_BODY __m256i to_f16s(RowVec x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
TRIDENT_ROW_BODY RowVec round_to_f16(RowVec x) { return _mm512_cvtph_ps(to_f16s(x)); }
TRIDENT_ROW_BODY RowVec load(const F16* p, AllLanes) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TRIDENT_ROW_BODY RowVec load(const F16* p, SomeLanes lanes) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_of(lanes), p));
}
TRIDENT_ROW_BODY void store(F16* p, RowVec x, AllLanes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_f16s(x)); }
TRIDENT_ROW_BODY void store(F16* p, RowVec x, SomeLanes lanes) { _mm256_mask_storeu_epi16(p, mask_of(lanes), to_f16s(x)); }
TRIDENT_ROW_BODY RowVec first_lanes(RowVec x, RowVec rest, SomeLanes lanes) {
  return _mm512_mask_blend_ps(mask_of(lanes), rest, x);
}

TRIDENT_ROW_BODY RowVec fma(RowVec a, RowVec b, RowVec c) { return _mm512_fmadd_ps(a, b, c); }
TRIDENT_ROW_BODY RowVec square_root(RowVec x) { return _mm512_sqrt_ps(x); }
// The larger (smaller) of a and b; b where either is NaN.
TRIDENT_ROW_BODY RowVec larger(RowVec a, RowVec b) { return _mm512_max_ps(a, b); }
TRIDENT_ROW_BODY RowVec smaller(RowVec a, RowVec b) { return _mm512_min_ps(a, b); }
TRIDENT_ROW_BODY RowVec scale_by_power_of_two(RowVec x, RowVec n) { return _mm512_scalef_ps(x, n); }
// Products of the even 32-bit lanes.
TRIDENT_ROW_BODY U64s multiply_even(U32s a, U32s b) {
  return reinterpret_cast<U64s>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
// 4x4 transposes within each group of four lanes: afterwards w[j] holds, in group q, lane 4q + j of the four vectors.
TRIDENT_ROW_BODY void transpose_quads(RowVec (&w)[4]) {
  const auto a = reinterpret_cast<__m512d>(_mm512_unpacklo_ps(w[0], w[1])),
             b = reinterpret_cast<__m512d>(_mm512_unpackhi_ps(w[0], w[1]));
  const auto c = reinterpret_cast<__m512d>(_mm512_unpacklo_ps(w[2], w[3])),
             d = reinterpret_cast<__m512d>(_mm512_unpackhi_ps(w[2], w[3]));
  w[0] = reinterpret_cast<RowVec>(_mm512_unpacklo_pd(a, c));
  w[1] = reinterpret_cast<RowVec>(_mm512_unpackhi_pd(a, c));
  w[2] = reinterpret_cast<RowVec>(_mm512_unpacklo_pd(b, d));
  w[3] = reinterpret_cast<RowVec>(_mm512_unpackhi_pd(b, d));
}
