// Rows of heads on their way into attention's tiles and out of them: queries and keys turn as they are read, and their gradients
// turn back as they are stored, with the kernels of heads. Included after wide_vectors.inl.

constexpr I kTile = kAttentionTile;

template <class T>
constexpr RowType kRowType = __is_same(T, float) ? RowType::kF32 : __is_same(T, Bf16) ? RowType::kBF16 : RowType::kF16;

template <class T>
struct HeadRows {
  const T* data;
  I row;
};

// Copies rows of a head T[rows, head_dim] that lie x_row elements apart, one behind the other.
template <class T>
void copy_rows(T* to, const T* x, I x_row, I rows, I head_dim) {
  const auto bytes = static_cast<unsigned long>(head_dim) * sizeof(T);
  for (I r = 0; r < rows; ++r, to += head_dim, x += x_row) __builtin_memcpy(to, x, bytes);
}

// Copies the queries or keys from number `first` on, turned where they turn.
template <class T>
void turn_rows(const AttentionGroup& g, T* to, const T* x, I x_row, I first, I rows) {
  const HeadRotation& r = g.rotation;
  if (r.pairs == 0) return copy_rows(to, x, x_row, rows, g.head_dim);
  r.kernels->split_rotated_heads(kRowType<T>, to, x, 1, 1, rows, g.head_dim, x_row, 0, r.cos, r.sin, r.position + first, r.pairs);
}

// Returns the same rows as they are multiplied: in `room`, [kTile, row_words], where they turn.
template <class T>
HeadRows<T> as_multiplied(const AttentionGroup& g, const T* x, I x_row, I first, I rows, float* room) {
  if (g.rotation.pairs == 0) return {x, x_row};
  T* const to = reinterpret_cast<T*>(room);
  turn_rows(g, to, x, x_row, first, rows);
  return {to, g.head_dim};
}

template <class T>
void store_rows(T* to, I to_row, const float* from, I from_row, I rows, I width) {
  for (I r = 0; r < rows; ++r, to += to_row, from += from_row) {
    for (I c = 0; c < width; c += kWidth) {
      const I count = smaller(kWidth, width - c);
      store(to + c, load(from + c, count), count);
    }
  }
}

// Does what store_rows() does with gradients of queries or keys from number `first` on, turned back by way of `room`,
// [kTile, row_words].
template <class T>
void store_gradients(const AttentionGroup& g, T* to, I to_row, const float* from, I from_row, I first, I rows, float* room) {
  const HeadRotation& r = g.rotation;
  if (r.pairs == 0) return store_rows(to, to_row, from, from_row, rows, g.head_dim);
  for (I i = 0; i < rows; i += kTile) {
    const I count = smaller(kTile, rows - i);
    store_rows(reinterpret_cast<T*>(room), g.head_dim, from + i * from_row, from_row, count, g.head_dim);
    r.kernels->merge_rotated_heads(kRowType<T>, to + i * to_row, room, 1, 1, count, g.head_dim, to_row, 0, r.cos, r.sin,
                                   r.position + first + i, r.pairs);
  }
}
