// Cross-entropy over the vocabulary columns held here, one row at a time; `valid` columns come first, padding after them.

template <class Team, class T>
TRIDENT_ROW_BODY float largest_logit(const Team& team, const T* logits, I valid) {
  return team.largest(valid, [&](I i, auto lanes) { return load(logits + i, lanes); });
}

template <class Team, class T>
TRIDENT_ROW_BODY float sum_of_exponentials(const Team& team, const T* logits, float row_max, I valid) {
  return team.sum(valid, [&](I i, auto lanes) { return exponential(load(logits + i, lanes) - row_max); });
}

// logits become (exp(logit - row_max) / sum_exp - onehot(target)) * scale; `target` is the column here or negative when it is
// elsewhere.
template <class Team, class T>
TRIDENT_ROW_BODY void cross_entropy_backward_row(const Team& team, T* logits, float row_max, float sum_exp, I target, I valid,
                                                 float scale) {
  const SomeLanes one{1};
  const float inverse = 1.0f / sum_exp;
  // The target's own value is formed apart: p - 1 must be taken before rounding.
  RowVec at_target{};
  if (target >= 0) at_target = (exponential(load(logits + target, one) - row_max) * inverse - 1.0f) * scale;
  team.barrier();
  team.each(valid,
            [&](I i, auto lanes) { store(logits + i, exponential(load(logits + i, lanes) - row_max) * inverse * scale, lanes); });
  team.barrier();
  if (target >= 0 && team.leads()) store(logits + target, at_target, one);
}

#ifdef TRIDENT_ROW_KERNEL  // the loops of processors

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

#endif
