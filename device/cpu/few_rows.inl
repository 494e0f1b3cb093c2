// Bodies of few_rows.h. Included by one source file per instruction set inside a namespace named after it and an unnamed one, after
// kTileColumns and what wide_vectors.inl needs.
//
// Every result has one vector of running sums over k, whatever the tile it is made in. Tiles are arrays whose indices are constants
// (Indices of wide_vectors.inl): an array that loops run over is kept in memory, not in registers.
#include "device/cpu/wide_vectors.inl"

constexpr I kTileRows = 4;
// Elements of a row at a time: a cache line of 16-bit weights, two of f32.
constexpr I kStep = 32;

// Asks for the step that the tile after this one begins with here. No pointer: it may lie behind the end.
template <class T, I... c>
__attribute__((always_inline)) inline void ask_ahead(const T* w, I w_stride, Indices<c...>) {
  constexpr I kStepBytes = kStep * static_cast<I>(sizeof(T));
  // One row of w at a time is read as it lies, and then a distance that does not depend on k is best.
  const I ahead = sizeof...(c) == 1 ? 4096 : static_cast<I>(sizeof...(c)) * w_stride * static_cast<I>(sizeof(T));
  const auto ask = [&](I column) __attribute__((always_inline)) {
    const auto address = reinterpret_cast<unsigned long>(w + column * w_stride) + static_cast<unsigned long>(ahead);
    for (I byte = 0; byte < kStepBytes; byte += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(address + static_cast<unsigned long>(byte)));
  };
  (ask(c), ...);
}

// sums[r][c] += x[r] * w[c], kWidth elements of each.
template <class T, I... r, I... c>
__attribute__((always_inline)) inline void add_products(Floats* sums, const float* x, I x_stride, const T* w, I w_stride,
                                                        Indices<r...>, Indices<c...>) {
  constexpr I kColumns = sizeof...(c);
  const Floats weights[kColumns] = {load(w + c * w_stride, kWidth)...};
  const auto add_row = [&](I row) __attribute__((always_inline)) {
    const Floats values = load(x + row * x_stride, kWidth);
    ((sums[row * kColumns + c] += values * weights[c]), ...);
  };
  (add_row(r), ...);
}

template <class T, I... r, I... c, I... v>
__attribute__((always_inline)) inline void add_step(Floats* sums, const float* x, I x_stride, const T* w, I w_stride,
                                                    Indices<r...> rows, Indices<c...> columns, Indices<v...>) {
  (add_products(sums, x + v * kWidth, x_stride, w + v * kWidth, w_stride, rows, columns), ...);
}

// Rows r of x with rows c of w.
template <class T, I... r, I... c>
void dot_tile(float* out, I out_stride, const float* x, const T* w, I k, Indices<r...> rows, Indices<c...> columns) {
  constexpr I kRows = sizeof...(r), kColumns = sizeof...(c);
  constexpr UpTo<kStep / kWidth> kVectors;
  Floats sums[kRows * kColumns] = {};
  I i = 0;
  for (; i + kStep <= k; i += kStep) {
    ask_ahead(w + i, k, columns);
    add_step(sums, x + i, k, w + i, k, rows, columns, kVectors);
  }
  if (i < k) {
    const auto left = static_cast<unsigned long>(k - i);
    T last_w[kColumns * kStep] = {};
    float last_x[kRows * kStep] = {};
    for (I column = 0; column < kColumns; ++column)
      __builtin_memcpy(last_w + column * kStep, w + column * k + i, left * sizeof(T));
    for (I row = 0; row < kRows; ++row) __builtin_memcpy(last_x + row * kStep, x + row * k + i, left * sizeof(float));
    add_step(sums, last_x, kStep, last_w, kStep, rows, columns, kVectors);
  }
  const auto store_row = [&](I row) __attribute__((always_inline)) {
    ((out[row * out_stride + c] = sum_of(sums[row * kColumns + c])), ...);
  };
  (store_row(r), ...);
}

// `rows` of at most R rows of x with n rows of w. A single row is bound by memory alone, and few rows of w at a time are read
// faster.
template <I R, class T>
void dot_strip(float* out, I out_stride, const float* x, I rows, const T* w, I n, I k) {
  if constexpr (R > 1) {
    if (rows < R) return dot_strip<R - 1>(out, out_stride, x, rows, w, n, k);
  }
  constexpr I kColumns = R == 1 ? 2 : kTileColumns;
  I c = 0;
  for (; c + kColumns <= n; c += kColumns) dot_tile(out + c, out_stride, x, w + c * k, k, UpTo<R>(), UpTo<kColumns>());
  for (; c < n; ++c) dot_tile(out + c, out_stride, x, w + c * k, k, UpTo<R>(), UpTo<1>());
}

template <class T>
void times_transposed_of(float* out, I out_stride, const float* x, I rows, const T* w, I n, I k) {
  // A strip of w that stays in the cache while the rows go over it.
  const I tiles = (1 << 15) / (k > 0 ? k : 1) / kTileColumns + 1, strip = rows > kTileRows ? tiles * kTileColumns : n;
  for (I first = 0; first < n; first += strip) {
    const I columns = n - first < strip ? n - first : strip;
    for (I r = 0; r < rows; r += kTileRows) {
      const I count = rows - r < kTileRows ? rows - r : kTileRows;
      dot_strip<kTileRows>(out + r * out_stride + first, out_stride, x + r * k, count, w + first * k, columns, k);
    }
  }
}

// One row of x times kWidth (or `count`) columns of w: one running sum for each result, over k in order.
template <class T>
void column_block(float* out, const float* x, const T* w, I w_stride, I k, I count, bool accumulate) {
  Floats sum = accumulate ? load(out, count) : Floats{};
  for (I i = 0; i < k; ++i) sum += broadcast(x[i]) * load(w + i * w_stride, count);
  store(out, sum, count);
}

template <class T>
void times_of(float* out, I out_stride, const float* x, I rows, const T* w, I w_stride, I n, I k, bool accumulate) {
  for (I r = 0; r < rows; ++r) {
    for (I c = 0; c < n; c += kWidth)
      column_block(out + r * out_stride + c, x + r * k, w + c, w_stride, k, n - c < kWidth ? n - c : kWidth, accumulate);
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
