// All ranks agree on these before an update: the loss of the global batch, the norm of its gradient, and whether it is finite.
//
// Both numbers do not depend on the layout: each is a sum of terms that every layout forms alike (the loss of a micro-batch; the
// squares of 64 consecutive elements of a parameter), added exactly (core/exact_sum.h), so that order and grouping cannot matter.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/exact_sum.h"
#include "device/arena.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"

namespace trident {

inline constexpr std::size_t kMostCounts = 5;

struct StepStatistics {
  double loss_sum = 0;  // nats, over all counted tokens of the global batch
  std::array<std::int64_t, kMostCounts> counts{};  // sums of what the ranks gave; 0 where they gave none
  double gradient_norm = 0;  // 2-norm of the whole gradient as it lies in the buffers (still times the loss scale)
  // Gradient shards with a non-finite element, over all ranks. Nobody may apply the step unless it is 0.
  std::int64_t non_finite = 0;
  std::string first_non_finite;  // "rank 3: model.layers.0.mlp.up_proj.weight" if this rank holds one, else empty
};

// Collective over cp and dp, by the host. The sum of what ranks count in their shares of the global batch.
std::int64_t sum_over_batch(ParallelContext& context, std::int64_t count);

class StatisticsReducer {
 public:
  StatisticsReducer(ParallelContext& context, ArenaPlan& plan);
  void bind(Arena& arena);

  // Collective over the world; the host waits for the compute stream. `losses`: this rank's micro-batch losses (empty unless it is
  // the first tensor rank of the last pipeline stage). The gradients must be reduced (ParamStore::wait_reduced); an empty `shards`
  // leaves them out. `counts`: what this rank adds to sums over the batch, at most kMostCounts numbers and as many on every rank;
  // each adds a word to the message.
  StepStatistics reduce(std::span<const ParamShard> shards, std::span<const double> losses,
                        std::span<const std::int64_t> counts = {});

 private:
  void add_squares(const ParamShard& shard, const ShardPiece& piece);
  ExactSum read_squares();
  [[noreturn]] void refuse_to_differ(Axis axis) const;
  void name_non_finite(std::span<const ParamShard> shards, StepStatistics& statistics);

  ParallelContext& context_;
  BookedTensor blocks_;  // f64: sums of squares of a stretch of a shard
  BookedTensor limbs_;   // i64: the sum of all of them, exactly
};

}  // namespace trident
