// Bodies of attention_tiles.h. Included by one source file per instruction set inside a namespace named after it and an unnamed
// one, after kVectors, the form of operands and attention_rows.inl: each file keeps its own code, and
// scripts/check_isa can tell what belongs where.

// Rows of what a product holds in registers, beside kVectors vectors.
constexpr I kRows = 6;
// Keys at a time: a row of weights is stored by kPack vectors.
constexpr I kStep = kPack * kWidth;

// ---- products

// c f32[rows, vectors * kWidth] += a b, or overwritten: word i of row r of a at a[r * a_row + i * a_step], b words [k, b_row].
struct Product {
  float* c;
  I c_row;
  const float* a;
  I a_row, a_step;
  const float* b;
  I b_row, k;
  bool add;
};

// Sums are an array whose indices are constants, as in few_rows.inl. A tile's are made before they are added to those of others:
// errors of long sums grow less.
template <I... r, I... v>
void multiply_block(const Product& p, I column, Indices<r...>, Indices<v...>) {
  constexpr I kColumns = sizeof...(v);
  Floats sums[sizeof...(r) * kColumns] = {};
  const float *a = p.a, *b = p.b + column;
  const auto each_row = [](auto f) __attribute__((always_inline)) { (f(r), ...); };
  for (I i = 0; i < p.k; ++i, a += p.a_step, b += p.b_row) {
    const Floats columns[kColumns] = {load(b + v * kWidth, kWidth)...};
    each_row([&](I row) __attribute__((always_inline)) {
      const Floats x = broadcast_word(a + row * p.a_row);
      ((sums[row * kColumns + v] = multiply_add(sums[row * kColumns + v], x, columns[v])), ...);
    });
  }
  // Copies, because a store could change what a reference leads to.
  float* c = p.c + column;
  const I c_row = p.c_row;
  const auto each_sum = [&](auto f) __attribute__((always_inline)) {
    each_row([&](I row) __attribute__((always_inline)) {
      (f(c + v * kWidth, sums[row * kColumns + v]), ...);
      c += c_row;
    });
  };
  if (p.add)
    each_sum([](float* to, Floats sum) __attribute__((always_inline)) { store(to, load(to, kWidth) + sum, kWidth); });
  else
    each_sum([](float* to, Floats sum) __attribute__((always_inline)) { store(to, sum, kWidth); });
}

template <I R, I V>
void multiply_columns(const Product& p, I column, I vectors) {
  if constexpr (V > 1) {
    if (vectors < V) return multiply_columns<R, V - 1>(p, column, vectors);
  }
  multiply_block(p, column, UpTo<R>(), UpTo<V>());
}

// Multiplies at most R rows. Vectors are cut into parts that are as equal as they can be.
template <I R>
void multiply(const Product& p, I rows, I vectors) {
  if constexpr (R > 1) {
    if (rows < R) return multiply<R - 1>(p, rows, vectors);
  }
  for (I parts = (vectors + kVectors - 1) / kVectors, first = 0; parts > 0; --parts) {
    const I count = (vectors - first + parts - 1) / parts;
    multiply_columns<R, kVectors>(p, first * kWidth, count);
    first += count;
  }
}

// ---- operands

// Row i of `to` is column i of `from`, kWidth of both.
template <I... i>
__attribute__((always_inline)) inline void transpose_block(float* to, I to_row, const float* from, I from_row, Indices<i...>) {
  Floats v[kWidth] = {load(from + i * from_row, kWidth)...};
  transpose<kWidth / 2>(v);
  (store(to + i * to_row, v[i], kWidth), ...);
}

// Words of a row of `width` elements, 0 behind them.
inline I row_words(I width) { return up_to_multiple((width + kPack - 1) / kPack, kWidth); }
inline I padded(I width) { return up_to_multiple(width, kWidth); }

