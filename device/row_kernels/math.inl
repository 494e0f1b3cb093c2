// exp by range reduction x = n ln2 + r, |r| <= ln2/2, and a polynomial in r (the coefficients of Cephes' expf, S. Moshier).
// Relative error below 2.5e-7 where the result is a normal number; +inf beyond 88.73, 0 for -inf, NaN for NaN.
TRIDENT_ROW_BODY RowVec exponential(RowVec x) {
  // NaN passes through both bounds; outside them the result is infinite or zero anyway.
  x = larger(broadcast(-120.0f), smaller(broadcast(120.0f), x));
  const RowVec shifted = fma(x, broadcast(1.44269504f), broadcast(12582912.0f));  // 1.5 * 2^23: rounds to an integer
  const RowVec n = shifted - 12582912.0f;
  // ln2 in two parts, the first short enough for n times it to be exact.
  RowVec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  RowVec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(p * r, r, r) + 1.0f;
  return scale_by_power_of_two(p, n);
}

// Below 0.625 an odd polynomial (the coefficients of Cephes' tanhf), beyond it 1 - 2 / (exp(2x) + 1): relative error below 2.5e-7;
// NaN stays NaN.
TRIDENT_ROW_BODY RowVec hyperbolic_tangent(RowVec x) {
  const RowVec square = x * x, magnitude = x < 0.0f ? -x : x;
  RowVec p = broadcast(-5.70498872745e-3f);
  p = fma(p, square, broadcast(2.06390887954e-2f));
  p = fma(p, square, broadcast(-5.37397155531e-2f));
  p = fma(p, square, broadcast(1.33314422036e-1f));
  p = fma(p, square, broadcast(-3.33332819422e-1f));
  const RowVec near_zero = fma(p * square, x, x);
  const RowVec beyond = broadcast(1.0f) - broadcast(2.0f) / (exponential(magnitude + magnitude) + 1.0f);
  return magnitude < 0.625f ? near_zero : x < 0.0f ? -beyond : beyond;
}
