// SSE2. Without a fused multiply-add, fma() rounds twice.
TRIDENT_ROW_BODY HostVec load(const float* p, AllLanes) { return _mm_loadu_ps(p); }
TRIDENT_ROW_BODY void store(float* p, HostVec x, AllLanes) { _mm_storeu_ps(p, x); }
TRIDENT_ROW_BODY HostVec load(const Bf16* p, AllLanes) {
  const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), half));
}
TRIDENT_ROW_BODY void store(Bf16* p, HostVec x, AllLanes) {
  // Sign-extended, because SSE2 packs 32 to 16 bits with signed saturation only.
  const __m128i wide = _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(round_bits(x)), 16), 16);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(wide, wide));
}
TRIDENT_ROW_BODY HostVec fma(HostVec a, HostVec b, HostVec c) { return a * b + c; }
TRIDENT_ROW_BODY HostVec square_root(HostVec x) { return _mm_sqrt_ps(x); }
// The larger (smaller) of a and b; b where either is NaN.
TRIDENT_ROW_BODY HostVec larger(HostVec a, HostVec b) { return _mm_max_ps(a, b); }
TRIDENT_ROW_BODY HostVec smaller(HostVec a, HostVec b) { return _mm_min_ps(a, b); }
// Products of the even 32-bit lanes.
TRIDENT_ROW_BODY U64s multiply_even(U32s a, U32s b) {
  return reinterpret_cast<U64s>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}