// to [words, kTile]: x T[rows, width] in columns, zeros behind the rows; `in_rows` is scratch.
template <class T>
void pack_columns(float* to, float* in_rows, const T* x, I x_row, I rows, I width) {
  const I words = row_words(width), columns = up_to_multiple(rows, kStep);
  pack_rows(in_rows, words, x, x_row, rows, width);
  for (I i = rows * words; i < columns * words; i += kWidth) store(in_rows + i, Floats{}, kWidth);
  for (I word = 0; word < words; word += kWidth)
    for (I r = 0; r < columns; r += kWidth)
      transpose_block(to + word * kTile + r, kTile, in_rows + r * words + word, words, UpTo<kWidth>());
}

inline void fill(float* p, I count, float x) {
  for (I i = 0; i < count; ++i) p[i] = x;
}

// ---- which keys are seen

// From `first` to before `end`; none where that is not behind it.
struct Seen {
  I first, end;
  bool nothing() const { return first >= end; }
};

// Returns those of `columns` keys from `key` on that any of the queries query .. query + rows - 1 sees: a query's keys begin and
// end no earlier than those of the query before it.
inline Seen seen_keys(const AttentionGroup& g, I query, I rows, I key, I columns) {
  const I end = g.causal ? within(query + rows + g.offset - key, columns) : columns;
  if (g.first_key == nullptr) return {0, end};
  return {within(g.first_key[query] - g.key_position - key, columns), end};
}

// Returns those of `rows` queries from `query` on that may see one of the keys key .. key + columns - 1.
inline Seen seeing_queries(const AttentionGroup& g, I query, I rows, I key, I columns) {
  const I first = g.causal ? within(key - g.offset - query, rows) : 0;
  I end = rows;
  if (g.first_key != nullptr)
    while (end > first && g.first_key[query + end - 1] - g.key_position >= key + columns) --end;
  return {first, end};
}

inline Ints lanes_within(I column, Seen seen) {
  const Ints lane = counted(UpTo<kWidth>()) + static_cast<std::int32_t>(column);
  return (lane >= static_cast<std::int32_t>(seen.first)) & (lane < static_cast<std::int32_t>(seen.end));
}

// ---- scores

// A number as the sum of two.
struct Precise {
  float high, low;
  explicit Precise(double x) : high(static_cast<float>(x)), low(static_cast<float>(x - static_cast<double>(high))) {}
};

// Scores times this are exponents of two. One float would be off by more than all that is rounded later.
inline Precise exponent_factor(const AttentionGroup& g) {
  return Precise(static_cast<double>(g.softcap > 0.0f ? g.softcap : g.scale) * kLog2E);
}

// In a hidden key's place: 2 to the power of it is 0, whatever it is multiplied by.
constexpr float kHidden = -3e38f;

// A row of scores: bounded, if they are, to parts of the bound, and kHidden where a key is not seen. Returns the largest.
inline float prepare_scores(const AttentionGroup& g, float* s, I columns, Seen seen) {
  Floats m = broadcast(-kInfinity);
  const bool all = seen.first <= 0 && seen.end >= columns;
  if (all && g.softcap == 0.0f) {
    for (I c = 0; c < columns; c += kWidth) m = largest(load(s + c, kWidth), m);
    return largest_of(m);
  }
  for (I c = 0; c < columns; c += kWidth) {
    Floats v = load(s + c, kWidth);
    if (g.softcap > 0.0f) v = hyperbolic_tangent(v * (g.scale / g.softcap));
    v = lanes_within(c, seen) ? v : broadcast(kHidden);
    m = largest(v, m);
    store(s + c, v, kWidth);
  }
  return largest_of(m);
}

// ---- forward

// Where things lie, in floats.
struct ForwardMemory {
  I words, width, k = 0, v, in_rows, q, scores, weights, acc, row_max, row_sum, floats;
  explicit ForwardMemory(const AttentionGroup& g) : words(row_words(g.head_dim)), width(padded(g.head_dim)) {
    const I tiles = (g.key_length + kTile - 1) / kTile;
    v = tiles * kTile * words;
    in_rows = v + tiles * kTile / kPack * width;
    q = in_rows + kTile * words;
    scores = q + kTile * words;
    weights = scores + kRows * kTile;
    acc = kPack == 1 ? weights : weights + kRows * kTile / kPack;
    row_max = acc + kTile * width;
    row_sum = row_max + kTile;
    floats = row_sum + kTile * kWidth;
  }
};

