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
