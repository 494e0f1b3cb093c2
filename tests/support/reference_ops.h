// The operations of device/ops.h as plain loops over scalars of type R (float or double): the judge of every backend.
//
// Written for reading, not for speed; same formulas and layouts as device/ops.h, without rounding to a storage type. The backward
// functions are proven by central differences in double (tests/device/reference_gradients_test.cpp). Outputs are overwritten unless
// the comment says "adds". Matrix products and attention: tests/support/reference_attention.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/philox.h"

namespace trident::reference {

using Index = std::int64_t;

// ---- heads
// -----------------------------------------------------------------------------------------------------------------------

// heads [B,n,S,D] <- columns first_column.. of rows [S,B,C].
template <class R>
void split_heads(R* heads, const R* rows, Index B, Index n, Index S, Index D, Index C, Index first_column) {
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < n; ++h)
      for (Index s = 0; s < S; ++s)
        for (Index d = 0; d < D; ++d) heads[((b * n + h) * S + s) * D + d] = rows[(s * B + b) * C + first_column + h * D + d];
}

template <class R>
void merge_heads(R* rows, const R* heads, Index B, Index n, Index S, Index D, Index C, Index first_column) {
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < n; ++h)
      for (Index s = 0; s < S; ++s)
        for (Index d = 0; d < D; ++d) rows[(s * B + b) * C + first_column + h * D + d] = heads[((b * n + h) * S + s) * D + d];
}

// x [B,n,S,D] in place; direction +1 rotates, -1 rotates back.
template <class R>
void rope(R* x, const R* cos, const R* sin, const std::int32_t* position, Index B, Index n, Index S, Index D, Index half,
          int direction) {
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < n; ++h)
      for (Index s = 0; s < S; ++s)
        for (Index j = 0; j < half; ++j) {
          R* head = x + ((b * n + h) * S + s) * D;
          const R c = cos[position[b * S + s] * half + j], t = sin[position[b * S + s] * half + j] * R(direction);
          const R a = head[j], o = head[half + j];
          head[j] = a * c - o * t;
          head[half + j] = o * c + a * t;
        }
}

// ---- norms
// -----------------------------------------------------------------------------------------------------------------------

template <class R>
void rms_norm_forward(R* y, R* rstd, const R* x, const R* weight, Index rows, Index H, R eps) {
  for (Index r = 0; r < rows; ++r) {
    R squares = 0;
    for (Index i = 0; i < H; ++i) squares += x[r * H + i] * x[r * H + i];
    rstd[r] = R(1) / std::sqrt(squares / R(H) + eps);
    for (Index i = 0; i < H; ++i) y[r * H + i] = x[r * H + i] * rstd[r] * weight[i];
  }
}

// d_weight: adds.
template <class R>
void rms_norm_backward(R* d_x, R* d_weight, const R* d_y, const R* x, const R* weight, const R* rstd, Index rows, Index H) {
  for (Index r = 0; r < rows; ++r) {
    const R *gy = d_y + r * H, *xr = x + r * H;
    R mean = 0;
    for (Index i = 0; i < H; ++i) mean += gy[i] * weight[i] * xr[i] * rstd[r] / R(H);
    for (Index i = 0; i < H; ++i) {
      const R xhat = xr[i] * rstd[r], g = gy[i];
      d_weight[i] += g * xhat;
      d_x[r * H + i] = (g * weight[i] - xhat * mean) * rstd[r];
    }
  }
}

// The same of parts of rows `total` wide: sums of a part; y and gradients of a part from sums over all.
template <class R>
void rms_norm_squares(R* squares, const R* x, Index rows, Index H) {
  for (Index r = 0; r < rows; ++r) {
    squares[r] = 0;
    for (Index i = 0; i < H; ++i) squares[r] += x[r * H + i] * x[r * H + i];
  }
}

template <class R>
void rms_norm_apply(R* y, R* rstd, const R* x, const R* weight, const R* squares, Index rows, Index H, Index total, R eps) {
  for (Index r = 0; r < rows; ++r) {
    rstd[r] = R(1) / std::sqrt(squares[r] / R(total) + eps);
    for (Index i = 0; i < H; ++i) y[r * H + i] = x[r * H + i] * rstd[r] * weight[i];
  }
}