// Online softmax (Milakov and Gimelshein 2018): scores [columns] of a row become weights, relative to the largest score so far.
inline void softmax_row(const AttentionGroup& g, float* scores, float* weights, I columns, Seen seen, float* row_max,
                        float* row_sum, float* acc, I width) {
  if (seen.nothing()) {
    for (I c = 0; c < columns / kPack; c += kWidth) store(weights + c, Floats{}, kWidth);
    return;
  }
  const Precise factor = exponent_factor(g);
  const float old_max = *row_max;
  const float tile_max = prepare_scores(g, scores, columns, seen) * factor.high;
  if (tile_max > old_max) {
    const float correction = power_of_two(broadcast(old_max - tile_max))[0];
    *row_max = tile_max;
    store(row_sum, load(row_sum, kWidth) * correction, kWidth);
    for (I d = 0; d < width; d += kWidth) store(acc + d, load(acc + d, kWidth) * correction, kWidth);
  }
  const float subtracted = *row_max;
  Floats sum = load(row_sum, kWidth);
  for (I c = 0; c < columns; c += kStep) {
    Floats e[kPack];
    for (I i = 0; i < kPack; ++i) {
      const Floats score = load(scores + c + i * kWidth, kWidth);
      e[i] = weight_of(score * factor.high - subtracted, score * factor.low);
      sum += e[i];
    }
    store_in_row(weights + c / kPack, e);
  }
  store(row_sum, sum, kWidth);
}

template <class T>
void finish_row(T* out, float* lse, const float* acc, float row_max, Floats row_sum, I head_dim) {
  const float sum = sum_of(row_sum);
  const bool saw_nothing = sum == 0.0f;
  const float factor = saw_nothing ? 0.0f : 1.0f / sum;
  *lse =
      saw_nothing ? -kInfinity : static_cast<float>(static_cast<double>(row_max) * kLn2 + static_cast<double>(__builtin_logf(sum)));
  for (I d = 0; d < head_dim; d += kWidth) {
    const I count = smaller(kWidth, head_dim - d);
    store(out + d, load(acc + d, count) * factor, count);
  }
}

template <class T>
void forward_tile(const AttentionGroup& g, I query, I rows, T* out, float* lse, const T* q, const ForwardMemory& m, float* memory) {
  float *scores = memory + m.scores, *acc = memory + m.acc, *row_max = memory + m.row_max, *row_sum = memory + m.row_sum;
  float* weights = memory + (kPack == 1 ? m.scores : m.weights);
  const HeadRows<T> queries = as_multiplied(g, q, g.q.row, query, rows, memory + m.in_rows);
  pack_rows(memory + m.q, m.words, queries.data, queries.row, rows, g.head_dim);
  fill(acc, rows * m.width, 0.0f);
  fill(row_max, rows, -kInfinity);
  fill(row_sum, rows * kWidth, 0.0f);
  const Seen all = seen_keys(g, query, rows, 0, g.key_length);
  for (I key = all.first / kTile * kTile; key < all.end; key += kTile) {
    const I keys = smaller(kTile, g.key_length - key);
    for (I r = 0; r < rows; r += kRows) {
      const I count = smaller(kRows, rows - r);
      const Seen strip = seen_keys(g, query + r, count, key, keys);
      if (strip.nothing()) continue;
      const I first = strip.first / kStep * kStep, columns = up_to_multiple(strip.end - first, kStep);
      multiply<kRows>({scores, kTile, memory + m.q + r * m.words, m.words, 1, memory + m.k + key * m.words + first, kTile,
                       (g.head_dim + kPack - 1) / kPack, false},
                      count, columns / kWidth);
      for (I i = 0; i < count; ++i) {
        const Seen seen = seen_keys(g, query + r + i, 1, key, keys);
        softmax_row(g, scores + i * kTile, weights + i * kTile / kPack, columns, {seen.first - first, seen.end - first},
                    row_max + r + i, row_sum + (r + i) * kWidth, acc + (r + i) * m.width, m.width);
      }
      multiply<kRows>({acc + r * m.width, m.width, weights, kTile / kPack, 1, memory + m.v + (key + first) / kPack * m.width,
                       m.width, (strip.end - first + kPack - 1) / kPack, true},
                      count, m.width / kWidth);
    }
  }
  for (I r = 0; r < rows; ++r)
    finish_row(out + r * g.out.row, lse + r, acc + r * m.width, row_max[r], load(row_sum + r * kWidth, kWidth), g.head_dim);
}

