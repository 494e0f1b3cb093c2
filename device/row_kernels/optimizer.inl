// AdamW: see AdamWParams in device/ops.h. `param` may be `master` itself, so it is stored last and never loaded.
// `rounded`(i, master, lanes): what is stored as parameter, and rounded to nearest then.
template <class Team, class T, class Rounded>
TRIDENT_ROW_BODY void adamw_row(const Team& team, T* param, float* master, float* m, float* v, const float* grad, I count,
                                const AdamWStep& step, Rounded&& rounded) {
  const float lr = step.lr, beta1 = step.beta1, beta2 = step.beta2, eps = step.eps, decay = step.weight_decay;
  const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
  const float scale = step.grad_scale, correction1 = step.bias_correction1, correction2 = step.bias_correction2;
  team.each(count, [&](I i, auto lanes) {
    const auto g = load(grad + i, lanes) * scale;
    const auto mean = load(m + i, lanes) * beta1 + g * rest1;
    const auto square = load(v + i, lanes) * beta2 + (g * g) * rest2;
    const auto w = load(master + i, lanes);
    const auto update = (mean * correction1) / (square_root(square * correction2) + eps) + w * decay;
    const auto next = w - update * lr;
    store(m + i, mean, lanes);
    store(v + i, square, lanes);
    store(master + i, next, lanes);
    store(param + i, rounded(i, next, lanes), lanes);
  });
}
template <class Team, class T>
TRIDENT_ROW_BODY void adamw_row(const Team& team, T* param, float* master, float* m, float* v, const float* grad, I count,
                                const AdamWStep& step) {
  adamw_row(team, param, master, m, v, grad, count, step, [](I, const auto& next, auto) { return next; });
}