template <class R>
void rms_norm_dots(R* dots, const R* d_y, const R* x, const R* weight, Index rows, Index H) {
  for (Index r = 0; r < rows; ++r) {
    dots[r] = 0;
    for (Index i = 0; i < H; ++i) dots[r] += d_y[r * H + i] * weight[i] * x[r * H + i];
  }
}

// d_weight: adds.
template <class R>
void rms_norm_apply_backward(R* d_x, R* d_weight, const R* d_y, const R* x, const R* weight, const R* rstd, const R* dots,
                             Index rows, Index H, Index total) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = r * H; i < (r + 1) * H; ++i) {
      const R xhat = x[i] * rstd[r], g = d_y[i];
      d_weight[i - r * H] += g * xhat;
      d_x[i] = (g * weight[i - r * H] - xhat * dots[r] * rstd[r] / R(total)) * rstd[r];
    }
  }
}

template <class R>
void layer_norm_forward(R* y, R* mean, R* rstd, const R* x, const R* weight, const R* bias, Index rows, Index H, R eps) {
  for (Index r = 0; r < rows; ++r) {
    R sum = 0, squares = 0;
    for (Index i = 0; i < H; ++i) sum += x[r * H + i];
    mean[r] = sum / R(H);
    for (Index i = 0; i < H; ++i) squares += (x[r * H + i] - mean[r]) * (x[r * H + i] - mean[r]);
    rstd[r] = R(1) / std::sqrt(squares / R(H) + eps);
    for (Index i = 0; i < H; ++i) y[r * H + i] = (x[r * H + i] - mean[r]) * rstd[r] * weight[i] + bias[i];
  }
}

// d_weight, d_bias: adds.
template <class R>
void layer_norm_backward(R* d_x, R* d_weight, R* d_bias, const R* d_y, const R* x, const R* weight, const R* mean, const R* rstd,
                         Index rows, Index H) {
  for (Index r = 0; r < rows; ++r) {
    const R *gy = d_y + r * H, *xr = x + r * H;
    R mean_g = 0, mean_gx = 0;
    for (Index i = 0; i < H; ++i) {
      mean_g += gy[i] * weight[i] / R(H);
      mean_gx += gy[i] * weight[i] * (xr[i] - mean[r]) * rstd[r] / R(H);
    }
    for (Index i = 0; i < H; ++i) {
      const R xhat = (xr[i] - mean[r]) * rstd[r], g = gy[i];
      d_weight[i] += g * xhat;
      d_bias[i] += g;
      d_x[r * H + i] = (g * weight[i] - mean_g - xhat * mean_gx) * rstd[r];
    }
  }
}

// ---- activations
// -----------------------------------------------------------------------------------------------------------------

template <class R>
R sigmoid(R x) {
  return R(1) / (R(1) + std::exp(-x));
}

// gate_up [R,2F] = [gate | up].
template <class R>
void swiglu_forward(R* out, const R* gate_up, Index rows, Index F) {
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < F; ++i) {
      const R g = gate_up[r * 2 * F + i], u = gate_up[r * 2 * F + F + i];
      out[r * F + i] = g * sigmoid(g) * u;
    }
}

template <class R>
void swiglu_backward(R* d_gate_up, const R* d_out, const R* gate_up, Index rows, Index F) {
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < F; ++i) {
      const R g = gate_up[r * 2 * F + i], u = gate_up[r * 2 * F + F + i], d = d_out[r * F + i], s = sigmoid(g);
      d_gate_up[r * 2 * F + i] = d * u * s * (R(1) + g * (R(1) - s));
      d_gate_up[r * 2 * F + F + i] = d * g * s;
    }
}

template <class R>
constexpr R kRootTwoOverPi = R(0.79788456080286535588);

