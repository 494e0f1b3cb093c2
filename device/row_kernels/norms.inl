// RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba, Kiros and Hinton 2016), one row at a time.
//
// A Row is a const T* or whatever else gives elements to load(row + i, lanes), for rows that are kept in registers; Sums likewise
// beside float*.

// y = round_T(x * rstd) * weight.
template <class Team, class T, class Row>
TRIDENT_ROW_BODY void rms_norm_row(const Team& team, T* y, float* rstd, const Row& x, const T* weight, I width, float eps) {
  const float squares = team.sum(width, [&](auto i, auto lanes) {
    const auto a = load(x + i, lanes);
    return a * a;
  });
  const float s = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + eps);
  team.each(width, [&](auto i, auto lanes) { store(y + i, round_to<T>(load(x + i, lanes) * s) * load(weight + i, lanes), lanes); });
  if (team.leads()) *rstd = s;
}

// d_x (+)= rstd * (g - xhat * mean(g * xhat)) with g = d_y * weight and xhat = x * rstd; d_weight += d_y * round_T(xhat).
template <class Team, class T, class Row, class Sums>
TRIDENT_ROW_BODY void rms_norm_backward_row(const Team& team, T* d_x, Sums d_weight, const Row& d_y, const Row& x, const T* weight,
                                            float rstd, I width, Accumulate accumulate_x) {
  const float dot =
      team.sum(width, [&](auto i, auto lanes) { return load(x + i, lanes) * (load(d_y + i, lanes) * load(weight + i, lanes)); });
  const float mean = dot * rstd / static_cast<float>(width);
  team.each(width, [&](auto i, auto lanes) {
    const auto xhat = load(x + i, lanes) * rstd, dy = load(d_y + i, lanes);
    store(d_weight + i, load(d_weight + i, lanes) + dy * round_to<T>(xhat), lanes);
    auto dx = (dy * load(weight + i, lanes) - xhat * mean) * rstd;
    if (accumulate_x == Accumulate::kYes) dx = dx + load(d_x + i, lanes);
    store(d_x + i, dx, lanes);
  });
}

// The same norm of rows whose width is shared out: sums over all parts are given, and the weight counts before the one rounding.

template <class Team, class Row>
TRIDENT_ROW_BODY float rms_norm_squares_of(const Team& team, const Row& x, I width) {
  return team.sum(width, [&](auto i, auto lanes) {
    const auto a = load(x + i, lanes);
    return a * a;
  });
}

// y = round_T(x * rstd * weight), rstd from the squares of all `total` elements.
template <class Team, class T, class Row>
TRIDENT_ROW_BODY void rms_norm_apply_row(const Team& team, T* y, float* rstd, const Row& x, const T* weight, float squares, I width,
                                         I total, float eps) {
  const float s = 1.0f / __builtin_sqrtf(squares / static_cast<float>(total) + eps);
  team.each(width, [&](auto i, auto lanes) { store(y + i, load(x + i, lanes) * s * load(weight + i, lanes), lanes); });
  if (team.leads()) *rstd = s;
}

template <class Team, class T, class Row>
TRIDENT_ROW_BODY float rms_norm_dots_of(const Team& team, const Row& d_y, const Row& x, const T* weight, I width) {
  return team.sum(width, [&](auto i, auto lanes) { return load(x + i, lanes) * (load(d_y + i, lanes) * load(weight + i, lanes)); });
}

// d_x (+)= rstd * (g - xhat * mean(g * xhat)), the mean from the dots of all `total` elements; d_weight += d_y * xhat.
template <class Team, class T, class Row, class Sums>
TRIDENT_ROW_BODY void rms_norm_apply_backward_row(const Team& team, T* d_x, Sums d_weight, const Row& d_y, const Row& x,
                                                  const T* weight, float rstd, float dot, I width, I total,
                                                  Accumulate accumulate_x) {
  const float mean = dot * rstd / static_cast<float>(total);
  team.each(width, [&](auto i, auto lanes) {
    const auto xhat = load(x + i, lanes) * rstd, dy = load(d_y + i, lanes);
    store(d_weight + i, load(d_weight + i, lanes) + dy * xhat, lanes);
    auto dx = (dy * load(weight + i, lanes) - xhat * mean) * rstd;
    if (accumulate_x == Accumulate::kYes) dx = dx + load(d_x + i, lanes);
    store(d_x + i, dx, lanes);
  });
}

