// Bodies of attention_rows.h on vectors of 16 floats, which the compiler maps to what the instruction set has. Included by one
// source file per instruction set inside a namespace named after it and an unnamed one: each file keeps its own code, and
// scripts/check_isa can tell what belongs where.

const Ints kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

inline I smaller(I a, I b) { return a < b ? a : b; }

// Columns first .. end - 1; first <= end.
struct Seen {
  I first, end;
};
inline Seen seen_columns(const ScoreTile& tile, I row) {
  const I visible = tile.first_visible + row * tile.step;
  const I end = visible < 0 ? 0 : smaller(visible, tile.columns);
  if (tile.first_key == nullptr) return {0, end};
  const I first = tile.first_key[row] - tile.key_position;
  return {first < 0 ? 0 : smaller(first, end), end};
}

template <class T>
void zero_range(T* row, I first, I end) {
  for (I c = first; c < end; ++c) row[c] = T{};
}

// Below 0.625 an odd polynomial (the coefficients of Cephes' tanhf, S. Moshier), beyond it 1 - 2 / (exp(2x) + 1).
inline Floats hyperbolic_tangent(Floats x) {
  const Floats square = x * x, magnitude = x < 0.0f ? -x : x;
  Floats p = square * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const Floats near_zero = p * square * x + x;
  const Floats beyond = 1.0f - 2.0f / (exponential(magnitude + magnitude) + 1.0f);
  return magnitude < 0.625f ? near_zero : x < 0.0f ? -beyond : beyond;
}

inline Floats bounded(Floats score, float softcap) { return hyperbolic_tangent(score / softcap) * softcap; }

template <bool kBounded, class T>
void softmax_step_of(const ScoreTile& tile, const float* scores, T* p, float* row_max, float* row_sum, float* acc, I head_dim) {
  for (I r = 0; r < tile.rows; ++r) {
    const float* s = scores + r * tile.columns;
    T* p_row = p + r * tile.columns;
    const Seen seen = seen_columns(tile, r);
    if (seen.first == seen.end) {
      zero_range(p_row, 0, tile.columns);
      continue;
    }
    Floats m = broadcast(-kInfinity);
    for (I c = seen.first; c < seen.end; c += kWidth) {
      const I count = smaller(kWidth, seen.end - c);
      const Floats v = load(s + c, count) * tile.scale;
      m = largest(count == kWidth ? v : (kLane < static_cast<std::int32_t>(count) ? v : m), m);
    }
    const float old_max = row_max[r];
    float tile_max = largest_of(m);
    if constexpr (kBounded) tile_max = bounded(broadcast(tile_max), tile.softcap)[0];
    const float new_max = tile_max > old_max ? tile_max : old_max;
    zero_range(p_row, 0, seen.first);
    Floats sum = {};
    for (I c = seen.first; c < seen.end; c += kWidth) {
      const I count = smaller(kWidth, seen.end - c);
      Floats score = load(s + c, count) * tile.scale;
      if constexpr (kBounded) score = bounded(score, tile.softcap);
      Floats e = exponential(score - new_max);
      if (count != kWidth) e = kLane < static_cast<std::int32_t>(count) ? e : Floats{};
      sum += e;
      store(p_row + c, e, count);
    }
    zero_range(p_row, seen.end, tile.columns);
    row_max[r] = new_max;
    const float correction = exponential(broadcast(old_max - new_max))[0];
    row_sum[r] = row_sum[r] * correction + sum_of(sum);
    if (correction == 1.0f) continue;
    for (I d = 0; d < head_dim; d += kWidth) {
      const I count = smaller(kWidth, head_dim - d);
      store(acc + r * head_dim + d, load(acc + r * head_dim + d, count) * correction, count);
    }
  }
}

