#include "model/head.h"

#include <cstdint>
#include <optional>
#include <span>

#include "core/at.h"
#include "model/cached_step.h"
#include "model/config/param_names.h"
#include "model/declare.h"

namespace trident {

Head::Head(const ModelConfig& config)
    : config_(config), norm_(block_norm(config, end_names(config).final_norm, RecomputeClass::kNever)) {}

void Head::declare(ParamList& list) {
  list.follow(config_.tuning);
  const EndNames names = end_names(config_);
  const int tensor_degree = list.layout().degree;
  const std::int64_t columns = padded_vocabulary(config_, tensor_degree) / tensor_degree;
  norm_.declare(list);
  const ParamId table = declare_vocabulary(list, config_, TiedEnd::kHead, names.head, names.head_tensor);
  projection_ = ColumnParallelLinear({{table, {}, columns}});
  const auto softcap = static_cast<float>(config_.logit_softcap);
  cross_entropy_ = VocabParallelCrossEntropy(columns, config_.vocab_size, softcap);
  chunked_ = ChunkedVocabHead(table, config_.hidden, columns, config_.vocab_size, softcap);
}

// Computes logits for the samples' last tokens alone, in f32, because sampling compares them.
void Head::last_logits(LayerPass& p, ConstTensorView x, const CachedStep& step) const {
  const std::int64_t B = p.geometry.micro_batch, H = config_.hidden;
  const ScratchScope scope(p.scratch_cursor());
  const TensorView last = p.scratch(x.dtype(), {B, H});
  const TensorView normed = p.save(normed_, x.dtype(), {B, H});
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t row = (at(step.count, b) - 1) * B + b;
    p.run(op::Convert{.out = last.rows(b, 1), .x = x.range(row * H, H).reshape({1, H})});
  }
  norm_.forward(p, normed, last);
  p.matmul(step.logits, normed, Transpose::kNo, p.weight(projection_.projections().front().weight), Transpose::kYes);
}

void Head::run_forward(LayerPass& p, ConstTensorView x, TensorView) const {
  if (p.batch.cached != nullptr) return last_logits(p, x, *p.batch.cached);
  const TensorView normed = p.save(normed_, x.dtype(), x.shape());
  norm_.forward(p, normed, x);
  if (is_chunked(p)) {
    if (backward_makes_losses(p) && !p.plans()) return p.leave_out();
    return chunked_.forward(p, p.batch.loss_outputs(), normed, p.batch.forward_rows());
  }
  const TensorView logits =
      p.save(logits_, p.geometry.compute, {p.geometry.full_rows(), projection_.projections().front().output_columns});
  projection_.forward(p, normed, std::span(&logits, 1));
  cross_entropy_.forward(p, p.batch.loss_outputs(), logits, p.batch.forward_rows(),
                         p.batch.training && p.batch.weigh == nullptr ? std::optional(p.batch.gradient_scale) : std::nullopt);
}

void Head::run_backward_input(LayerPass& p, ConstTensorView x, TensorView d) const {
  if (is_chunked(p)) return chunked_backward(p, x, d, ChunkedVocabHead::Gradients::kInput);
  if (p.batch.weigh != nullptr) (*p.batch.weigh)();
  const ScratchScope scope(p.scratch_cursor());
  const TensorView logits = p[logits_], d_normed = p.scratch(x.dtype(), x.shape());
  // Otherwise forward did. A plan has the rows' statistics held in any case, because it does not know the loss.
  if (p.plans() || !VocabParallelCrossEntropy::forms_gradient(p) || p.batch.weigh != nullptr)
    cross_entropy_.backward(p, logits, 0, p.batch.backward_rows(), p.batch.gradient_scale);
  projection_.backward_input(p, d_normed, std::span(&logits, 1));
  norm_.backward(p, d, d_normed, x, Accumulate::kNo);
}

void Head::run_backward_weight(LayerPass& p, ConstTensorView) const {
  if (!projection_.trains(p)) return;
  if (is_chunked(p))
    return chunked_.backward(p, TensorView(), p[normed_], p.batch.backward_rows(), p.batch.gradient_scale,
                             ChunkedVocabHead::Gradients::kWeight);
  const TensorView d_logits = p[logits_];
  projection_.backward_weight(p, p[normed_], std::span(&d_logits, 1));
}

void Head::run_backward(LayerPass& p, ConstTensorView x, TensorView d) const {
  if (is_chunked(p)) return chunked_backward(p, x, d, ChunkedVocabHead::Gradients::kBoth);
  run_backward_input(p, x, d);
  run_backward_weight(p, x);
}

void Head::chunked_backward(LayerPass& p, ConstTensorView x, TensorView d, ChunkedVocabHead::Gradients wanted) const {
  if (p.batch.weigh != nullptr) (*p.batch.weigh)();
  const ScratchScope scope(p.scratch_cursor());
  const TensorView d_normed = p.scratch(x.dtype(), x.shape());
  const LossOutputs losses = p.batch.loss_outputs();
  chunked_.backward(p, d_normed, p[normed_], p.batch.backward_rows(), p.batch.gradient_scale, wanted,
                    backward_makes_losses(p) ? &losses : nullptr);
  norm_.backward(p, d, d_normed, x, Accumulate::kNo);
}

}  // namespace trident
