// AVX2 and FMA.
TRIDENT_ROW_BODY HostVec load(const float* p, AllLanes) { return _mm256_loadu_ps(p); }
TRIDENT_ROW_BODY void store(float* p, HostVec x, AllLanes) { _mm256_storeu_ps(p, x); }
TRIDENT_ROW_BODY HostVec load(const Bf16* p, AllLanes) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
TRIDENT_ROW_BODY void store(Bf16* p, HostVec x, AllLanes) {
  const __m256i wide = reinterpret_cast<__m256i>(round_bits(x));
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
TRIDENT_ROW_BODY HostVec fma(HostVec a, HostVec b, HostVec c) { return _mm256_fmadd_ps(a, b, c); }
TRIDENT_ROW_BODY HostVec square_root(HostVec x) { return _mm256_sqrt_ps(x); }
// The larger (smaller) of a and b; b where either is NaN.
TRIDENT_ROW_BODY HostVec larger(HostVec a, HostVec b) { return _mm256_max_ps(a, b); }
TRIDENT_ROW_BODY HostVec smaller(HostVec a, HostVec b) { return _mm256_min_ps(a, b); }
// Products of the even 32-bit lanes.
TRIDENT_ROW_BODY U64s multiply_even(U32s a, U32s b) {
  return reinterpret_cast<U64s>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
