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
// The f16 nearest to each lane, and back; as trident::to_f16() and to_float(), without branches.
TRIDENT_ROW_BODY U32s f16_bits(RowVec x) {
  const U32s sign = bits_of(x) >> 16 & 0x8000u, u = bits_of(x) & 0x7fffffffu;
  const U32s normal = (u - (112u << 23) + 0xfffu + (u >> 13 & 1u)) >> 13;
  const U32s tiny = bits_of(from_bits(u) + 0.5f) - 0x3f000000u;  // below 2^-14: rounded as the sum is
  const U32s finite = u < 0x38800000u ? tiny : u < 0x477ff000u ? normal : U32s{} + 0x7c00u;
  return sign | (u > 0x7f800000u ? 0x7e00u | (u >> 13 & 0x3ffu) : finite);
}
TRIDENT_ROW_BODY RowVec from_f16_bits(U32s h) {
  const U32s sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  const U32s tiny = bits_of(from_bits(magnitude + 0x4b000000u) - 8388608.0f);  // the integer as a float
  const U32s denormal = bits_of(from_bits(tiny) * 0x1p-24f), normal = (magnitude + (112u << 10)) << 13;
  const U32s special = 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? U32s{} + 0x00400000u : U32s{});
  return from_bits(sign | (magnitude < 0x0400u ? denormal : magnitude < 0x7c00u ? normal : special));
}
TRIDENT_ROW_BODY RowVec round_to_f16(RowVec x) { return from_f16_bits(f16_bits(x)); }
TRIDENT_ROW_BODY RowVec load(const F16* p, AllLanes) {
  const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return from_f16_bits(reinterpret_cast<U32s>(_mm_unpacklo_epi16(half, _mm_setzero_si128())));
}
TRIDENT_ROW_BODY void store(F16* p, RowVec x, AllLanes) {
  const __m128i wide = _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(f16_bits(x)), 16), 16);
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