template <class R>
void gelu_forward(R* out, const R* x, Index count) {
  for (Index i = 0; i < count; ++i)
    out[i] = R(0.5) * x[i] * (R(1) + std::tanh(kRootTwoOverPi<R> * (x[i] + R(0.044715) * x[i] * x[i] * x[i])));
}

template <class R>
void gelu_backward(R* d_x, const R* d_out, const R* x, Index count) {
  for (Index i = 0; i < count; ++i) {
    const R a = x[i], t = std::tanh(kRootTwoOverPi<R> * (a + R(0.044715) * a * a * a));
    const R slope = kRootTwoOverPi<R> * (R(1) + R(3) * R(0.044715) * a * a);
    d_x[i] = d_out[i] * (R(0.5) * (R(1) + t) + R(0.5) * a * (R(1) - t * t) * slope);
  }
}

// ---- bounds

template <class R>
void clip_forward(R* out, const R* x, Index count, R limit) {
  for (Index i = 0; i < count; ++i) out[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

template <class R>
void clip_backward(R* d_x, const R* d_out, const R* x, Index count, R limit) {
  for (Index i = 0; i < count; ++i) d_x[i] = std::abs(x[i]) <= limit ? d_out[i] : R(0);
}

// ---- embedding
// -------------------------------------------------------------------------------------------------------------------

template <class R>
void embedding_forward(R* out, const std::int32_t* tokens, const R* table, Index rows, Index H, Index first_row, Index table_rows) {
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < H; ++i) {
      const Index row = tokens[r] - first_row;
      out[r * H + i] = row >= 0 && row < table_rows ? table[row * H + i] : R(0);
    }
}

// Adds.
template <class R>
void embedding_backward(R* d_table, const R* d_out, const std::int32_t* tokens, Index rows, Index H, Index first_row,
                        Index table_rows) {
  for (Index r = 0; r < rows; ++r) {
    const Index row = tokens[r] - first_row;
    for (Index i = 0; row >= 0 && row < table_rows && i < H; ++i) d_table[row * H + i] += d_out[r * H + i];
  }
}

// ---- cross-entropy: logits [R,V], columns first_column + c >= vocabulary are padding
// ------------------------------------------------

template <class R>
R bounded(R logit, R softcap) {
  return softcap > 0 ? softcap * std::tanh(logit / softcap) : logit;
}

template <class R>
void cross_entropy_max(R* row_max, const R* logits, Index rows, Index V, Index first_column, Index vocabulary, R softcap = 0) {
  for (Index r = 0; r < rows; ++r) {
    row_max[r] = -std::numeric_limits<R>::infinity();
    for (Index c = 0; c < V && first_column + c < vocabulary; ++c)
      row_max[r] = std::max(row_max[r], bounded(logits[r * V + c], softcap));
  }
}

// stats [2,R]. A target beside an earlier logit that is as large is not the arg max.
template <class R>
void cross_entropy_stats(R* stats, const R* logits, const R* row_max, const std::int32_t* targets, Index rows, Index V,
                         Index first_column, Index vocabulary, R softcap = 0) {
  for (Index r = 0; r < rows; ++r) {
    stats[r] = stats[rows + r] = 0;
    bool earlier = false;
    for (Index c = 0; c < V && first_column + c < vocabulary; ++c) {
      const R logit = bounded(logits[r * V + c], softcap);
      stats[r] += std::exp(logit - row_max[r]);
      if (targets[r] >= 0 && targets[r] == first_column + c)
        stats[rows + r] = logit - row_max[r] - (earlier ? R(std::numeric_limits<float>::min()) : R(0));
      earlier = earlier || logit == row_max[r];
    }
  }
}

// The loss over rows that are counted, and of each row without its weight; stats summed over shards.
template <class R>
R cross_entropy_loss(const R* stats, const std::int32_t* targets, Index rows, R* row_losses = nullptr, const R* weights = nullptr) {
  R sum = 0;
  for (Index r = 0; r < rows; ++r) {
    const R term = targets[r] >= 0 ? std::log(stats[r]) - stats[rows + r] : R(0);
    sum += weights != nullptr ? weights[r] * term : term;
    if (row_losses != nullptr) row_losses[r] = term;
  }
  return sum;
}

template <class R>
void cross_entropy_backward(R* logits, const R* row_max, const R* stats, const std::int32_t* targets, Index rows, Index V,
                            Index first_column, Index vocabulary, R scale, R softcap = 0, const R* weights = nullptr) {
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < V; ++c) {
      const R weight = weights != nullptr ? weights[r] : R(1);
      R& logit = logits[r * V + c];
      const bool counted = targets[r] >= 0 && first_column + c < vocabulary;
      const R slope = softcap > 0 ? 1 - std::pow(std::tanh(logit / softcap), R(2)) : R(1), value = bounded(logit, softcap);
      const R onehot = R(targets[r] == first_column + c);
      logit = counted ? (std::exp(value - row_max[r]) / stats[r] - onehot) * scale * weight * slope : R(0);
    }
}

