// Rows of heads on their way into attention's tiles and out of them: queries and keys turn as they are read, and their gradients
// turn back as they are stored, with the kernels of heads. Included after wide_vectors.inl.

constexpr I kTile = kAttentionTile;

inline I smaller(I a, I b) { return a < b ? a : b; }

template <class T>
constexpr RowType kRowType = __is_same(T, float) ? RowType::kF32 : __is_same(T, Bf16) ? RowType::kBF16 : RowType::kF16;

// Turns the queries or keys first .. first + rows - 1, which lie at x, into `to` T[rows, head_dim], to_row elements from one to the
// next.
template <class T>
void turn_rows(const AttentionGroup& g, T* to, I to_row, const T* x, I x_row, I first, I rows) {
  const HeadRotation& r = g.rotation;
  const I together = to_row == g.head_dim ? rows : 1;  // the kernel's heads are dense
  for (I i = 0; i < rows; i += together)
    r.kernels->split_rotated_heads(kRowType<T>, to + i * to_row, x + i * x_row, 1, 1, together, g.head_dim, x_row, 0, r.cos, r.sin,
                                   r.position + first + i, r.pairs);
}

template <class T>
struct HeadRows {
  const T* data;
  I row;
};

// Returns the same rows as they are multiplied: in `room`, [kTile, row_words], where they turn.
template <class T>
HeadRows<T> as_multiplied(const AttentionGroup& g, const T* x, I x_row, I first, I rows, float* room) {
  if (g.rotation.pairs == 0) return {x, x_row};
  T* const to = reinterpret_cast<T*>(room);
  turn_rows(g, to, g.head_dim, x, x_row, first, rows);
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
