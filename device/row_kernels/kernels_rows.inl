// Table functions on rows: heads, norms, activations, embedding, cross-entropy. Part of kernels_impl.inl.

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

TRIDENT_ROW_KERNEL rms_norm_forward(RowType t, void* y, float* rstd, const void* x, const void* weight, I rows, I width,
                                    float eps) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      rms_norm_row(kTeam, as(y, type) + r * width, rstd + r, as(x, type) + r * width, as(weight, type), width, eps);
  });
}

TRIDENT_ROW_KERNEL rms_norm_backward(RowType t, void* d_x, float* d_weight, const void* d_y, const void* x, const void* weight,
                                     const float* rstd, I rows, I width, Accumulate accumulate_x, Accumulate accumulate_weight) {
  if (accumulate_weight == Accumulate::kNo) zero_bytes(d_weight, width * 4);
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      rms_norm_backward_row(kTeam, as(d_x, type) + r * width, d_weight, as(d_y, type) + r * width, as(x, type) + r * width,
                            as(weight, type), rstd[r], width, accumulate_x);
  });
}

TRIDENT_ROW_KERNEL rms_norm_squares(RowType t, float* squares, const void* x, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) squares[r] = rms_norm_squares_of(kTeam, as(x, type) + r * width, width);
  });
}

TRIDENT_ROW_KERNEL rms_norm_apply(RowType t, void* y, float* rstd, const void* x, const void* weight, const float* squares, I rows,
                                  I width, I total, float eps) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      rms_norm_apply_row(kTeam, as(y, type) + r * width, rstd + r, as(x, type) + r * width, as(weight, type), squares[r], width,
                         total, eps);
  });
}

TRIDENT_ROW_KERNEL rms_norm_dots(RowType t, float* dots, const void* d_y, const void* x, const void* weight, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      dots[r] = rms_norm_dots_of(kTeam, as(d_y, type) + r * width, as(x, type) + r * width, as(weight, type), width);
  });
}

TRIDENT_ROW_KERNEL rms_norm_apply_backward(RowType t, void* d_x, float* d_weight, const void* d_y, const void* x,
                                           const void* weight, const float* rstd, const float* dots, I rows, I width, I total,
                                           Accumulate accumulate_x, Accumulate accumulate_weight) {
  if (accumulate_weight == Accumulate::kNo) zero_bytes(d_weight, width * 4);
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      rms_norm_apply_backward_row(kTeam, as(d_x, type) + r * width, d_weight, as(d_y, type) + r * width, as(x, type) + r * width,
                                  as(weight, type), rstd[r], dots[r], width, total, accumulate_x);
  });
}

TRIDENT_ROW_KERNEL layer_norm_forward(RowType t, void* y, float* mean, float* rstd, const void* x, const void* weight,
                                      const void* bias, I rows, I width, float eps) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      layer_norm_row(kTeam, as(y, type) + r * width, mean + r, rstd + r, as(x, type) + r * width, as(weight, type), as(bias, type),
                     width, eps);
  });
}

TRIDENT_ROW_KERNEL layer_norm_backward(RowType t, void* d_x, float* d_weight, float* d_bias, const void* d_y, const void* x,
                                       const void* weight, const float* mean, const float* rstd, I rows, I width,
                                       Accumulate accumulate_x, Accumulate accumulate_weight) {
  if (accumulate_weight == Accumulate::kNo) {
    zero_bytes(d_weight, width * 4);
    zero_bytes(d_bias, width * 4);
  }
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      layer_norm_backward_row(kTeam, as(d_x, type) + r * width, d_weight, d_bias, as(d_y, type) + r * width,
                              as(x, type) + r * width, as(weight, type), mean[r], rstd[r], width, accumulate_x);
  });
}

TRIDENT_ROW_KERNEL swiglu_forward(RowType t, void* out, const void* gate_up, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const auto* gate = as(gate_up, type) + r * 2 * width;
      swiglu_row(kTeam, as(out, type) + r * width, gate, gate + width, width);
    }
  });
}

TRIDENT_ROW_KERNEL swiglu_backward(RowType t, void* d_gate_up, const void* d_out, const void* gate_up, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const auto* gate = as(gate_up, type) + r * 2 * width;
      auto* d_gate = as(d_gate_up, type) + r * 2 * width;
      swiglu_backward_row(kTeam, d_gate, d_gate + width, as(d_out, type) + r * width, gate, gate + width, width);
    }
  });
}

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

// Columns of the shard that are not padding.
TRIDENT_ROW_BODY I valid_columns(const VocabularyShard& shard) {
  const I valid = shard.vocabulary - shard.first_column;
  return valid < 0 ? 0 : valid < shard.columns ? valid : shard.columns;
}

// The target's column in the shard, or -1: held elsewhere or not counted.
TRIDENT_ROW_BODY I target_column(std::int32_t target, const VocabularyShard& shard) {
  const I column = target - shard.first_column;
  return target >= 0 && column >= 0 && column < valid_columns(shard) ? column : -1;
}

TRIDENT_ROW_KERNEL cross_entropy_max(RowType t, float* row_max, const void* logits, I rows, const VocabularyShard& shard) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) row_max[r] = largest_logit(kTeam, as(logits, type) + r * shard.columns, valid_columns(shard));
  });
}

TRIDENT_ROW_KERNEL cross_entropy_stats(RowType t, float* sum_exp, float* target_logit, const void* logits, const float* row_max,
                                       const std::int32_t* targets, I rows, const VocabularyShard& shard) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const auto* row = as(logits, type) + r * shard.columns;
      sum_exp[r] = sum_of_exponentials(kTeam, row, row_max[r], valid_columns(shard));
      const I target = target_column(targets[r], shard);
      target_logit[r] = target >= 0 ? load(row + target, SomeLanes{1})[0] - row_max[r] : 0.0f;
    }
  });
}

TRIDENT_ROW_KERNEL cross_entropy_backward(RowType t, void* logits, const float* row_max, const float* sum_exp,
                                          const std::int32_t* targets, I rows, const VocabularyShard& shard, float scale) {
  const I valid = valid_columns(shard);
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      auto* row = as(logits, type) + r * shard.columns;
      const I used = targets[r] < 0 ? 0 : valid;
      if (used > 0) cross_entropy_backward_row(kTeam, row, row_max[r], sum_exp[r], target_column(targets[r], shard), valid, scale);
      zero_bytes(row + used, (shard.columns - used) * bytes_of(t));
    }
  });
}