template <class T>
void forward_of(const AttentionGroup& g, I first_query, I end_query, T* out, float* lse, const T* q, const T* k, const T* v,
                float* memory) {
  const ForwardMemory m(g);
  const Seen all = seen_keys(g, first_query, end_query - first_query, 0, g.key_length);
  for (I key = all.first / kTile * kTile; key < all.end; key += kTile) {
    const I keys = smaller(kTile, g.key_length - key);
    const HeadRows<T> rows = as_multiplied(g, k + key * g.k.row, g.k.row, key, keys, memory + m.q);
    pack_columns(memory + m.k + key * m.words, memory + m.in_rows, rows.data, rows.row, keys, g.head_dim);
    pack_across(memory + m.v + key / kPack * m.width, m.width, v + key * g.v.row, g.v.row, keys, g.head_dim);
  }
  for (I head = 0; head < g.heads; ++head) {
    for (I i = first_query; i < end_query; i += kTile) {
      forward_tile(g, i, smaller(kTile, end_query - i), out + head * g.out.head + i * g.out.row, lse + head * g.query_length + i,
                   q + head * g.q.head + i * g.q.row, m, memory);
    }
  }
}

// ---- backward

// Across queries: p, d_s, and q and d_out once more. With words of one element what lies across rows lies in rows.
struct BackwardMemory {
  I words, width, k = 0, v, k_across, q, d_out, q_across, d_out_across, scores, d_p, d_s_rows, p, d_s, d_k, d_v;
  I d_q, all_q, all_d_out, delta, floats;
  // `queries`: whose d_q is made.
  BackwardMemory(const AttentionGroup& g, I queries) : words(row_words(g.head_dim)), width(padded(g.head_dim)) {
    const I in_rows = kTile * words, across = kTile / kPack * width;
    v = k + in_rows;
    k_across = v + in_rows;
    q = k_across + across;
    d_out = q + in_rows;
    q_across = kPack == 1 ? q : d_out + in_rows;
    d_out_across = kPack == 1 ? d_out : q_across + across;
    scores = d_out_across + larger(in_rows, across);
    d_p = scores + kRows * kTile;
    d_s_rows = d_p + kRows * kTile;
    p = d_s_rows + kRows * kTile / kPack;
    d_s = p + kTile / kPack * kTile;
    d_k = d_s + kTile / kPack * kTile;
    d_v = d_k + kTile * width;
    d_q = d_v + kTile * width;
    all_q = d_q + g.heads * queries * width;
    all_d_out = all_q + g.heads * queries * width / kPack;
    delta = all_d_out + g.heads * queries * width / kPack;
    floats = delta + up_to_multiple(g.heads * g.query_length, kWidth);
  }
};

// Row sums of d_out * out, both of rows `row` elements apart.
template <class T>
void row_dots(float* delta, const T* d_out, const T* out, I row, I rows, I head_dim) {
  for (I r = 0; r < rows; ++r, d_out += row, out += row) {
    Floats sum = {};
    for (I d = 0; d < head_dim; d += kWidth) {
      const I count = smaller(kWidth, head_dim - d);
      sum += load(d_out + d, count) * load(out + d, count);
    }
    delta[r] = sum_of(sum);
  }
}

