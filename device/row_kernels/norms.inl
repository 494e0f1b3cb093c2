// RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba, Kiros and Hinton 2016), one row at a time.

// y = round_T(x * rstd) * weight.
template <class Team, class T>
TRIDENT_ROW_BODY void rms_norm_row(const Team& team, T* y, float* rstd, const T* x, const T* weight, I width, float eps) {
  const float squares = team.sum(width, [&](I i, auto lanes) {
    const auto a = load(x + i, lanes);
    return a * a;
  });
  const float s = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + eps);
  team.each(width, [&](I i, auto lanes) { store(y + i, round_to<T>(load(x + i, lanes) * s) * load(weight + i, lanes), lanes); });
  *rstd = s;
}

// d_x (+)= rstd * (g - xhat * mean(g * xhat)) with g = d_y * weight and xhat = x * rstd; d_weight += d_y * round_T(xhat).
template <class Team, class T>
TRIDENT_ROW_BODY void rms_norm_backward_row(const Team& team, T* d_x, float* d_weight, const T* d_y, const T* x, const T* weight,
                                            float rstd, I width, Accumulate accumulate_x) {
  const float dot =
      team.sum(width, [&](I i, auto lanes) { return load(x + i, lanes) * (load(d_y + i, lanes) * load(weight + i, lanes)); });
  const float mean = dot * rstd / static_cast<float>(width);
  team.each(width, [&](I i, auto lanes) {
    const auto xhat = load(x + i, lanes) * rstd, dy = load(d_y + i, lanes);
    store(d_weight + i, load(d_weight + i, lanes) + dy * round_to<T>(xhat), lanes);
    auto dx = (dy * load(weight + i, lanes) - xhat * mean) * rstd;
    if (accumulate_x == Accumulate::kYes) dx = dx + load(d_x + i, lanes);
    store(d_x + i, dx, lanes);
  });
}

// y = (x - mean) * rstd * weight + bias. The variance is taken in a second pass around the mean: no cancellation.
template <class Team, class T>
TRIDENT_ROW_BODY void layer_norm_row(const Team& team, T* y, float* mean, float* rstd, const T* x, const T* weight, const T* bias,
                                     I width, float eps) {
  const float n = static_cast<float>(width);
  const float m = team.sum(width, [&](I i, auto lanes) { return load(x + i, lanes); }) / n;
  const float squares = team.sum(width, [&](I i, auto lanes) {
    const auto a = load(x + i, lanes) - m;
    return a * a;
  });
  const float s = 1.0f / __builtin_sqrtf(squares / n + eps);
  team.each(width, [&](I i, auto lanes) {
    store(y + i, (load(x + i, lanes) - m) * s * load(weight + i, lanes) + load(bias + i, lanes), lanes);
  });
  *mean = m;
  *rstd = s;
}

// d_x (+)= rstd * (g - mean(g) - xhat * mean(g * xhat)); d_weight += d_y * xhat; d_bias += d_y.
template <class Team, class T>
TRIDENT_ROW_BODY void layer_norm_backward_row(const Team& team, T* d_x, float* d_weight, float* d_bias, const T* d_y, const T* x,
                                              const T* weight, float mean, float rstd, I width, Accumulate accumulate_x) {
  const PairSum sums = team.sum_pair(width, [&](I i, auto lanes) {
    const auto g = load(d_y + i, lanes) * load(weight + i, lanes);
    return PairVec{g, g * ((load(x + i, lanes) - mean) * rstd)};
  });
  const float mean_g = sums.first / static_cast<float>(width), mean_gx = sums.second / static_cast<float>(width);
  team.each(width, [&](I i, auto lanes) {
    const auto xhat = (load(x + i, lanes) - mean) * rstd, dy = load(d_y + i, lanes);
    store(d_weight + i, load(d_weight + i, lanes) + dy * xhat, lanes);
    store(d_bias + i, load(d_bias + i, lanes) + dy, lanes);
    auto dx = (dy * load(weight + i, lanes) - mean_g - xhat * mean_gx) * rstd;
    if (accumulate_x == Accumulate::kYes) dx = dx + load(d_x + i, lanes);
    store(d_x + i, dx, lanes);
  });
}