template <class T>
void softmax_finish_of(T* out, float* lse, const float* acc, const float* row_max, const float* row_sum, I rows, I head_dim) {
  for (I r = 0; r < rows; ++r) {
    const bool saw_nothing = row_sum[r] == 0.0f;
    const float factor = saw_nothing ? 0.0f : 1.0f / row_sum[r];
    lse[r] = saw_nothing ? -kInfinity : row_max[r] + __builtin_logf(row_sum[r]);
    for (I d = 0; d < head_dim; d += kWidth) {
      const I count = smaller(kWidth, head_dim - d);
      store(out + r * head_dim + d, load(acc + r * head_dim + d, count) * factor, count);
    }
  }
}

template <class T>
void delta_of(float* delta, const T* d_out, const T* out, I rows, I head_dim) {
  for (I r = 0; r < rows; ++r) {
    Floats sum = {};
    for (I d = 0; d < head_dim; d += kWidth) {
      const I count = smaller(kWidth, head_dim - d);
      sum += load(d_out + r * head_dim + d, count) * load(out + r * head_dim + d, count);
    }
    delta[r] = sum_of(sum);
  }
}

template <bool kBounded, class T>
void softmax_backward_of(const ScoreTile& tile, const float* scores, const float* d_p, T* p, T* d_s, const float* lse,
                         const float* delta) {
  for (I r = 0; r < tile.rows; ++r) {
    const I row = r * tile.columns;
    const Seen seen = seen_columns(tile, r);
    zero_range(p + row, 0, seen.first);
    zero_range(d_s + row, 0, seen.first);
    for (I c = seen.first; c < seen.end; c += kWidth) {
      const I count = smaller(kWidth, seen.end - c);
      Floats score = load(scores + row + c, count) * tile.scale, part = {};
      if constexpr (kBounded) part = hyperbolic_tangent(score / tile.softcap), score = part * tile.softcap;
      const Floats e = exponential(score - lse[r]);
      Floats d = e * (load(d_p + row + c, count) - delta[r]) * tile.scale;
      if constexpr (kBounded) d *= 1.0f - part * part;
      store(p + row + c, e, count);
      store(d_s + row + c, d, count);
    }
    zero_range(p + row, seen.end, tile.columns);
    zero_range(d_s + row, seen.end, tile.columns);
  }
}

template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}
template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}

// f.operator()<element type>().
template <class F>
void with_type(RowType t, F f) {
  if (t == RowType::kF32)
    f.template operator()<float>();
  else if (t == RowType::kBF16)
    f.template operator()<Bf16>();
  else
    f.template operator()<F16>();
}

AttentionRows make_attention_rows() {
  AttentionRows rows;
  rows.softmax_step = [](RowType t, const ScoreTile& tile, const float* scores, void* p, float* row_max, float* row_sum, float* acc,
                         I head_dim) {
    with_type(t, [&]<class T> {
      const auto step = tile.softcap > 0.0f ? softmax_step_of<true, T> : softmax_step_of<false, T>;
      step(tile, scores, as<T>(p), row_max, row_sum, acc, head_dim);
    });
  };
  rows.softmax_finish = [](RowType t, void* out, float* lse, const float* acc, const float* row_max, const float* row_sum, I n,
                           I head_dim) {
    with_type(t, [&]<class T> { softmax_finish_of(as<T>(out), lse, acc, row_max, row_sum, n, head_dim); });
  };
  rows.delta = [](RowType t, float* delta, const void* d_out, const void* out, I n, I head_dim) {
    with_type(t, [&]<class T> { delta_of(delta, as<T>(d_out), as<T>(out), n, head_dim); });
  };
  rows.softmax_backward = [](RowType t, const ScoreTile& tile, const float* scores, const float* d_p, void* p, void* d_s,
                             const float* lse, const float* delta) {
    with_type(t, [&]<class T> {
      const auto backward = tile.softcap > 0.0f ? softmax_backward_of<true, T> : softmax_backward_of<false, T>;
      backward(tile, scores, d_p, as<T>(p), as<T>(d_s), lse, delta);
    });
  };
  return rows;
}
