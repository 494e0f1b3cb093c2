// A layer declares parameters, and computes forward, backward-input and backward-weight of one micro-batch. It keeps no
// state between calls; what backward needs lies in the micro-batch's activation slot. What its calls need is found by running them
// dry (plan_unit).
//
// tensor_parallel/pass.h has what a call asks for, tensor_parallel/layer_plan.h the letters of the shapes.
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor_view.h"
#include "model/config/model_config.h"
#include "tensor_parallel/pass.h"
#include "tensor_parallel/unit_plan.h"
#include "tensor_parallel/vocab_parallel_cross_entropy.h"

namespace trident {

struct CachedStep;     // cached_step.h
class ModelConstants;  // model_constants.h

// One micro-batch as the model sees it. Row s*B+b is position s of sample b. Every tp rank holds the whole of it.
struct MicroBatch {
  ConstTensorView tokens;               // i32 [S*B]; first stage
  ConstTensorView targets;              // i32 [S*B]; last stage; negative = not counted
  ConstTensorView row_weights = {};     // f32 [S*B]: of each target's loss and gradient; or of nothing: 1
  RowOrder loss_order = {};             // of targets, row_weights, token_losses, target_logits; only with leaves_rows_out
  ConstTensorView positions_by_row;     // i32 [S*B]; learned positions
  ConstTensorView positions_by_sample;  // i32 [B,S]; rotary positions
  // i32 [B,S], never decreasing in a sample: the first key that attention sees, in layers that see all of a document and in those
  // with a sliding window; in a cached pass its place. Empty where such layers see every key up to the query.
  ConstTensorView first_key = {}, first_key_in_window = {};
  ConstTensorView samples;              // i64 [B]: global sample index, for dropout
  std::int64_t step = 0;
  float gradient_scale = 1.0f;  // loss scale / global_valid_tokens: the one division
  TensorView loss;              // f64 [1], overwritten by the head: sum over counted tokens of weighted nats
  TensorView token_losses = {}; // f32 [S*B], or of nothing; overwritten by the head: nats of each counted token, else 0
  TensorView target_logits = {};  // f32 [S*B], or of nothing; overwritten by the head: LossOutputs::target_logits
  // Not null: called between the head's forward and backward; row_weights, which forward leaves alone, are there behind it.
  const std::function<void()>* weigh = nullptr;
  bool training = true;         // false: no dropout, and no backward follows
  bool adapts = true;           // false: the model without its adapters; no backward follows
  // f32 [rows, P]: in the place of the constants', where samples turn by angles of their own lengths; else of nothing.
  ConstTensorView rope_cos = {}, rope_sin = {};
  // Not null: the tokens follow others, whose keys and values are kept. Forward alone, without sequence parallelism.
  const CachedStep* cached = nullptr;

  LossOutputs loss_outputs() const { return {loss, token_losses, target_logits}; }
  LossRows forward_rows() const { return weigh != nullptr ? LossRows(targets) : backward_rows(); }
  LossRows backward_rows() const { return {targets, row_weights, loss_order}; }
};

// A pass over one micro-batch.
struct LayerPass : Pass {
  LayerPass(const Pass& pass, const MicroBatch& micro_batch, const ModelConstants& model_constants)
      : Pass(pass), batch(micro_batch), constants(model_constants) {
    draws = {micro_batch.samples, micro_batch.step, micro_batch.training};
    adapts = micro_batch.adapts;
  }

  const MicroBatch& batch;
  const ModelConstants& constants;
};

class Layer {
 public:
  virtual ~Layer() = default;

  // The unit's parameters in order. Pure: depends on the model and list.layout() only.
  virtual void declare(ParamList& list) = 0;

  // Makes what the other calls read and only the unit's weights tell: call it before them, whenever weights have changed. May
  // communicate over tp.
  void derive(LayerPass& p) const {
    p.begin(PassKind::kDerive);
    run_derive(p);
    p.end();
  }
  // y from x (x is empty for the embedding, y for the head). y may not alias x.
  void forward(LayerPass& p, ConstTensorView x, TensorView y) const {
    p.begin(PassKind::kForward);
    run_forward(p, x, y);
    p.end();
  }
  // Makes again what the recompute policy did not keep; call it right before backward_input. `x` as in forward.
  void recompute(LayerPass& p, ConstTensorView x) const {
    p.begin(PassKind::kRecompute);
    run_recompute(p, x);
    p.end();
  }
  // d holds the gradient of y and is overwritten with the gradient of x, in place (the head ignores its content, the embedding
  // leaves it). Gradients of norms are written here.
  void backward_input(LayerPass& p, ConstTensorView x, TensorView d) const {
    p.begin(PassKind::kBackwardInput);
    run_backward_input(p, x, d);
    p.end();
  }
  // Gradients of matrices and of biases, from what backward_input kept. May communicate over tp. Other passes may
  // come between the two: it reads saved tensors of LastUse::kW, kept tensors, and x where input_last_use() says so (else x may be
  // gone, and is empty).
  void backward_weight(LayerPass& p, ConstTensorView x) const {
    p.begin(PassKind::kBackwardWeight);
    run_backward_weight(p, x);
    p.end();
  }
  // Which half of backward reads x last: kW where a matrix is multiplied with x itself, not with its norm.
  virtual LastUse input_last_use() const { return LastUse::kB; }
  // The tensor of logits that it saves, where it is a head that does; reports of memory name it.
  virtual const Saved* saved_logits() const { return nullptr; }
  // Both gradients, for schedules that do not split them.
  void backward(LayerPass& p, ConstTensorView x, TensorView d) const {
    p.begin(PassKind::kBackward);
    run_backward(p, x, d);
    p.end();
  }

 private:
  virtual void run_derive(LayerPass&) const {}
  virtual void run_forward(LayerPass& p, ConstTensorView x, TensorView y) const = 0;
  virtual void run_recompute(LayerPass& p, ConstTensorView x) const = 0;
  virtual void run_backward_input(LayerPass& p, ConstTensorView x, TensorView d) const = 0;
  virtual void run_backward_weight(LayerPass& p, ConstTensorView x) const = 0;
  // Overridden by layers that save work by doing them together.
  virtual void run_backward(LayerPass& p, ConstTensorView x, TensorView d) const {
    run_backward_input(p, x, d);
    run_backward_weight(p, x);
  }
};

enum class PlannedPasses : std::uint8_t { kAll, kForward };

// Runs the passes of a declared layer dry to find what they need. `oracle`, `unit` as for UnitPlan. `hidden`: H.
UnitPlan plan_unit(Layer& layer, const LayerGeometry& geometry, std::int64_t hidden, const ModelConstants& constants, Ops& oracle,
                   int unit = 0, PlannedPasses passes = PlannedPasses::kAll);

// The same of forward passes over caches, by CachePlaces::capacity.
struct CacheCapacities {
  std::int64_t all = 0, window = 0;
};
UnitPlan plan_cached_unit(Layer& layer, const LayerGeometry& geometry, const ModelConfig& config, CacheCapacities capacities,
                          const ModelConstants& constants, Ops& oracle, int unit = 0);

}  // namespace trident