// ---- elementwise, reductions
// -------------------------------------------------------------------------------------------------------

template <class R>
void add_bias(R* x, const R* bias, Index rows, Index C) {
  for (Index i = 0; i < rows * C; ++i) x[i] += bias[i % C];
}

// Adds.
template <class R>
void sum_rows(R* out, const R* x, Index rows, Index C) {
  for (Index i = 0; i < rows * C; ++i) out[i % C] += x[i];
}

template <class R>
void add(R* out, const R* a, const R* b, Index count) {
  for (Index i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

template <class R>
void accumulate(R* out, const R* x, Index count) {
  for (Index i = 0; i < count; ++i) out[i] += x[i];
}

// x [S,B,H]; samples [B].
template <class R>
void dropout(R* out, const R* x, Index S, Index B, Index H, float probability, PhiloxKey key, Index sequence, Index position_offset,
             const std::int64_t* samples, Index all_columns = 0, Index first_column = 0) {
  for (Index s = 0; s < S; ++s)
    for (Index b = 0; b < B; ++b)
      for (Index h = 0; h < H; ++h) {
        const Index number = (samples[b] * sequence + position_offset + s) * (all_columns > 0 ? all_columns : H) + first_column + h;
        const Index i = (s * B + b) * H + h;
        const bool kept = uniform_at(key, static_cast<std::uint64_t>(number)) > probability;
        out[i] = kept ? x[i] / (R(1) - R(probability)) : R(0);
      }
}

// out [ceil(count/64)].
template <class R>
void sum_squares(double* out, const R* x, Index count) {
  for (Index i = 0; i < count; ++i) {
    if (i % 64 == 0) out[i / 64] = 0;
    out[i / 64] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
}

// ---- optimizer
// ---------------------------------------------------------------------------------------------------------------------

template <class R>
struct AdamW {
  R lr, beta1, beta2, eps, weight_decay, grad_scale, bias_correction1, bias_correction2;
};

template <class R>
void adamw(R* master, R* m, R* v, const R* grad, Index count, const AdamW<R>& p) {
  for (Index i = 0; i < count; ++i) {
    const R g = grad[i] * p.grad_scale;
    m[i] = p.beta1 * m[i] + (R(1) - p.beta1) * g;
    v[i] = p.beta2 * v[i] + (R(1) - p.beta2) * g * g;
    const R update = m[i] * p.bias_correction1 / (std::sqrt(v[i] * p.bias_correction2) + p.eps);
    master[i] -= p.lr * (update + p.weight_decay * master[i]);
  }
}

template <class R>
struct Lion {
  R lr, beta1, beta2, weight_decay, grad_scale;
};

template <class R>
void lion(R* master, R* m, const R* grad, Index count, const Lion<R>& p) {
  for (Index i = 0; i < count; ++i) {
    const R g = grad[i] * p.grad_scale, c = p.beta1 * m[i] + (R(1) - p.beta1) * g;
    const R sign = c > 0 ? R(1) : c < 0 ? R(-1) : c;
    master[i] = (R(1) - p.lr * p.weight_decay) * master[i] - p.lr * sign;
    m[i] = p.beta2 * m[i] + (R(1) - p.beta2) * g;
  }
}

}  // namespace trident::reference
