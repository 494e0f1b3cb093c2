// Sums, copies and conversions.

template <class Team, class T>
TRIDENT_ROW_BODY void add_row(const Team& team, T* out, const T* a, const T* b, I count) {
  team.each(count, [&](I i, auto lanes) { store(out + i, load(a + i, lanes) + load(b + i, lanes), lanes); });
}

// x += bias + residual, rounded once; bias may be null.
template <class Team, class T>
TRIDENT_ROW_BODY void add_residual_row(const Team& team, T* x, const T* bias, const T* residual, I width) {
  if (bias == nullptr)
    return team.each(width, [&](auto i, auto lanes) { store(x + i, load(x + i, lanes) + load(residual + i, lanes), lanes); });
  team.each(width, [&](auto i, auto lanes) {
    store(x + i, (load(x + i, lanes) + load(bias + i, lanes)) + load(residual + i, lanes), lanes);
  });
}

// out f32 += x T.
template <class Team, class T>
TRIDENT_ROW_BODY void accumulate_row(const Team& team, float* out, const T* x, I count) {
  team.each(count, [&](I i, auto lanes) { store(out + i, load(out + i, lanes) + load(x + i, lanes), lanes); });
}

// The same of x times `times`.
template <class Team, class T>
TRIDENT_ROW_BODY void accumulate_product_row(const Team& team, float* out, const T* x, const T* times, I count) {
  team.each(count, [&](I i, auto lanes) {
    store(out + i, fma(load(x + i, lanes), load(times + i, lanes), load(out + i, lanes)), lanes);
  });
}

template <class Team, class T>
TRIDENT_ROW_BODY void scale_row(const Team& team, T* out, const T* x, const float* factor, float shift, I width,
                                Accumulate accumulate) {
  if (accumulate == Accumulate::kNo)
    return team.each(width, [&](I i, auto lanes) {
      store(out + i, load(x + i, lanes) * (load(factor + i, lanes) + broadcast(shift)), lanes);
    });
  team.each(width, [&](I i, auto lanes) {
    store(out + i, fma(load(x + i, lanes), load(factor + i, lanes) + broadcast(shift), load(out + i, lanes)), lanes);
  });
}

template <class Team, class To, class From>
TRIDENT_ROW_BODY void convert_row(const Team& team, To* out, const From* x, I count) {
  team.each(count, [&](I i, auto lanes) { store(out + i, load(x + i, lanes), lanes); });
}

#ifdef TRIDENT_ROW_KERNEL  // the loops of processors

TRIDENT_ROW_KERNEL add_bias(RowType t, void* x, const void* bias, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      auto* row = as(x, type) + r * width;
      add_row(kTeam, row, row, as(bias, type), width);
    }
  });
}

TRIDENT_ROW_KERNEL add_bias_residual(RowType t, void* x, const void* bias, const void* residual, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      add_residual_row(kTeam, as(x, type) + r * width, as(bias, type), as(residual, type) + r * width, width);
  });
}

TRIDENT_ROW_KERNEL sum_rows(RowType t, float* out, const void* x, const void* times, I rows, I width, Accumulate accumulate) {
  if (accumulate == Accumulate::kNo) zero_bytes(out, width * 4);
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const auto* row = as(x, type) + r * width;
      if (times == nullptr)
        accumulate_row(kTeam, out, row, width);
      else
        accumulate_product_row(kTeam, out, row, as(times, type) + r * width, width);
    }
  });
}

TRIDENT_ROW_KERNEL scale_columns(RowType t, void* out, const void* x, const float* factor, float shift, I rows, I width,
                                 Accumulate accumulate) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      scale_row(kTeam, as(out, type) + r * width, as(x, type) + r * width, factor, shift, width, accumulate);
  });
}

TRIDENT_ROW_KERNEL add(RowType t, void* out, const void* a, const void* b, I count) {
  with_type(t, [&](auto* type) { add_row(kTeam, as(out, type), as(a, type), as(b, type), count); });
}

// Sums to which only zeros would be added are not read: a tied weight's lookup gradient is zero in nearly all rows.
TRIDENT_ROW_KERNEL accumulate(float* out, const float* x, I count) {
  constexpr I kBlock = 64;
  for (I i = 0; i < count; i += kBlock) {
    const I n = count - i < kBlock ? count - i : kBlock;
    U32s any{};
    kTeam.each(n, [&](I k, auto lanes) { any |= bits_of(load(x + i + k, lanes)); });
    std::uint32_t bits = 0;
    for (int lane = 0; lane < kLanes; ++lane) bits |= any[lane];
    if (bits << 1 != 0) accumulate_row(kTeam, out + i, x + i, n);
  }
}

TRIDENT_ROW_KERNEL convert(RowType out_type, void* out, RowType in_type, const void* x, I count) {
  if (out_type == in_type) return copy_bytes(out, x, count * bytes_of(in_type));
  with_type(in_type == RowType::kF32 ? out_type : in_type, [&](auto* narrow) {
    if constexpr (!is_same<decltype(narrow), float*>) {
      if (out_type == RowType::kF32)
        convert_row(kTeam, static_cast<float*>(out), as(x, narrow), count);
      else
        convert_row(kTeam, as(out, narrow), static_cast<const float*>(x), count);
    }
  });
}

TRIDENT_ROW_KERNEL fill_zero(void* out, I bytes) { zero_bytes(out, bytes); }

TRIDENT_ROW_KERNEL embedding_forward(RowType t, void* out, const std::int32_t* tokens, const void* table, I rows, I width,
                                     I first_row, I table_rows) {
  const I bytes = width * bytes_of(t);
  for (I r = 0; r < rows; ++r) {
    const I row = tokens[r] - first_row;
    char* to = static_cast<char*>(out) + r * bytes;
    if (row >= 0 && row < table_rows)
      copy_bytes(to, static_cast<const char*>(table) + row * bytes, bytes);
    else
      zero_bytes(to, bytes);
  }
}

TRIDENT_ROW_KERNEL embedding_backward(RowType t, float* d_table, const void* d_out, const std::int32_t* tokens, I rows, I width,
                                      I first_row, I table_rows) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const I row = tokens[r] - first_row;
      if (row >= 0 && row < table_rows) accumulate_row(kTeam, d_table + row * width, as(d_out, type) + r * width, width);
    }
  });
}

#endif
