#include "optim/step_statistics.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/int_math.h"
#include "device/no_allocation.h"
#include "device/operations.h"
#include "device/ops.h"
#include "parallel/communicator/message_options.h"

namespace trident {
namespace {

constexpr std::int64_t kBlocksAtOnce = 16384;
// Both sums, the number of non-finite parameters, and what the ranks of an axis called; behind them the counts.
constexpr std::int64_t kExchanged = 2 * ExactSum::kLimbs + 2;

}  // namespace

std::int64_t sum_over_batch(ParallelContext& context, std::int64_t count) {
  for (const Axis axis : {Axis::kContext, Axis::kData})
    context.statistics(axis).all_reduce(context.host_stream(), TensorView(&count, DType::kI64, {1}), ReduceOp::kSum);
  return count;
}

StatisticsReducer::StatisticsReducer(ParallelContext& context, ArenaPlan& plan)
    : context_(context),
      blocks_(plan, "sums of squares", MemoryUse::kWorkspace, DType::kF64, {kBlocksAtOnce}),
      limbs_(plan, "exact sum of squares", MemoryUse::kWorkspace, DType::kI64, {static_cast<std::int64_t>(ExactSum::kLimbs)}) {}

void StatisticsReducer::bind(Arena& arena) {
  blocks_.bind(arena);
  limbs_.bind(arena);
}

void StatisticsReducer::add_squares(const ParamShard& shard, const ShardPiece& piece) {
  Ops& ops = context_.device().ops();
  Stream& stream = context_.compute_stream();
  constexpr std::int64_t kStretch = kBlocksAtOnce * kParamAlignment;
  for (std::int64_t begin = 0; begin < piece.count; begin += kStretch) {
    const std::int64_t count = std::min(kStretch, piece.count - begin);
    const TensorView blocks = blocks_.range(0, ceil_div(count, kParamAlignment));
    ops.run(stream, op::SumSquares{.out = blocks, .x = shard.grad.range(piece.shard_begin + begin, count)});
    ops.run(stream, op::AddExact{.limbs = limbs_, .x = blocks});
  }
}

// Returns the squares added since the last reading; the sum begins anew.
ExactSum StatisticsReducer::read_squares() {
  ExactSum sum;
  Device& device = context_.device();
  device.read(context_.compute_stream(), sum.limbs().data(), limbs_);
  device.ops().run(context_.compute_stream(), op::FillZero{.out = limbs_});
  sum.normalise();
  return sum;
}

// Looks again, piece by piece: this step is not going to be applied.
void StatisticsReducer::name_non_finite(std::span<const ParamShard> shards, StepStatistics& statistics) {
  for (const ParamShard& shard : shards) {
    for (const ShardPiece& piece : shard.pieces) {
      if (!shard.counts_in_norm || !piece.norm_owner || !piece.trains) continue;
      add_squares(shard, piece);
      if (read_squares().finite()) continue;
      ++statistics.non_finite;
      if (!statistics.first_non_finite.empty()) continue;
      const AllocationExemption message;
      statistics.first_non_finite = fmt::format("rank {}: {}", context_.rank(), piece.spec->name);
    }
  }
}

// The sum of n numbers of 32 bits is n times each of them only if they are equal.
void StatisticsReducer::refuse_to_differ(Axis axis) const {
  const AllocationExemption message;
  throw CommunicationError(fmt::format(
      "{}: rank {} and another rank of its group have called different collective operations since the run began; this is a bug in "
      "Trident: on at most {} nodes the operation is named",
      to_string(axis), context_.rank(), kMostGreeted));
}

StepStatistics StatisticsReducer::reduce(std::span<const ParamShard> shards, std::span<const double> losses,
                                         std::span<const std::int64_t> counts) {
  StepStatistics statistics;
  ExactSum loss;
  for (const double l : losses) loss.add(l);
  for (const ParamShard& shard : shards) {
    for (const ShardPiece& piece : shard.pieces) {
      if (shard.counts_in_norm && piece.norm_owner && piece.trains) add_squares(shard, piece);
    }
  }
  ExactSum squares = shards.empty() ? ExactSum() : read_squares();
  if (!squares.finite()) {
    squares = ExactSum();
    name_non_finite(shards, statistics);
  }
  loss.normalise();
  std::array<std::int64_t, kExchanged + kMostCounts> words;  // of host memory, and small enough to travel from anywhere
  std::ranges::copy(loss.limbs(), words.begin());
  std::ranges::copy(squares.limbs(), words.begin() + ExactSum::kLimbs);
  std::int64_t &non_finite = words[kExchanged - 2], &history = words[kExchanged - 1];
  non_finite = statistics.non_finite;
  TRIDENT_CHECK(counts.size() <= kMostCounts, "{} counts", counts.size());
  std::ranges::copy(counts, words.begin() + kExchanged);
  const TensorView message(words.data(), DType::kI64, {kExchanged + std::ssize(counts)});
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline}) {
    const std::int64_t mine = context_.history(axis);
    history = mine;
    context_.statistics(axis).all_reduce(context_.host_stream(), message, ReduceOp::kSum);
    if (history != mine * context_.grid().degree(axis)) refuse_to_differ(axis);
  }
  std::copy_n(words.begin(), ExactSum::kLimbs, loss.limbs().begin());
  std::copy_n(words.begin() + ExactSum::kLimbs, ExactSum::kLimbs, squares.limbs().begin());
  statistics.loss_sum = loss.value();
  statistics.gradient_norm = std::sqrt(squares.value());
  statistics.non_finite = non_finite;
  std::copy_n(words.begin() + kExchanged, counts.size(), statistics.counts.begin());
  return statistics;
}

}  // namespace trident