// y = (x - mean) * rstd * weight + bias. The variance is taken in a second pass around the mean: no cancellation.
template <class Team, class T, class Row>
TRIDENT_ROW_BODY void layer_norm_row(const Team& team, T* y, float* mean, float* rstd, const Row& x, const T* weight,
                                     const T* bias, I width, float eps) {
  const float n = static_cast<float>(width);
  const float m = team.sum(width, [&](auto i, auto lanes) { return load(x + i, lanes); }) / n;
  const float squares = team.sum(width, [&](auto i, auto lanes) {
    const auto a = load(x + i, lanes) - m;
    return a * a;
  });
  const float s = 1.0f / __builtin_sqrtf(squares / n + eps);
  team.each(width, [&](auto i, auto lanes) {
    store(y + i, (load(x + i, lanes) - m) * s * load(weight + i, lanes) + load(bias + i, lanes), lanes);
  });
  if (!team.leads()) return;
  *mean = m;
  *rstd = s;
}

// d_x (+)= rstd * (g - mean(g) - xhat * mean(g * xhat)); d_weight += d_y * xhat; d_bias += d_y.
template <class Team, class T, class Row, class Sums>
TRIDENT_ROW_BODY void layer_norm_backward_row(const Team& team, T* d_x, Sums d_weight, Sums d_bias, const Row& d_y, const Row& x,
                                              const T* weight, float mean, float rstd, I width, Accumulate accumulate_x) {
  const PairSum sums = team.sum_pair(width, [&](auto i, auto lanes) {
    const auto g = load(d_y + i, lanes) * load(weight + i, lanes);
    return PairVec{g, g * ((load(x + i, lanes) - mean) * rstd)};
  });
  const float mean_g = sums.first / static_cast<float>(width), mean_gx = sums.second / static_cast<float>(width);
  team.each(width, [&](auto i, auto lanes) {
    const auto xhat = (load(x + i, lanes) - mean) * rstd, dy = load(d_y + i, lanes);
    store(d_weight + i, load(d_weight + i, lanes) + dy * xhat, lanes);
    store(d_bias + i, load(d_bias + i, lanes) + dy, lanes);
    auto dx = (dy * load(weight + i, lanes) - mean_g - xhat * mean_gx) * rstd;
    if (accumulate_x == Accumulate::kYes) dx = dx + load(d_x + i, lanes);
    store(d_x + i, dx, lanes);
  });
}

#ifdef TRIDENT_ROW_KERNEL  // the loops of processors

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

// A row is normed while it is near.
TRIDENT_ROW_KERNEL residual_rms_norm(RowType t, void* y, float* rstd, void* x, const void* summed_bias, const void* residual,
                                     const void* weight, I rows, I width, float eps) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      auto* const row = as(x, type) + r * width;
      add_residual_row(kTeam, row, as(summed_bias, type), as(residual, type) + r * width, width);
      rms_norm_row(kTeam, as(y, type) + r * width, rstd + r, row, as(weight, type), width, eps);
    }
  });
}

TRIDENT_ROW_KERNEL residual_layer_norm(RowType t, void* y, float* mean, float* rstd, void* x, const void* summed_bias,
                                       const void* residual, const void* weight, const void* bias, I rows, I width, float eps) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      auto* const row = as(x, type) + r * width;
      add_residual_row(kTeam, row, as(summed_bias, type), as(residual, type) + r * width, width);
      layer_norm_row(kTeam, as(y, type) + r * width, mean + r, rstd + r, row, as(weight, type), as(bias, type), width, eps);
    }
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

#endif
