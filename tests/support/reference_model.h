// A whole GPT-2 or Llama-class model, forward and backward, as plain loops over scalars of type R (float or double): the judge of
// the layers. Built on reference_ops.h; its gradients are proven by central differences (tests/model/layers). Weights and gradients
// are whole tensors under their Hugging Face names in [out, in] orientation. R = S*B rows, row s*B+b.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/philox.h"
#include "model/config/model_config.h"
#include "model/config/rope_table.h"
#include "tests/support/reference_attention.h"
#include "tests/support/reference_ops.h"

namespace trident::reference {

struct ModelBatch {
  std::int64_t sequence = 0, samples = 0;     // S, B
  std::vector<std::int32_t> tokens, targets;  // [S*B]
  std::vector<std::int64_t> sample_numbers;   // [B]
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  double gradient_scale = 1.0;

  Index rows() const { return sequence * samples; }
};

template <class R> class Model {
 public:
  using Values = std::vector<R>;
  using Tensors = std::map<std::string, Values>;

  Model(const ModelConfig& config, const Tensors& weights)
      : c_(config), weights_(weights), gpt2_(config.family == ModelFamily::kGpt2), phi3_(config.family == ModelFamily::kPhi3) {
    if (c_.position == PositionKind::kRope) {
      const RopeTable table = make_rope_table(c_, c_.max_positions);
      cos_.assign(table.cos.begin(), table.cos.end());
      sin_.assign(table.sin.begin(), table.sin.end());
      pairs_ = table.pairs;
    }
  }

  // Sum over counted tokens of nats; gradients of gradient_scale * loss are left in gradients().
  R run(const ModelBatch& batch) {
    batch_ = &batch;
    gradients_.clear();
    for (const auto& [name, values] : weights_) gradients_[name].assign(values.size(), R(0));
    std::vector<Values> inputs{embed()};
    std::vector<Block> blocks(static_cast<std::size_t>(c_.layers));
    for (std::size_t i = 0; i < blocks.size(); ++i)
      inputs.push_back(block_forward(blocks[i], static_cast<Index>(i), inputs.back()));
    Values d(inputs.back().size());
    const R loss = head(inputs.back(), d);
    for (std::size_t i = blocks.size(); i-- > 0;) block_backward(blocks[i], static_cast<Index>(i), inputs[i], d);
    embed_backward(d);
    return loss;
  }
  const Tensors& gradients() const { return gradients_; }

 private:
  struct NormState {
    Values y, mean, rstd;
  };
  struct Block {
    NormState norm1, norm2, q_norm, k_norm;
    // attended, fed: the two parts' results, where norms come after them; q_raw, k_raw: rows where norms are over all heads.
    Values q, k, v, q_raw, k_raw, out, lse, merged, attended, middle, pre, act, fed;
    std::array<Values, 3> unclipped;  // rows of q, k, v, where they are clipped
  };
  // y [R, out] = x [R, in] W^T + b with W, b the rows first_row .. first_row + out of the tensors "<stem>.weight", "<stem>.bias".
  struct Linear {
    std::string stem;
    Index first_row = 0, out = 0, in = 0;
    bool bias = false;
  };

  Index rows() const { return batch_->rows(); }
  static Values zeros(Index n) { return Values(static_cast<std::size_t>(n)); }
  const R* w(const std::string& name) const { return weights_.at(name).data(); }
  R* g(const std::string& name) { return gradients_.at(name).data(); }
  std::string block_name(Index layer) const { return (gpt2_ ? "transformer.h." : "model.layers.") + std::to_string(layer) + "."; }

  Values linear(const Linear& l, const Values& x) const {
    Values y = zeros(rows() * l.out);
    matmul(y.data(), x.data(), false, w(l.stem + ".weight") + l.first_row * l.in, true, rows(), l.out, l.in, false);
    if (l.bias) add_bias(y.data(), w(l.stem + ".bias") + l.first_row, rows(), l.out);
    return y;
  }
  // Adds to d_x and to the gradients.
  void linear_backward(const Linear& l, const Values& x, const Values& d_y, Values& d_x) {
    matmul(d_x.data(), d_y.data(), false, w(l.stem + ".weight") + l.first_row * l.in, false, rows(), l.in, l.out, true);
    matmul(g(l.stem + ".weight") + l.first_row * l.in, d_y.data(), true, x.data(), false, l.out, l.in, rows(), true);
    if (l.bias) sum_rows(g(l.stem + ".bias") + l.first_row, d_y.data(), rows(), l.out);
  }

  void norm_forward(NormState& state, NormKind kind, const std::string& stem, const Values& x, Index width) const {
    const Index n = static_cast<Index>(x.size()) / width;
    state = {zeros(n * width), zeros(n), zeros(n)};
    const Values ones(static_cast<std::size_t>(width), R(1)), none(static_cast<std::size_t>(width));
    if (kind == NormKind::kRmsNorm || kind == NormKind::kRmsNormRoundedOnce) {
      rms_norm_forward(state.y.data(), state.rstd.data(), x.data(), w(stem + ".weight"), n, width, R(c_.norm_eps));
    } else {
      const bool plain = kind == NormKind::kPlainLayerNorm;
      layer_norm_forward(state.y.data(), state.mean.data(), state.rstd.data(), x.data(), plain ? ones.data() : w(stem + ".weight"),
                         plain ? none.data() : w(stem + ".bias"), n, width, R(c_.norm_eps));
    }
  }
  Values norm_backward(const NormState& state, NormKind kind, const std::string& stem, const Values& x, const Values& d_y,
                       Index width) {
    const Index n = static_cast<Index>(x.size()) / width;
    Values d_x = zeros(n * width), ones(static_cast<std::size_t>(width), R(1)), a(ones.size()), b(ones.size());
    if (kind == NormKind::kRmsNorm || kind == NormKind::kRmsNormRoundedOnce) {
      rms_norm_backward(d_x.data(), g(stem + ".weight"), d_y.data(), x.data(), w(stem + ".weight"), state.rstd.data(), n, width);
    } else {
      const bool plain = kind == NormKind::kPlainLayerNorm;
      layer_norm_backward(d_x.data(), plain ? a.data() : g(stem + ".weight"), plain ? b.data() : g(stem + ".bias"), d_y.data(),
                          x.data(), plain ? ones.data() : w(stem + ".weight"), state.mean.data(), state.rstd.data(), n, width);
    }
    return d_x;
  }

  // In place; its own backward.
  void drop(Values& x, double probability, Index unit, Index place) const {
    if (probability == 0.0) return;
    const auto number = static_cast<std::uint64_t>(batch_->step << 24 | unit << 4 | place);
    dropout(x.data(), x.data(), batch_->sequence, batch_->samples, c_.hidden, static_cast<float>(probability),
            random_key(batch_->seed, RandomPurpose::kDropout, number), batch_->sequence, 0, batch_->sample_numbers.data());
  }

  // positions by [b, s] and by row.
  std::vector<std::int32_t> positions(bool by_row) const {
    std::vector<std::int32_t> p(static_cast<std::size_t>(rows()));
    for (Index i = 0; i < rows(); ++i)
      p[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(by_row ? i / batch_->samples : i % batch_->sequence);
    return p;
  }

  std::string embedding_name() const { return gpt2_ ? "transformer.wte.weight" : "model.embed_tokens.weight"; }
  std::string head_name() const { return c_.tie_embeddings ? embedding_name() : "lm_head.weight"; }

  Values embed() const {
    Values y = zeros(rows() * c_.hidden), p = y;
    embedding_forward(y.data(), batch_->tokens.data(), w(embedding_name()), rows(), c_.hidden, 0, c_.vocab_size);
    if (c_.position == PositionKind::kLearned) {
      embedding_forward(p.data(), positions(true).data(), w("transformer.wpe.weight"), rows(), c_.hidden, 0, c_.max_positions);
      add(y.data(), y.data(), p.data(), rows() * c_.hidden);
    }
    drop(y, c_.embedding_dropout, 0, 0);
    return y;
  }
  void embed_backward(Values& d) {
    drop(d, c_.embedding_dropout, 0, 0);
    embedding_backward(g(embedding_name()), d.data(), batch_->tokens.data(), rows(), c_.hidden, 0, c_.vocab_size);
    if (c_.position == PositionKind::kLearned)
      embedding_backward(g("transformer.wpe.weight"), d.data(), positions(true).data(), rows(), c_.hidden, 0, c_.max_positions);
  }

  R head(const Values& x, Values& d_x) {
    const std::string norm = gpt2_ ? "transformer.ln_f" : "model.norm";
    const Index V = c_.vocab_size;
    NormState state;
    norm_forward(state, c_.norm, norm, x, c_.hidden);
    Values logits = zeros(rows() * V), row_max = zeros(rows()), stats = zeros(2 * rows()), d_n = zeros(rows() * c_.hidden);
    matmul(logits.data(), state.y.data(), false, w(head_name()), true, rows(), V, c_.hidden, false);
    cross_entropy_max(row_max.data(), logits.data(), rows(), V, 0, V, R(c_.logit_softcap));
    cross_entropy_stats(stats.data(), logits.data(), row_max.data(), batch_->targets.data(), rows(), V, 0, V,
                        R(c_.logit_softcap));
    R loss = 0;
    for (std::size_t r = 0; r < row_max.size(); ++r)
      if (batch_->targets[r] >= 0) loss += std::log(stats[r]) - stats[row_max.size() + r];
    cross_entropy_backward(logits.data(), row_max.data(), stats.data(), batch_->targets.data(), rows(), V, 0, V,
                           R(batch_->gradient_scale), R(c_.logit_softcap));
    matmul(d_n.data(), logits.data(), false, w(head_name()), false, rows(), c_.hidden, V, false);
    matmul(g(head_name()), logits.data(), true, state.y.data(), false, V, c_.hidden, rows(), true);
    d_x = norm_backward(state, c_.norm, norm, x, d_n, c_.hidden);
    return loss;
  }

  std::vector<Linear> qkv(Index layer) const {
    const Index q = c_.query_width(), kv = c_.kv_width(), H = c_.hidden;
    const std::string stem = block_name(layer) + (gpt2_ ? "attn.c_attn" : phi3_ ? "self_attn.qkv_proj" : "self_attn.");
    const bool bias = c_.qkv_bias;
    if (gpt2_ || phi3_) return {{stem, 0, q, H, bias}, {stem, q, kv, H, bias}, {stem, q + kv, kv, H, bias}};
    return {{stem + "q_proj", 0, q, H, bias}, {stem + "k_proj", 0, kv, H, bias}, {stem + "v_proj", 0, kv, H, bias}};
  }
  Linear output(Index layer) const {
    return {block_name(layer) + (gpt2_ ? "attn.c_proj" : "self_attn.o_proj"), 0, c_.hidden, c_.query_width(), c_.output_bias};
  }
  std::vector<Linear> up(Index layer) const {
    const std::string stem = block_name(layer) + "mlp.";
    if (gpt2_) return {{stem + "c_fc", 0, c_.ffn, c_.hidden, true}};
    const std::string both = stem + "gate_up_proj";
    if (phi3_) return {{both, 0, c_.ffn, c_.hidden, c_.mlp_bias}, {both, c_.ffn, c_.ffn, c_.hidden, c_.mlp_bias}};
    return {{stem + "gate_proj", 0, c_.ffn, c_.hidden, c_.mlp_bias}, {stem + "up_proj", 0, c_.ffn, c_.hidden, c_.mlp_bias}};
  }
  Linear down(Index layer) const {
    return {block_name(layer) + (gpt2_ ? "mlp.c_proj" : "mlp.down_proj"), 0, c_.hidden, c_.ffn, c_.mlp_bias};
  }
  bool after() const { return c_.norm_placement == NormPlacement::kAfter; }
  std::string norm1(Index layer) const {
    return block_name(layer) + (gpt2_ ? "ln_1" : after() ? "post_attention_layernorm" : "input_layernorm");
  }
  std::string norm2(Index layer) const {
    return block_name(layer) + (gpt2_ ? "ln_2" : after() ? "post_feedforward_layernorm" : "post_attention_layernorm");
  }

  Attention attention_shape(Index layer) const {
    Attention shape{.batch = batch_->samples, .query_heads = c_.heads, .kv_heads = c_.kv_heads, .query_length = batch_->sequence,
                    .key_length = batch_->sequence, .head_dim = c_.head_dim,
                    .scale = 1.0 / std::sqrt(static_cast<double>(c_.head_dim)), .softcap = c_.attention_softcap};
    if (c_.slides(layer)) shape.first_key = first_keys(shape, {.window = c_.sliding_window});
    return shape;
  }
  Values to_heads(const Values& x, Index n) const {
    Values heads = zeros(static_cast<Index>(x.size()));
    split_heads(heads.data(), x.data(), batch_->samples, n, batch_->sequence, c_.head_dim, n * c_.head_dim, 0);
    return heads;
  }
  Values to_rows(const Values& heads, Index n) const {
    Values x = zeros(static_cast<Index>(heads.size()));
    merge_heads(x.data(), heads.data(), batch_->samples, n, batch_->sequence, c_.head_dim, n * c_.head_dim, 0);
    return x;
  }
  void rotate(Values& heads, Index n, int direction) const {
    if (pairs_ == 0) return;
    rope(heads.data(), cos_.data(), sin_.data(), positions(false).data(), batch_->samples, n, batch_->sequence, c_.head_dim, pairs_,
         direction);
  }

  Values block_forward(Block& b, Index layer, const Values& x) const {
    const std::string attention = block_name(layer) + "self_attn.";
    if (!after()) norm_forward(b.norm1, c_.norm, norm1(layer), x, c_.hidden);
    const Values& input = after() ? x : b.norm1.y;
    const std::vector<Linear> projections = qkv(layer);
    b.q_raw = linear(projections[0], input);
    b.k_raw = linear(projections[1], input);
    Values v_rows = linear(projections[2], input);
    if (c_.clip_qkv > 0) {
      b.unclipped = {b.q_raw, b.k_raw, v_rows};
      for (Values* of : {&b.q_raw, &b.k_raw, &v_rows})
        clip_forward<R>(of->data(), of->data(), static_cast<Index>(of->size()), static_cast<R>(c_.clip_qkv));
    }
    b.v = to_heads(v_rows, c_.kv_heads);
    if (c_.qk_norm == QkNorm::kFullWidth) {
      norm_forward(b.q_norm, NormKind::kRmsNorm, attention + "q_norm", b.q_raw, c_.query_width());
      norm_forward(b.k_norm, NormKind::kRmsNorm, attention + "k_norm", b.k_raw, c_.kv_width());
      b.q = to_heads(b.q_norm.y, c_.heads), b.k = to_heads(b.k_norm.y, c_.kv_heads);
    } else {
      b.q = b.q_raw = to_heads(b.q_raw, c_.heads), b.k = b.k_raw = to_heads(b.k_raw, c_.kv_heads);
    }
    if (c_.qk_norm == QkNorm::kPerHead) {
      norm_forward(b.q_norm, NormKind::kRmsNorm, attention + "q_norm", b.q_raw, c_.head_dim);
      norm_forward(b.k_norm, NormKind::kRmsNorm, attention + "k_norm", b.k_raw, c_.head_dim);
      b.q = b.q_norm.y, b.k = b.k_norm.y;
    }
    rotate(b.q, c_.heads, 1);
    rotate(b.k, c_.kv_heads, 1);
    b.out = zeros(static_cast<Index>(b.q.size()));
    b.lse = zeros(static_cast<Index>(b.q.size()) / c_.head_dim);
    attention_forward(attention_shape(layer), b.out.data(), b.lse.data(), b.q.data(), b.k.data(), b.v.data());
    b.merged = to_rows(b.out, c_.heads);
    b.middle = b.attended = linear(output(layer), b.merged);
    if (after()) {
      norm_forward(b.norm1, c_.norm, norm1(layer), b.attended, c_.hidden);
      b.middle = b.norm1.y;
    }
    drop(b.middle, c_.residual_dropout, layer + 1, 1);
    add(b.middle.data(), b.middle.data(), x.data(), rows() * c_.hidden);

    if (!after()) norm_forward(b.norm2, c_.norm, norm2(layer), b.middle, c_.hidden);
    const Values& mlp_input = after() ? b.middle : b.norm2.y;
    b.act = zeros(rows() * c_.ffn);
    const std::vector<Linear> ups = up(layer);
    if (c_.activation == Activation::kSwiGlu) {
      b.pre = beside(linear(ups[0], mlp_input), linear(ups[1], mlp_input));
      swiglu_forward(b.act.data(), b.pre.data(), rows(), c_.ffn);
    } else {
      b.pre = linear(ups[0], mlp_input);
      gelu_forward(b.act.data(), b.pre.data(), rows() * c_.ffn);
    }
    Values y = b.fed = linear(down(layer), b.act);
    if (after()) {
      norm_forward(b.norm2, c_.norm, norm2(layer), b.fed, c_.hidden);
      y = b.norm2.y;
    }
    drop(y, c_.residual_dropout, layer + 1, 2);
    add(y.data(), y.data(), b.middle.data(), rows() * c_.hidden);
    return y;
  }

  // [rows, F] | [rows, F] -> [rows, 2F] and back.
  Values beside(const Values& a, const Values& b) const {
    Values both;
    for (Index r = 0; r < rows(); ++r)
      for (const Values* half : {&a, &b}) both.insert(both.end(), half->begin() + r * c_.ffn, half->begin() + (r + 1) * c_.ffn);
    return both;
  }
  Values half_of(const Values& both, Index which) const {
    Values half;
    for (Index r = 0; r < rows(); ++r)
      half.insert(half.end(), both.begin() + (2 * r + which) * c_.ffn, both.begin() + (2 * r + which + 1) * c_.ffn);
    return half;
  }

  void block_backward(const Block& b, Index layer, const Values& x, Values& d) {
    const Index H = c_.hidden;
    Values branch = d, d_act = zeros(rows() * c_.ffn), d_pre = zeros(static_cast<Index>(b.pre.size())), d_n = zeros(rows() * H);
    drop(branch, c_.residual_dropout, layer + 1, 2);
    if (after()) branch = norm_backward(b.norm2, c_.norm, norm2(layer), b.fed, branch, H);
    const Values& mlp_input = after() ? b.middle : b.norm2.y;
    linear_backward(down(layer), b.act, branch, d_act);
    const std::vector<Linear> ups = up(layer);
    if (c_.activation == Activation::kSwiGlu) {
      swiglu_backward(d_pre.data(), d_act.data(), b.pre.data(), rows(), c_.ffn);
      for (Index i = 0; i < 2; ++i) linear_backward(ups[static_cast<std::size_t>(i)], mlp_input, half_of(d_pre, i), d_n);
    } else {
      gelu_backward(d_pre.data(), d_act.data(), b.pre.data(), rows() * c_.ffn);
      linear_backward(ups[0], mlp_input, d_pre, d_n);
    }
    const Values through_mlp = after() ? d_n : norm_backward(b.norm2, c_.norm, norm2(layer), b.middle, d_n, H);
    add(d.data(), d.data(), through_mlp.data(), rows() * H);

    branch = d;
    drop(branch, c_.residual_dropout, layer + 1, 1);
    if (after()) branch = norm_backward(b.norm1, c_.norm, norm1(layer), b.attended, branch, H);
    Values d_merged = zeros(static_cast<Index>(b.merged.size()));
    linear_backward(output(layer), b.merged, branch, d_merged);
    const Values d_out = to_heads(d_merged, c_.heads);
    Values d_q = b.q, d_k = b.k, d_v = b.v;
    attention_backward(attention_shape(layer), d_q.data(), d_k.data(), d_v.data(), d_out.data(), b.out.data(), b.q.data(),
                       b.k.data(), b.v.data(), b.lse.data());
    rotate(d_q, c_.heads, -1);
    rotate(d_k, c_.kv_heads, -1);
    if (c_.qk_norm == QkNorm::kPerHead) {
      const std::string attention = block_name(layer) + "self_attn.";
      d_q = norm_backward(b.q_norm, NormKind::kRmsNorm, attention + "q_norm", b.q_raw, d_q, c_.head_dim);
      d_k = norm_backward(b.k_norm, NormKind::kRmsNorm, attention + "k_norm", b.k_raw, d_k, c_.head_dim);
    }
    Values d_q_rows = to_rows(d_q, c_.heads), d_k_rows = to_rows(d_k, c_.kv_heads), d_v_rows = to_rows(d_v, c_.kv_heads);
    if (c_.qk_norm == QkNorm::kFullWidth) {
      const std::string attention = block_name(layer) + "self_attn.";
      d_q_rows = norm_backward(b.q_norm, NormKind::kRmsNorm, attention + "q_norm", b.q_raw, d_q_rows, c_.query_width());
      d_k_rows = norm_backward(b.k_norm, NormKind::kRmsNorm, attention + "k_norm", b.k_raw, d_k_rows, c_.kv_width());
    }
    if (c_.clip_qkv > 0)
      for (std::size_t i = 0; i < 3; ++i) {
        Values& d = i == 0 ? d_q_rows : i == 1 ? d_k_rows : d_v_rows;
        clip_backward<R>(d.data(), d.data(), b.unclipped[i].data(), static_cast<Index>(d.size()), static_cast<R>(c_.clip_qkv));
      }
    const std::vector<Linear> projections = qkv(layer);
    const Values& input = after() ? x : b.norm1.y;
    d_n.assign(d_n.size(), R(0));
    linear_backward(projections[0], input, d_q_rows, d_n);
    linear_backward(projections[1], input, d_k_rows, d_n);
    linear_backward(projections[2], input, d_v_rows, d_n);
    const Values through_attention = after() ? d_n : norm_backward(b.norm1, c_.norm, norm1(layer), x, d_n, H);
    add(d.data(), d.data(), through_attention.data(), rows() * H);
  }

  ModelConfig c_;
  Tensors weights_, gradients_;
  bool gpt2_, phi3_;
  Values cos_, sin_;
  Index pairs_ = 0;
  const ModelBatch* batch_ = nullptr;
};

}  // namespace trident::reference
