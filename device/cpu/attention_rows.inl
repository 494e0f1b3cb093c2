// Bodies of attention_rows.h on vectors of 16 floats, which the compiler maps to what the instruction set has. Included by one
// source file per instruction set inside a namespace named after it and an unnamed one: each file keeps its own code, and
// scripts/check_isa can tell what belongs where.

using I = std::int64_t;
constexpr I kWidth = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef std::int32_t Ints __attribute__((vector_size(64)));
typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef std::uint16_t Halves __attribute__((vector_size(32)));

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

constexpr float kInfinity = __builtin_inff();

inline Floats broadcast(float x) { return x - Floats{}; }
inline Floats largest(Floats a, Floats b) { return a > b ? a : b; }
const Ints kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Degree-6 polynomial (Cephes' coefficients), relative error below 3e-7; 0 below the normal range, NaN stays NaN.
inline Floats exponential(Floats x) {
  const Floats low = broadcast(-87.33f), high = broadcast(88.37f);
  Floats y = x < low ? low : x;
  y = y > high ? high : y;
  const Floats magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = y * 1.44269504088896341f + magic;
  const Floats n = shifted - magic;
  const Floats r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Ints power = __builtin_convertvector(n, Ints) + 127;
  const Floats result = p * (Floats)(power << 23);
  return x < low ? Floats{} : result;
}

inline float sum_of(Floats v) {
  float s[kWidth];
  __builtin_memcpy(s, &v, sizeof v);
  for (I width = kWidth / 2; width > 0; width /= 2) {
    for (I i = 0; i < width; ++i) s[i] += s[i + width];
  }
  return s[0];
}

inline float largest_of(Floats v) {
  float m = v[0];
  for (I i = 1; i < kWidth; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// Loads and stores of `count` <= 16 elements; missing elements read as 0.
inline Floats load(const float* p, I count) {
  Floats v = {};
  if (count == kWidth) {
    __builtin_memcpy(&v, p, sizeof v);
  } else {
    __builtin_memcpy(&v, p, static_cast<unsigned long>(count) * sizeof(float));
  }
  return v;
}

// `count` values of 16 bits, widened.
inline Words load_bits(const void* p, I count) {
  Halves h = {};
  if (count == kWidth) {
    __builtin_memcpy(&h, p, sizeof h);
  } else {
    __builtin_memcpy(&h, p, static_cast<unsigned long>(count) * sizeof(std::uint16_t));
  }
  return __builtin_convertvector(h, Words);
}

inline void store_bits(void* p, Words bits, I count) {
  const Halves h = __builtin_convertvector(bits, Halves);
  if (count == kWidth) {
    __builtin_memcpy(p, &h, sizeof h);
  } else {
    __builtin_memcpy(p, &h, static_cast<unsigned long>(count) * sizeof(std::uint16_t));
  }
}

inline Floats load(const Bf16* p, I count) { return (Floats)(load_bits(p, count) << 16); }

// Denormals are multiples of 2^-24, and as such integers in the lowest bits of 2^23 + n.
inline Floats load(const F16* p, I count) {
  const Words h = load_bits(p, count), sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  const Words denormal = (Words)(((Floats)(magnitude + 0x4b000000u) - 8388608.0f) * 0x1p-24f);
  const Words normal = (magnitude + (112u << 10)) << 13;
  const Words special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  return (Floats)(sign | (magnitude < 0x0400u ? denormal : magnitude < 0x7c00u ? normal : special));
}

inline void store(float* p, Floats v, I count) {
  if (count == kWidth) {
    __builtin_memcpy(p, &v, sizeof v);
  } else {
    __builtin_memcpy(p, &v, static_cast<unsigned long>(count) * sizeof(float));
  }
}

// Rounds to nearest, ties to even; a NaN becomes the quiet NaN.
inline void store(Bf16* p, Floats v, I count) {
  const Words bits = (Words)v;
  const Words rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const Words nan = Words{} + 0x7fc0u;
  store_bits(p, (v != v) ? nan : rounded, count);
}

// Likewise. Below 2^-14 the sum with 0.5 is rounded where the result is to be.
inline void store(F16* p, Floats v, I count) {
  const Words sign = (Words)v >> 16 & 0x8000u, u = (Words)v & 0x7fffffffu;
  const Words normal = (u - (112u << 23) + 0xfffu + (u >> 13 & 1u)) >> 13;
  const Words tiny = (Words)((Floats)u + 0.5f) - 0x3f000000u;
  const Words infinity = Words{} + 0x7c00u, nan = Words{} + 0x7e00u;
  const Words finite = u < 0x38800000u ? tiny : u < 0x477ff000u ? normal : infinity;
  store_bits(p, sign | (u > 0x7f800000u ? nan : finite), count);
}

inline I smaller(I a, I b) { return a < b ? a : b; }

inline I visible_columns(const ScoreTile& tile, I row) {
  const I visible = tile.first_visible + row * tile.step;
  return visible < 0 ? 0 : smaller(visible, tile.columns);
}

template <class T>
void zero_from(T* row, I first, I columns) {
  for (I c = first; c < columns; ++c) row[c] = T{};
}

template <class T>
void softmax_step_of(const ScoreTile& tile, const float* scores, T* p, float* row_max, float* row_sum, float* acc, I head_dim) {
  for (I r = 0; r < tile.rows; ++r) {
    const float* s = scores + r * tile.columns;
    T* p_row = p + r * tile.columns;
    const I visible = visible_columns(tile, r);
    if (visible == 0) {
      zero_from(p_row, 0, tile.columns);
      continue;
    }
    Floats m = broadcast(-kInfinity);
    for (I c = 0; c < visible; c += kWidth) {
      const I count = smaller(kWidth, visible - c);
      const Floats v = load(s + c, count) * tile.scale;
      m = largest(count == kWidth ? v : (kLane < static_cast<std::int32_t>(count) ? v : m), m);
    }
    const float old_max = row_max[r], tile_max = largest_of(m);
    const float new_max = tile_max > old_max ? tile_max : old_max;
    Floats sum = {};
    for (I c = 0; c < visible; c += kWidth) {
      const I count = smaller(kWidth, visible - c);
      Floats e = exponential(load(s + c, count) * tile.scale - new_max);
      if (count != kWidth) e = kLane < static_cast<std::int32_t>(count) ? e : Floats{};
      sum += e;
      store(p_row + c, e, count);
    }
    zero_from(p_row, visible, tile.columns);
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

template <class T>
void softmax_backward_of(const ScoreTile& tile, const float* scores, const float* d_p, T* p, T* d_s, const float* lse,
                         const float* delta) {
  for (I r = 0; r < tile.rows; ++r) {
    const I row = r * tile.columns, visible = visible_columns(tile, r);
    for (I c = 0; c < visible; c += kWidth) {
      const I count = smaller(kWidth, visible - c);
      const Floats e = exponential(load(scores + row + c, count) * tile.scale - lse[r]);
      const Floats d = e * (load(d_p + row + c, count) - delta[r]) * tile.scale;
      store(p + row + c, e, count);
      store(d_s + row + c, d, count);
    }
    zero_from(p + row, visible, tile.columns);
    zero_from(d_s + row, visible, tile.columns);
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
    with_type(t, [&]<class T> { softmax_step_of(tile, scores, as<T>(p), row_max, row_sum, acc, head_dim); });
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
    with_type(t, [&]<class T> { softmax_backward_of(tile, scores, d_p, as<T>(p), as<T>(d_s), lse, delta); });
  };
  return rows;
}
