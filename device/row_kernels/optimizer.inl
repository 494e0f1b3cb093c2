// The update rules of device/op_numbers.h: the new weight, and the new states in place.

template <class V>
TRIDENT_ROW_BODY V adamw_element(const UpdateNumbers& n, V g, V w, V& m, V& v) {
  m = m * n.beta1 + g * (1.0f - n.beta1);
  v = v * n.beta2 + (g * g) * (1.0f - n.beta2);
  const V update = (m * n.bias_correction1) / (square_root(v * n.bias_correction2) + n.eps) + w * n.weight_decay;
  return w - update * n.lr;
}

template <class V>
TRIDENT_ROW_BODY V lion_element(const UpdateNumbers& n, V g, V w, V& m) {
  const V update = sign(m * n.beta1 + g * (1.0f - n.beta1)) + w * n.weight_decay;
  m = m * n.beta2 + g * (1.0f - n.beta2);
  return w - update * n.lr;
}

// `param` may be `master` itself, so it is stored last and never loaded.
// `rounded`(i, master, lanes): what is stored as parameter, and rounded to nearest then.
template <UpdateRule rule, class Team, class T, class Rounded>
TRIDENT_ROW_BODY void update_row(const Team& team, T* param, float* master, const UpdateStates& states, const float* grad, I count,
                                 const UpdateNumbers& numbers, Rounded&& rounded) {
  const UpdateNumbers n = numbers;
  float *const first = states.of[0], *const second = states.of[1];
  team.each(count, [&](I i, auto lanes) {
    const auto g = load(grad + i, lanes) * n.grad_scale, w = load(master + i, lanes);
    auto a = load(first + i, lanes), next = w;
    if constexpr (rule == UpdateRule::kAdamW) {
      auto b = load(second + i, lanes);
      next = adamw_element(n, g, w, a, b);
      store(second + i, b, lanes);
    } else {
      static_assert(rule == UpdateRule::kLion);
      next = lion_element(n, g, w, a);
    }
    store(first + i, a, lanes);
    store(master + i, next, lanes);
    store(param + i, rounded(i, next, lanes), lanes);
  });
}
template <UpdateRule rule, class Team, class T>
TRIDENT_ROW_BODY void update_row(const Team& team, T* param, float* master, const UpdateStates& states, const float* grad, I count,
                                 const UpdateNumbers& numbers) {
  update_row<rule>(team, param, master, states, grad, count, numbers, [](I, const auto& next, auto) { return next; });
}

// The states from element `first` on.
template <UpdateRule rule>
TRIDENT_ROW_BODY UpdateStates states_from(const UpdateStates& states, I first) {
  constexpr int kStates = num_states(rule);
  UpdateStates part;
  for (int i = 0; i < kStates; ++i) part.of[i] = states.of[i] + first;
  return part;
}
