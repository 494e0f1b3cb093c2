// Rotary position embedding (Su et al. 2021), half-split form as in GPT-NeoX and Llama: pairs (j, j + half).
// `out` may be x.
template <class Team, class T>
TRIDENT_ROW_BODY void rope_row(const Team& team, T* out, const T* x, const float* cos, const float* sin, I half, float direction) {
  team.each(half, [&](I j, auto lanes) {
    const auto c = load(cos + j, lanes), s = load(sin + j, lanes) * direction;
    const auto a = load(x + j, lanes), b = load(x + half + j, lanes);
    store(out + j, a * c - b * s, lanes);
    store(out + half + j, b * c + a * s, lanes);
  });
}

#ifdef TRIDENT_ROW_KERNEL  // the loops of processors

// Calls f(head, row, token) with offsets of each head's D elements in heads [B,n,S,D] and in rows [S,B,C], in units of which an
// element has `element`, and its token b*S+s.
template <class F>
TRIDENT_ROW_BODY void for_each_head(I element, I batch, I num_heads, I sequence, I head_dim, I columns, I first_column, F&& f) {
  for (I b = 0; b < batch; ++b)
    for (I n = 0; n < num_heads; ++n)
      for (I s = 0; s < sequence; ++s)
        f(((b * num_heads + n) * sequence + s) * head_dim * element,
          ((s * batch + b) * columns + first_column + n * head_dim) * element, b * sequence + s);
}

TRIDENT_ROW_KERNEL split_heads(RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim, I columns,
                               I first_column) {
  char* to = static_cast<char*>(heads);
  const char* from = static_cast<const char*>(rows);
  for_each_head(bytes_of(t), batch, num_heads, sequence, head_dim, columns, first_column,
                [&](I head, I row, I) { copy_bytes(to + head, from + row, head_dim * bytes_of(t)); });
}

TRIDENT_ROW_KERNEL merge_heads(RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim, I columns,
                               I first_column) {
  char* to = static_cast<char*>(rows);
  const char* from = static_cast<const char*>(heads);
  for_each_head(bytes_of(t), batch, num_heads, sequence, head_dim, columns, first_column,
                [&](I head, I row, I) { copy_bytes(to + row, from + head, head_dim * bytes_of(t)); });
}

// Heads from x to `out`, turned; what does not turn is copied.
template <class T>
TRIDENT_ROW_BODY void move_rotated(T* out, const T* x, const float* cos, const float* sin, I row_of_tables, I head_dim, I half,
                                   float direction) {
  rope_row(kTeam, out, x, cos + row_of_tables * half, sin + row_of_tables * half, half, direction);
  copy_bytes(out + 2 * half, x + 2 * half, (head_dim - 2 * half) * static_cast<I>(sizeof(T)));
}

TRIDENT_ROW_KERNEL split_rotated_heads(RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim,
                                       I columns, I first_column, const float* cos, const float* sin, const std::int32_t* position,
                                       I half) {
  with_type(t, [&](auto* type) {
    for_each_head(1, batch, num_heads, sequence, head_dim, columns, first_column, [&](I head, I row, I token) {
      move_rotated(as(heads, type) + head, as(rows, type) + row, cos, sin, I{position[token]}, head_dim, half, 1.0f);
    });
  });
}

TRIDENT_ROW_KERNEL merge_rotated_heads(RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim,
                                       I columns, I first_column, const float* cos, const float* sin, const std::int32_t* position,
                                       I half) {
  with_type(t, [&](auto* type) {
    for_each_head(1, batch, num_heads, sequence, head_dim, columns, first_column, [&](I head, I row, I token) {
      move_rotated(as(rows, type) + row, as(heads, type) + head, cos, sin, I{position[token]}, head_dim, half, -1.0f);
    });
  });
}

TRIDENT_ROW_KERNEL rope(RowType t, void* x, const float* cos, const float* sin, const std::int32_t* position, I batch, I num_heads,
                        I sequence, I head_dim, I half, Transpose inverse) {
  const float direction = inverse == Transpose::kYes ? -1.0f : 1.0f;
  with_type(t, [&](auto* type) {
    for (I b = 0; b < batch; ++b)
      for (I n = 0; n < num_heads; ++n)
        for (I s = 0; s < sequence; ++s) {
          const I row = I{position[b * sequence + s]} * half;
          auto* const head = as(x, type) + ((b * num_heads + n) * sequence + s) * head_dim;
          rope_row(kTeam, head, head, cos + row, sin + row, half, direction);
        }
  });
}

#endif
