// Bodies of few_rows.h. Included by one source file per instruction set inside a namespace named after it and an unnamed one, after
// wide_vectors.inl.

// R rows of x times C rows of w. Each of the R * C sums is 16 running sums over k, added in a fixed order at the end.
template <I R, I C, class T>
void dot_block(float* out, I out_stride, const float* x, const T* w, I k) {
  Floats sum[R][C] = {};
  const auto step = [&](I i, I count) __attribute__((always_inline)) {
    Floats weights[C];
    for (I c = 0; c < C; ++c) weights[c] = load(w + c * k + i, count);
    for (I r = 0; r < R; ++r) {
      const Floats values = load(x + r * k + i, count);
      for (I c = 0; c < C; ++c) sum[r][c] += values * weights[c];
    }
  };
  I i = 0;
  for (; i + kWidth <= k; i += kWidth) step(i, kWidth);
  if (i < k) step(i, k - i);
  for (I r = 0; r < R; ++r)
    for (I c = 0; c < C; ++c) out[r * out_stride + c] = sum_of(sum[r][c]);
}

template <I R, class T>
void dot_rows(float* out, I out_stride, const float* x, const T* w, I n, I k) {
  I c = 0;
  for (; c + 4 <= n; c += 4) dot_block<R, 4>(out + c, out_stride, x, w + c * k, k);
  for (; c < n; ++c) dot_block<R, 1>(out + c, out_stride, x, w + c * k, k);
}

template <class T>
void times_transposed_of(float* out, I out_stride, const float* x, I rows, const T* w, I n, I k) {
  // A strip of w that stays in the cache while the rows go over it.
  const I strip = rows > 4 ? (1 << 15) / (k > 0 ? k : 1) / 4 * 4 + 4 : n;
  for (I first = 0; first < n; first += strip) {
    const I columns = n - first < strip ? n - first : strip;
    const T* part = w + first * k;
    I r = 0;
    for (; r + 4 <= rows; r += 4) dot_rows<4>(out + r * out_stride + first, out_stride, x + r * k, part, columns, k);
    if (rows - r == 3) dot_rows<3>(out + r * out_stride + first, out_stride, x + r * k, part, columns, k);
    if (rows - r == 2) dot_rows<2>(out + r * out_stride + first, out_stride, x + r * k, part, columns, k);
    if (rows - r == 1) dot_rows<1>(out + r * out_stride + first, out_stride, x + r * k, part, columns, k);
  }
}

// R rows of x times kWidth (or `count`) columns of w: one running sum for each result, over k in order.
template <I R, class T>
void column_block(float* out, I out_stride, const float* x, const T* w, I w_stride, I k, I count, bool accumulate) {
  Floats sum[R];
  for (I r = 0; r < R; ++r) sum[r] = accumulate ? load(out + r * out_stride, count) : Floats{};
  for (I i = 0; i < k; ++i) {
    const Floats weights = load(w + i * w_stride, count);
    for (I r = 0; r < R; ++r) sum[r] += broadcast(x[r * k + i]) * weights;
  }
  for (I r = 0; r < R; ++r) store(out + r * out_stride, sum[r], count);
}

template <class T>
void times_of(float* out, I out_stride, const float* x, I rows, const T* w, I w_stride, I n, I k, bool accumulate) {
  for (I r = 0; r < rows; ++r) {
    for (I c = 0; c < n; c += kWidth)
      column_block<1>(out + r * out_stride + c, out_stride, x + r * k, w + c, w_stride, k, n - c < kWidth ? n - c : kWidth,
                      accumulate);
  }
}

void times_transposed(RowType t, float* out, I out_stride, const float* x, I rows, const void* w, I n, I k) {
  if (t == RowType::kF32) times_transposed_of(out, out_stride, x, rows, static_cast<const float*>(w), n, k);
  if (t == RowType::kBF16) times_transposed_of(out, out_stride, x, rows, static_cast<const Bf16*>(w), n, k);
  if (t == RowType::kF16) times_transposed_of(out, out_stride, x, rows, static_cast<const F16*>(w), n, k);
}

void times(RowType t, float* out, I out_stride, const float* x, I rows, const void* w, I w_stride, I n, I k, bool accumulate) {
  if (t == RowType::kF32) times_of(out, out_stride, x, rows, static_cast<const float*>(w), w_stride, n, k, accumulate);
  if (t == RowType::kBF16) times_of(out, out_stride, x, rows, static_cast<const Bf16*>(w), w_stride, n, k, accumulate);
  if (t == RowType::kF16) times_of(out, out_stride, x, rows, static_cast<const F16*>(w), w_stride, n, k, accumulate);
}

constexpr FewRows make_few_rows() { return {times_transposed, times}; }
