// RMS norms of queries and of keys over all their heads (OLMo 2), which lie on different tensor-parallel ranks.
//
// R = S*B rows; Q, K columns of queries and keys on this rank. The sums that a row's norm needs are of all ranks' columns, so each
// pass all-reduces f32[2, R], queries and keys together. Where key heads are replicated (more ranks than key/value heads), one of
// the replicas counts: in forward it alone adds its squares; in backward every replica has a summand of the gradient (its own
// queries'), so all add their dots, and one alone subtracts what the dots stand for.
#pragma once

#include <cstdint>
#include <string>

#include "model/config/model_config.h"
#include "model/config/param_names.h"
#include "model/layer.h"

namespace trident {

class WideQkNorm {
 public:
  WideQkNorm(const ModelConfig& config, const BlockNames& names);

  // Weights "<query_norm>.weight" and "<key_norm>.weight", split as the heads are.
  void declare(ParamList& list);

  // q_out T[R,Q], k_out T[R,K] are overwritten.
  void forward(LayerPass& p, TensorView q_out, TensorView k_out, ConstTensorView q, ConstTensorView k) const;
  // d_q, d_k: gradients of forward's results -> those of q and k, in place. Weight gradients are written (grad_mode).
  void backward(LayerPass& p, TensorView d_q, TensorView d_k, ConstTensorView q, ConstTensorView k) const;

 private:
  // Whether this rank's keys are those that count.
  bool counts_keys(const LayerPass& p) const { return p.geometry.tensor_rank % key_replicas_ == 0; }

  std::string query_name_, key_name_;
  std::int64_t query_width_, key_width_, kv_heads_;  // of all ranks
  float eps_;
  int key_replicas_ = 1;
  ParamId query_weight_, key_weight_;
  Saved rstd_{"reciprocal deviations of queries and keys", ActivationKind::kAttention, LastUse::kB};  // f32 [2, R]
};

}  // namespace trident