// kPack rows of a strip, of which `rows` are there, and the columns first .. end - 1 of all the tile's; `scores`, d_p begin with
// `first`: weights p = exp(score - lse) and their scores' gradients d_s = p * (d_p - delta) * scale, times the bound's slope. What
// is stored outside of those is 0, and so is what a row does not see where it is `masked`.
template <bool kBounded, bool kMasked>
void weigh_rows(const AttentionGroup& g, const float* scores, const float* d_p, I rows, I first, I end, const Seen* seen,
                const float* lse, const float* delta, float* p, float* d_s, float* d_s_rows) {
  for (I c = 0; c < first; c += kWidth) store(p + c, Floats{}, kWidth), store(d_s + c, Floats{}, kWidth);
  const Precise factor = exponent_factor(g);
  const float scale = g.scale;
  [[maybe_unused]] const float part_of_bound = kBounded ? g.scale / g.softcap : 0.0f;
  const auto there = [&](I row) { return smaller(row, rows - 1); };  // one that is not there is another that sees nothing
  const auto subtracted_of = [&](I row) { return Precise(static_cast<double>(lse[there(row)]) * kLog2E); };
  const Precise subtracted[] = {subtracted_of(0), subtracted_of(kPack - 1)};
  const float deltas[] = {delta[0], delta[there(kPack - 1)]};
  [[maybe_unused]] const Seen seen_of[] = {seen[0], seen[kPack - 1]};
  for (I c = first; c < end; c += kStep) {
    Floats e[kPack][kPack], d[kPack][kPack];  // by vector, row
#pragma GCC unroll 2
    for (I row = 0; row < kPack; ++row) {
#pragma GCC unroll 2
      for (I v = 0; v < kPack; ++v) {
        const I from = there(row) * kTile + c + v * kWidth - first;
        Floats score = load(scores + from, kWidth), slope = {};
        if constexpr (kBounded) score = hyperbolic_tangent(score * part_of_bound), slope = 1.0f - score * score;
        const Floats weight =
            weight_of(score * factor.high - subtracted[row].high, score * factor.low - subtracted[row].low);
        Floats gradient = weight * ((load(d_p + from, kWidth) - deltas[row]) * scale);
        if constexpr (kBounded) gradient *= slope;
        e[v][row] = weight, d[v][row] = gradient;
        if constexpr (kMasked) {
          const Ints inside = lanes_within(c + v * kWidth, seen_of[row]);
          e[v][row] = inside ? weight : Floats{}, d[v][row] = inside ? gradient : Floats{};
        }
      }
    }
#pragma GCC unroll 2
    for (I v = 0; v < kPack; ++v) store_across(p + c + v * kWidth, e[v]), store_across(d_s + c + v * kWidth, d[v]);
    if constexpr (kPack > 1) {
#pragma GCC unroll 2
      for (I row = 0; row < kPack; ++row) {
        const Floats of_row[] = {d[0][row], d[1][row]};
        store_in_row(d_s_rows + (row * kTile + c - first) / kPack, of_row);
      }
    }
  }
  for (I c = end; c < kTile; c += kWidth) store(p + c, Floats{}, kWidth), store(d_s + c, Floats{}, kWidth);
}

