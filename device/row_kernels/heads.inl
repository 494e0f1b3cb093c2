// Rotary position embedding (Su et al. 2021), half-split form as in GPT-NeoX and Llama: pairs (j, j + half).
template <class Team, class T>
TRIDENT_ROW_BODY void rope_row(const Team& team, T* x, const float* cos, const float* sin, I half, float direction) {
  team.each(half, [&](I j, auto lanes) {
    const auto c = load(cos + j, lanes), s = load(sin + j, lanes) * direction;
    const auto a = load(x + j, lanes), b = load(x + half + j, lanes);
    store(x + j, a * c - b * s, lanes);
    store(x + half + j, b * c + a * s, lanes);
  });
}

#ifdef TRIDENT_ROW_KERNEL  // the loops of processors

// Calls f(head, row) with byte offsets of each head's D elements in heads [B,n,S,D] and in rows [S,B,C].
template <class F>
TRIDENT_ROW_BODY void for_each_head(I element, I batch, I num_heads, I sequence, I head_dim, I columns, I first_column, F&& f) {
  for (I b = 0; b < batch; ++b)
    for (I n = 0; n < num_heads; ++n)
      for (I s = 0; s < sequence; ++s)
        f(((b * num_heads + n) * sequence + s) * head_dim * element,
          ((s * batch + b) * columns + first_column + n * head_dim) * element);
}

TRIDENT_ROW_KERNEL split_heads(RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim, I columns,
                               I first_column) {
  char* to = static_cast<char*>(heads);
  const char* from = static_cast<const char*>(rows);
  for_each_head(bytes_of(t), batch, num_heads, sequence, head_dim, columns, first_column,
                [&](I head, I row) { copy_bytes(to + head, from + row, head_dim * bytes_of(t)); });
}

TRIDENT_ROW_KERNEL merge_heads(RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim, I columns,
                               I first_column) {
  char* to = static_cast<char*>(rows);
  const char* from = static_cast<const char*>(heads);
  for_each_head(bytes_of(t), batch, num_heads, sequence, head_dim, columns, first_column,
                [&](I head, I row) { copy_bytes(to + row, from + head, head_dim * bytes_of(t)); });
}

TRIDENT_ROW_KERNEL rope(RowType t, void* x, const float* cos, const float* sin, const std::int32_t* position, I batch, I num_heads,
                        I sequence, I head_dim, I half, Transpose inverse) {
  const float direction = inverse == Transpose::kYes ? -1.0f : 1.0f;
  with_type(t, [&](auto* type) {
    for (I b = 0; b < batch; ++b)
      for (I n = 0; n < num_heads; ++n)
        for (I s = 0; s < sequence; ++s) {
          const I row = I{position[b * sequence + s]} * half;
          rope_row(kTeam, as(x, type) + ((b * num_heads + n) * sequence + s) * head_dim, cos + row, sin + row, half, direction);
        }
  });
}

#endif
