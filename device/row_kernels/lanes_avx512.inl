// AVX-512 F, BW, DQ, VL. bf16 is rounded with integers here too: vcvtneps2bf16 treats denormals as zero, and trident::to_bf16 does not.
TRIDENT_ROW_BODY __mmask16 mask_of(SomeLanes lanes) { return static_cast<__mmask16>((1u << lanes.count) - 1u); }

TRIDENT_ROW_BODY HostVec load(const float* p, AllLanes) { return _mm512_loadu_ps(p); }
TRIDENT_ROW_BODY HostVec load(const float* p, SomeLanes lanes) { return _mm512_maskz_loadu_ps(mask_of(lanes), p); }
TRIDENT_ROW_BODY void store(float* p, HostVec x, AllLanes) { _mm512_storeu_ps(p, x); }
TRIDENT_ROW_BODY void store(float* p, HostVec x, SomeLanes lanes) { _mm512_mask_storeu_ps(p, mask_of(lanes), x); }
TRIDENT_ROW_BODY HostVec widen(__m256i half) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)); }
TRIDENT_ROW_BODY HostVec load(const Bf16* p, AllLanes) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
TRIDENT_ROW_BODY HostVec load(const Bf16* p, SomeLanes lanes) { return widen(_mm256_maskz_loadu_epi16(mask_of(lanes), p)); }
TRIDENT_ROW_BODY __m256i narrow(HostVec x) { return _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(round_bits(x))); }
TRIDENT_ROW_BODY void store(Bf16* p, HostVec x, AllLanes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
TRIDENT_ROW_BODY void store(Bf16* p, HostVec x, SomeLanes lanes) { _mm256_mask_storeu_epi16(p, mask_of(lanes), narrow(x)); }
TRIDENT_ROW_BODY HostVec first_lanes(HostVec x, HostVec rest, SomeLanes lanes) { return _mm512_mask_blend_ps(mask_of(lanes), rest, x); }

TRIDENT_ROW_BODY HostVec fma(HostVec a, HostVec b, HostVec c) { return _mm512_fmadd_ps(a, b, c); }
TRIDENT_ROW_BODY HostVec square_root(HostVec x) { return _mm512_sqrt_ps(x); }
// The larger (smaller) of a and b; b where either is NaN.
TRIDENT_ROW_BODY HostVec larger(HostVec a, HostVec b) { return _mm512_max_ps(a, b); }
TRIDENT_ROW_BODY HostVec smaller(HostVec a, HostVec b) { return _mm512_min_ps(a, b); }
TRIDENT_ROW_BODY HostVec scale_by_power_of_two(HostVec x, HostVec n) { return _mm512_scalef_ps(x, n); }
// Products of the even 32-bit lanes.
TRIDENT_ROW_BODY U64s multiply_even(U32s a, U32s b) {
  return reinterpret_cast<U64s>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
