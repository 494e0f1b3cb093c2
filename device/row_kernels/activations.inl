// SwiGLU (Shazeer 2020), GELU in its tanh form (Hendrycks and Gimpel 2016), and bounds.

// 1 / (1 + exp(-x)).
TRIDENT_ROW_BODY RowVec sigmoid(RowVec x) { return broadcast(1.0f) / (exponential(-x) + 1.0f); }

template <class Team, class T>
TRIDENT_ROW_BODY void swiglu_row(const Team& team, T* out, const T* gate, const T* up, I width) {
  team.each(width, [&](I i, auto lanes) {
    const auto g = load(gate + i, lanes);
    store(out + i, g * sigmoid(g) * load(up + i, lanes), lanes);
  });
}

// silu'(g) = s (1 + g (1 - s)) with s = sigmoid(g). d_out becomes what swiglu_row() gives.
template <class Team, class T>
TRIDENT_ROW_BODY void swiglu_backward_row(const Team& team, T* d_gate, T* d_up, T* d_out, const T* gate, const T* up,
                                          I width) {
  team.each(width, [&](I i, auto lanes) {
    const auto g = load(gate + i, lanes), u = load(up + i, lanes), d = load(d_out + i, lanes);
    const auto s = sigmoid(g), silu = g * s;
    store(d_gate + i, d * u * (s * fma(g, broadcast(1.0f) - s, broadcast(1.0f))), lanes);
    store(d_up + i, d * silu, lanes);
    store(d_out + i, silu * u, lanes);
  });
}

// gelu(x) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), because 1 + tanh(u) = 2 sigmoid(2u): no cancellation at either end.
// Beyond |x| = 16 the sigmoid is 0 or 1 to the last bit; the bound keeps x^3 finite.
static constexpr float kTwiceRootTwoOverPi = 1.5957691216f;
static constexpr float kGeluCubic = 0.044715f;
TRIDENT_ROW_BODY RowVec gelu_bounded(RowVec x) { return larger(broadcast(-16.0f), smaller(broadcast(16.0f), x)); }
TRIDENT_ROW_BODY RowVec gelu_gate(RowVec x) {
  return sigmoid(x * fma(x * x, broadcast(kGeluCubic * kTwiceRootTwoOverPi), broadcast(kTwiceRootTwoOverPi)));
}

template <class Team, class T>
TRIDENT_ROW_BODY void gelu_row(const Team& team, T* out, const T* x, I count) {
  team.each(count, [&](I i, auto lanes) {
    const auto a = load(x + i, lanes);
    store(out + i, a * gelu_gate(gelu_bounded(a)), lanes);
  });
}

// x += bias, as it is stored; out = gelu(x).
template <class Team, class T>
TRIDENT_ROW_BODY void bias_gelu_row(const Team& team, T* out, T* x, const T* bias, I width) {
  team.each(width, [&](I i, auto lanes) {
    const auto a = round_to<T>(load(x + i, lanes) + load(bias + i, lanes));
    store(x + i, a, lanes);
    store(out + i, a * gelu_gate(gelu_bounded(a)), lanes);
  });
}

// gelu'(x) = s + x s (1 - s) (2u)'. d_out becomes gelu(x).
template <class Team, class T>
TRIDENT_ROW_BODY void gelu_backward_row(const Team& team, T* d_x, T* d_out, const T* x, I count) {
  team.each(count, [&](I i, auto lanes) {
    const auto whole = load(x + i, lanes), a = gelu_bounded(whole);
    const auto s = gelu_gate(a);
    const auto slope = fma(a * a, broadcast(3.0f * kGeluCubic * kTwiceRootTwoOverPi), broadcast(kTwiceRootTwoOverPi));
    store(d_x + i, load(d_out + i, lanes) * fma(a * s * (broadcast(1.0f) - s), slope, s), lanes);
    store(d_out + i, whole * s, lanes);
  });
}

// x between -limit and limit; NaN stays NaN.
TRIDENT_ROW_BODY RowVec clipped(RowVec x, float limit) { return larger(broadcast(-limit), smaller(broadcast(limit), x)); }

template <class Team, class T>
TRIDENT_ROW_BODY void clip_row(const Team& team, T* out, const T* x, I count, float limit) {
  team.each(count, [&](I i, auto lanes) { store(out + i, clipped(load(x + i, lanes), limit), lanes); });
}

// The bounds themselves are inside.
template <class Team, class T>
TRIDENT_ROW_BODY void clip_backward_row(const Team& team, T* d_x, const T* d_out, const T* x, I count, float limit) {
  team.each(count, [&](I i, auto lanes) {
    const auto a = load(x + i, lanes);
    const auto outside = sign(a - clipped(a, limit));
    store(d_x + i, load(d_out + i, lanes) * (broadcast(1.0f) - outside * outside), lanes);
  });
}

#ifdef TRIDENT_ROW_KERNEL  // the loops of processors

TRIDENT_ROW_KERNEL swiglu_forward(RowType t, void* out, const void* gate_up, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const auto* gate = as(gate_up, type) + r * 2 * width;
      swiglu_row(kTeam, as(out, type) + r * width, gate, gate + width, width);
    }
  });
}

TRIDENT_ROW_KERNEL swiglu_backward(RowType t, void* d_gate_up, void* d_out, const void* gate_up, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      const auto* gate = as(gate_up, type) + r * 2 * width;
      auto* d_gate = as(d_gate_up, type) + r * 2 * width;
      swiglu_backward_row(kTeam, d_gate, d_gate + width, as(d_out, type) + r * width, gate, gate + width, width);
    }
  });
}

TRIDENT_ROW_KERNEL gelu_forward(RowType t, void* out, const void* x, I count) {
  with_type(t, [&](auto* type) { gelu_row(kTeam, as(out, type), as(x, type), count); });
}

TRIDENT_ROW_KERNEL bias_gelu(RowType t, void* out, void* x, const void* bias, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r)
      bias_gelu_row(kTeam, as(out, type) + r * width, as(x, type) + r * width, as(bias, type), width);
  });
}

TRIDENT_ROW_KERNEL gelu_backward(RowType t, void* d_x, void* d_out, const void* x, I count) {
  with_type(t, [&](auto* type) { gelu_backward_row(kTeam, as(d_x, type), as(d_out, type), as(x, type), count); });
}

TRIDENT_ROW_KERNEL clip_forward(RowType t, void* out, const void* x, I count, float limit) {
  with_type(t, [&](auto* type) { clip_row(kTeam, as(out, type), as(x, type), count, limit); });
}

TRIDENT_ROW_KERNEL clip_backward(RowType t, void* d_x, const void* d_out, const void* x, I count, float limit) {
  with_type(t, [&](auto* type) { clip_backward_row(kTeam, as(d_x, type), as(d_out, type), as(x, type), count, limit); });
}

#endif
