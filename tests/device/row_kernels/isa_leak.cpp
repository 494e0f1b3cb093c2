// Compiled for AVX2 under a name that does not say so: scripts/check_isa must object.
namespace trident {

void scale_in_common_code(float* x, float factor) {
  for (int i = 0; i < 64; ++i) x[i] *= factor;
}

}  // namespace trident
