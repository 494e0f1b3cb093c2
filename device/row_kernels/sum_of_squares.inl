// Sum of the squares of 64 floats. Squares of floats are exact in f64 and the eight running sums are the same on every instruction
// set, so the bits are too.
TRIDENT_ROW_BODY double sum_of_64_squares(const float* x) {
  constexpr int kDoubles = kLanes / 2, kVectors = 8 / kDoubles;
  typedef float Half __attribute__((vector_size(4 * kDoubles)));
  F64s sums[kVectors] = {};
  for (int i = 0; i < 64; i += 8)
    for (int k = 0; k < kVectors; ++k) {
      Half narrow;
      __builtin_memcpy(&narrow, x + i + k * kDoubles, sizeof(narrow));
      const F64s wide = __builtin_convertvector(narrow, F64s);
      sums[k] += wide * wide;
    }
  double s[8];
  __builtin_memcpy(s, sums, sizeof(s));
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

TRIDENT_ROW_KERNEL sum_squares(double* out, const float* x, I count) {
  I i = 0;
  for (; i + 64 <= count; i += 64) *out++ = sum_of_64_squares(x + i);
  if (i == count) return;
  float last[64] = {};
  copy_bytes(last, x + i, (count - i) * 4);
  *out = sum_of_64_squares(last);
}
