// Logits and their cross-entropy, a chunk of rows at a time, so that logits of the whole micro-batch never exist.
//
// Backward makes the logits of one chunk in scratch, takes their statistics, turns them into their gradient in place and
// multiplies. Where nobody needs losses before that, forward has nothing to do, and no product is made twice. Else forward takes
// the statistics, from logits of its own. In either the input is gathered once (sequence parallelism), the input gradient is
// reduced once, and the statistics are reduced as in vocab_parallel_cross_entropy.h, by backward chunk after chunk. R = S*B rows,
// H hidden, C = padded vocabulary / t columns.
//
// With LayerGeometry::leaves_rows_out only rows with counted targets are multiplied, and up to R/16 others: RowOrder gathers
// them in one chunk, and the input gradient of rows without such a target is zero. A loss and a
// gradient have the summands that they have otherwise, in the same order.
#pragma once

#include <cstdint>

#include "tensor_parallel/pass.h"
#include "tensor_parallel/vocab_parallel_cross_entropy.h"

namespace trident {

class ChunkedVocabHead {
 public:
  ChunkedVocabHead() = default;
  // `table` T[columns, hidden]; `softcap` as VocabParallelCrossEntropy's.
  ChunkedVocabHead(ParamId table, std::int64_t hidden, std::int64_t columns, std::int64_t vocabulary, float softcap)
      : table_(table), hidden_(hidden), columns_(columns), cross_entropy_(columns, vocabulary, softcap, LastUse::kW) {}

  // As VocabParallelCrossEntropy::forward; x T[S',B,H].
  void forward(Pass& p, const LossOutputs& out, ConstTensorView x, const LossRows& rows) const;

  // Which gradients a call computes: schedules may want one, and later the other. Logits are computed in every call.
  enum class Gradients : std::uint8_t { kInput, kWeight, kBoth };
  // d_x T[S',B,H] is overwritten with scale * d loss / d x, summed over ranks; the table's gradient is written (grad_mode), chunks
  // added in row order. kWeight leaves d_x alone. `out`, null for kWeight: what forward, which was not called, had to write.
  void backward(Pass& p, TensorView d_x, ConstTensorView x, const LossRows& rows, float scale, Gradients wanted,
                const LossOutputs* out = nullptr) const;

 private:
  // f(first place, logits T[n, C] of the rows at these n places, for the caller to use up, these rows of `inputs` T[R,H]); takes
  // scratch in the caller's scope.
  template <class F>
  void for_each_chunk(Pass& p, ConstTensorView inputs, const RowOrder& order, F&& f) const;

  ParamId table_;
  std::int64_t hidden_ = 0, columns_ = 0;
  VocabParallelCrossEntropy cross_entropy_;
};

}  // namespace trident
