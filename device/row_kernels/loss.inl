// Cross-entropy over the vocabulary columns held here, one row at a time; `valid` columns come first, padding after them.

TRIDENT_ROW_BODY RowVec bounded(RowVec logit, float softcap) {
  return hyperbolic_tangent(logit / broadcast(softcap)) * softcap;
}

template <class Team, class T>
TRIDENT_ROW_BODY float largest_logit(const Team& team, const T* logits, I valid, float softcap) {
  if (softcap > 0.0f) return team.largest(valid, [&](I i, auto lanes) { return bounded(load(logits + i, lanes), softcap); });
  return team.largest(valid, [&](I i, auto lanes) { return load(logits + i, lanes); });
}

template <class Team, class T>
TRIDENT_ROW_BODY float sum_of_exponentials(const Team& team, const T* logits, float row_max, I valid, float softcap) {
  if (softcap > 0.0f)
    return team.sum(valid, [&](I i, auto lanes) { return exponential(bounded(load(logits + i, lanes), softcap) - row_max); });
  return team.sum(valid, [&](I i, auto lanes) { return exponential(load(logits + i, lanes) - row_max); });
}

struct LogitStatistics {
  float largest, sum_exp;
};

// In tiles, so that logits come from far away once (Milakov and Gimelshein 2018, arXiv 1805.02867).
template <class Team, class T>
TRIDENT_ROW_BODY LogitStatistics logit_statistics(const Team& team, const T* logits, I valid, float softcap, I tile) {
  LogitStatistics s{-__builtin_inff(), 0.0f};
  for (I first = 0; first < valid; first += tile) {
    const I count = valid - first < tile ? valid - first : tile;
    const float largest = largest_logit(team, logits + first, count, softcap);
    if (largest > s.largest) {
      const float below = s.largest - largest;
      if (first > 0) s.sum_exp *= team.sum(1, [&](I, auto) { return exponential(broadcast(below)); });
      s.largest = largest;
    }
    // Infinity less infinity is no number; NaNs still show.
    s.sum_exp += sum_of_exponentials(team, logits + first, s.largest == -__builtin_inff() ? 0.0f : s.largest, count, softcap);
  }
  return s;
}

// Beside the row's largest logit; `target` is its column. Where an earlier logit is as large, the target is not the arg max, and
// the smallest normal f32 says so, which no loss feels.
template <class Team, class T>
TRIDENT_ROW_BODY float relative_logit(const Team& team, const T* logits, I target, float largest, float softcap) {
  if (target < 0) return 0.0f;
  const float relative = largest_logit(team, logits + target, 1, softcap) - largest;
  return relative == 0.0f && target > 0 && largest_logit(team, logits, target, softcap) == largest ? -__FLT_MIN__ : relative;
}

// Logits become gradient(logit), the target's gradient(logit, its own 1); `target` is the column here or negative when it is
// elsewhere.
template <class Team, class T, class F>
TRIDENT_ROW_BODY void each_logit_becomes(const Team& team, T* logits, I target, I valid, const F& gradient) {
  const SomeLanes one{1};
  // The target's own value is formed apart: p - 1 must be taken before rounding.
  RowVec at_target{};
  if (target >= 0) at_target = gradient(load(logits + target, one), 1.0f);
  team.barrier();
  team.each(valid, [&](I i, auto lanes) { store(logits + i, gradient(load(logits + i, lanes), 0.0f), lanes); });
  team.barrier();
  if (target >= 0 && team.leads()) store(logits + target, at_target, one);
}

// (exp(logit - row_max) / sum_exp - onehot(target)) * scale, times the slope of the bound.
template <class Team, class T>
TRIDENT_ROW_BODY void cross_entropy_backward_row(const Team& team, T* logits, float row_max, float sum_exp, I target, I valid,
                                                 float scale, float softcap) {
  const float inverse = 1.0f / sum_exp;
  if (softcap > 0.0f) {
    each_logit_becomes(team, logits, target, valid, [&](RowVec logit, float onehot) {
      const auto part = hyperbolic_tangent(logit / broadcast(softcap));
      const auto slope = fma(-part, part, broadcast(1.0f));
      return (exponential(part * softcap - row_max) * inverse - onehot) * scale * slope;
    });
  } else {
    each_logit_becomes(team, logits, target, valid,
                       [&](RowVec logit, float onehot) { return (exponential(logit - row_max) * inverse - onehot) * scale; });
  }
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

// 16 KiB of f32: a tile stays in the first cache.
constexpr I kLogitTile = 4096;

TRIDENT_ROW_KERNEL cross_entropy_stats(RowType t, float* row_max, float* sum_exp, float* target_logit, const void* logits,
                                       const std::int32_t* targets, I rows, const VocabularyShard& shard) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const auto* row = as(logits, type) + r * shard.columns;
      const LogitStatistics s = logit_statistics(kTeam, row, valid_columns(shard), shard.softcap, kLogitTile);
      row_max[r] = s.largest;
      sum_exp[r] = s.sum_exp;
      target_logit[r] = relative_logit(kTeam, row, target_column(targets[r], shard), s.largest, shard.softcap);
    }
  });
}

TRIDENT_ROW_KERNEL cross_entropy_backward(RowType t, void* logits, const float* row_max, const float* sum_exp,
                                          const std::int32_t* targets, I rows, const VocabularyShard& shard, float scale,
                                          const float* weights) {
  const I valid = valid_columns(shard);
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      auto* row = as(logits, type) + r * shard.columns;
      const I used = targets[r] < 0 ? 0 : valid;
      if (used > 0)
        cross_entropy_backward_row(kTeam, row, row_max[r], sum_exp[r], target_column(targets[r], shard), valid,
                                   weights == nullptr ? scale : scale * weights[r], shard.softcap);
      zero_bytes(row + used, (shard.columns - used) * bytes_of(t));
    }
  });
}

TRIDENT_ROW_KERNEL cross_entropy_gradient(RowType t, void* logits, float* sum_exp, float* target_logit, const std::int32_t* targets,
                                          I rows, const VocabularyShard& shard, float scale, const float* weights) {
  const I valid = valid_columns(shard);
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      auto* row = as(logits, type) + r * shard.columns;
      const I target = target_column(targets[r], shard), used = targets[r] < 0 ? 0 : valid;
      const LogitStatistics s = logit_statistics(kTeam, row, valid, shard.softcap, kLogitTile);
      sum_exp[r] = s.sum_exp;
      target_logit[r] = relative_logit(kTeam, row, target, s.largest, shard.softcap);
      if (used > 0)
        cross_entropy_backward_row(kTeam, row, s.largest, s.sum_exp, target, valid,
                                   weights == nullptr ? scale : scale * weights[r], shard.softcap);
      zero_bytes(row + used, (shard.columns - used) * bytes_of(t));
    }
  });
}

#endif