// Queries query .. + rows of a head with the keys key .. + keys, which are packed.
template <class T>
void backward_tile(const AttentionGroup& g, const AttentionGradients& of, I head, I query, I rows, I key, I keys,
                   const BackwardMemory& m, float* memory) {
  const I width = g.head_dim, words = (width + kPack - 1) / kPack, vectors = m.width / kWidth, row = head * g.query_length + query;
  const I in_d_q = head * (of.end_query - of.first_query) + query - of.first_query;
  HeadRows<T> q = {static_cast<const T*>(of.q) + head * g.q.head + query * g.q.row, g.q.row};
  HeadRows<T> d_out = {static_cast<const T*>(of.d_out) + head * g.out.head + query * g.out.row, g.out.row};
  if (of.d_q == nullptr) {
    q = as_multiplied(g, q.data, q.row, query, rows, memory + m.d_out);
  } else {
    q = {reinterpret_cast<const T*>(memory + m.all_q) + in_d_q * width, width};
    d_out = {reinterpret_cast<const T*>(memory + m.all_d_out) + in_d_q * width, width};
  }
  pack_rows(memory + m.q, m.words, q.data, q.row, rows, width);
  if constexpr (kPack > 1) pack_across(memory + m.q_across, m.width, q.data, q.row, rows, width);
  pack_rows(memory + m.d_out, m.words, d_out.data, d_out.row, rows, width);
  if constexpr (kPack > 1) pack_across(memory + m.d_out_across, m.width, d_out.data, d_out.row, rows, width);
  float *scores = memory + m.scores, *d_p = memory + m.d_p, *d_s_rows = memory + m.d_s_rows;
  for (I r = 0; r < rows; r += kRows) {
    const I count = smaller(kRows, rows - r);
    const Seen strip = seen_keys(g, query + r, count, key, keys);
    const I first = strip.nothing() ? kTile : strip.first / kStep * kStep;
    const I end = strip.nothing() ? kTile : up_to_multiple(strip.end, kStep);
    const I at = r * m.words;
    if (first < end) {
      multiply<kRows>({scores, kTile, memory + m.q + at, m.words, 1, memory + m.k + first, kTile, words, false}, count,
                      (end - first) / kWidth);
      multiply<kRows>({d_p, kTile, memory + m.d_out + at, m.words, 1, memory + m.v + first, kTile, words, false}, count,
                      (end - first) / kWidth);
    }
    for (I i = 0; i < count; i += kPack) {
      Seen seen[kPack] = {};
      const I there = smaller(kPack, count - i);
      bool masked = there < kPack;
      for (I n = 0; n < there; ++n) {
        seen[n] = seen_keys(g, query + r + i + n, 1, key, keys);
        masked |= seen[n].first > first || seen[n].end < end;
      }
      const bool bounded = g.softcap > 0.0f;
      const auto weigh = bounded ? (masked ? weigh_rows<true, true> : weigh_rows<true, false>)
                                 : (masked ? weigh_rows<false, true> : weigh_rows<false, false>);
      const I across = (r + i) / kPack * kTile;
      weigh(g, scores + i * kTile, d_p + i * kTile, there, first, end, seen, of.lse + row + r + i, memory + m.delta + row + r + i,
            memory + m.p + across, memory + m.d_s + across, d_s_rows + i * kTile / kPack);
    }
    if (first >= end || of.d_q == nullptr) continue;
    const float* weights = kPack == 1 ? memory + m.d_s + r * kTile + first : d_s_rows;
    multiply<kRows>({memory + m.d_q + (in_d_q + r) * m.width, m.width, weights, kTile / kPack, 1,
                     memory + m.k_across + first / kPack * m.width, m.width, (strip.end - first + kPack - 1) / kPack, true},
                    count, vectors);
  }
  for (I c = 0; c < keys && of.d_k != nullptr; c += kRows) {
    const I count = smaller(kRows, keys - c);
    const Seen seeing = seeing_queries(g, query, rows, key + c, count);
    const I first = seeing.first / kPack, k = (seeing.end + kPack - 1) / kPack - first;
    if (k <= 0) continue;
    const I from = first * kTile + c, by = first * m.width;
    multiply<kRows>(
        {memory + m.d_v + c * m.width, m.width, memory + m.p + from, 1, kTile, memory + m.d_out_across + by, m.width, k, true},
        count, vectors);
    multiply<kRows>(
        {memory + m.d_k + c * m.width, m.width, memory + m.d_s + from, 1, kTile, memory + m.q_across + by, m.width, k, true}, count,
        vectors);
  }
}

template <class T>
void backward_of(const AttentionGroup& g, const AttentionGradients& of, float* memory) {
  const I width = g.head_dim, first = of.first_query, queries = of.end_query - first;
  const BackwardMemory m(g, of.d_q == nullptr ? 0 : queries);
  for (I head = 0; head < g.heads; ++head) {
    const I row = head * g.query_length + first, at = head * g.out.head + first * g.out.row;
    const T* const d_out = static_cast<const T*>(of.d_out) + at;
    row_dots(memory + m.delta + row, d_out, static_cast<const T*>(of.out) + at, g.out.row, queries, width);
    if (of.d_q == nullptr) continue;
    // Every tile of keys reads them again, and rows that lie apart take each other's places in caches.
    T *const all_q = reinterpret_cast<T*>(memory + m.all_q), *const all_d_out = reinterpret_cast<T*>(memory + m.all_d_out);
    turn_rows(g, all_q + head * queries * width, static_cast<const T*>(of.q) + head * g.q.head + first * g.q.row, g.q.row, first,
              queries);
    copy_rows(all_d_out + head * queries * width, d_out, g.out.row, queries, width);
    fill(memory + m.d_q + head * queries * m.width, queries * m.width, 0.0f);
  }
  for (I key = of.first_key; key < of.end_key; key += kTile) {
    const I keys = smaller(kTile, of.end_key - key);
    if (of.d_k == nullptr && seen_keys(g, first, queries, key, keys).nothing()) continue;
    const T *k = static_cast<const T*>(of.k) + key * g.k.row, *v = static_cast<const T*>(of.v) + key * g.v.row;
    const HeadRows<T> rows = as_multiplied(g, k, g.k.row, key, keys, memory + m.d_out);
    pack_columns(memory + m.k, memory + m.q, rows.data, rows.row, keys, width);
    pack_across(memory + m.k_across, m.width, rows.data, rows.row, keys, width);
    pack_columns(memory + m.v, memory + m.q, v, g.v.row, keys, width);
    fill(memory + m.d_k, keys * m.width, 0.0f);
    fill(memory + m.d_v, keys * m.width, 0.0f);
    for (I head = 0; head < g.heads; ++head) {
      for (I i = first; i < of.end_query; i += kTile) {
        const I rows = smaller(kTile, of.end_query - i);
        if (!seen_keys(g, i, rows, key, keys).nothing()) backward_tile<T>(g, of, head, i, rows, key, keys, m, memory);
      }
    }
    if (of.d_k == nullptr) continue;
    store_gradients(g, static_cast<T*>(of.d_k) + key * g.k.row, g.k.row, memory + m.d_k, m.width, key, keys, memory + m.d_out);
    store_rows(static_cast<T*>(of.d_v) + key * g.v.row, g.v.row, memory + m.d_v, m.width, keys, width);
  }
  for (I head = 0; head < g.heads && of.d_q != nullptr; ++head) {
    store_gradients(g, static_cast<T*>(of.d_q) + head * g.q.head + first * g.q.row, g.q.row,
                    memory + m.d_q + head * queries * m.width, m.width, first, queries, memory + m.d_out);
  }
}

// ---- for any element

void forward_any(RowType t, const AttentionGroup& g, I first_query, I end_query, void* out, float* lse, const void* q,
                 const void* k, const void* v, float* memory) {
  with_element(t, [&]<class T> {
    forward_of(g, first_query, end_query, static_cast<T*>(out), lse, static_cast<const T*>(q), static_cast<const T*>(k),
               static_cast<const T*>(v), memory);
  });
}

void backward_any(RowType t, const AttentionGroup& g, const AttentionGradients& of, float* memory) {
  with_element(t, [&]<class T> { backward_of<T>(g, of, memory); });
}

constexpr AttentionTiles kAttentionTiles = {[](const AttentionGroup& g) { return ForwardMemory(g).floats; },
                                            [](const AttentionGroup& g, I queries) { return BackwardMemory(g, queries).floats; },
                                            forward_any, backward_any};
