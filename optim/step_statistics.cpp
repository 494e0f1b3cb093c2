#include "optim/step_statistics.h"

#include <algorithm>
#include <cmath>

#include "core/int_math.h"
#include "device/no_allocation.h"

namespace trident {
namespace {

constexpr std::int64_t kBlocksAtOnce = 16384;
constexpr std::int64_t kExchanged = 2 * ExactSum::kLimbs + 1;

}  // namespace

StatisticsReducer::StatisticsReducer(ParallelContext& context, ArenaPlan& plan) : context_(context) {
  block_slot_ = plan.book("sums of squares", MemoryUse::kWorkspace, kBlocksAtOnce * size_of(DType::kF64));
  exchange_slot_ = plan.book("step statistics", MemoryUse::kCommunication, exchanged_bytes());
}

std::int64_t StatisticsReducer::exchanged_bytes() { return kExchanged * size_of(DType::kI64); }

void StatisticsReducer::bind(Arena& arena) {
  blocks_ = arena.grant(block_slot_, DType::kF64, Shape{kBlocksAtOnce});
  exchange_ = arena.grant(exchange_slot_, DType::kI64, Shape{kExchanged});
}

void StatisticsReducer::add_squares(const ParamShard& shard, ExactSum& sum, StepStatistics& statistics) {
  Ops& ops = context_.device().ops();
  for (const ShardPiece& piece : shard.pieces) {
    if (!piece.norm_owner) continue;
    bool finite = true;
    constexpr std::int64_t kStretch = kBlocksAtOnce * kParamAlignment;
    for (std::int64_t begin = 0; begin < piece.count; begin += kStretch) {
      const std::int64_t count = std::min(kStretch, piece.count - begin);
      const std::int64_t num_blocks = ceil_div(count, kParamAlignment);
      ops.sum_squares(context_.compute_stream(), blocks_.range(0, num_blocks), shard.grad.range(piece.shard_begin + begin, count));
      for (const double square : blocks_.range(0, num_blocks).span<double>()) {
        if (std::isfinite(square)) {
          sum.add(square);
        } else {
          finite = false;
        }
      }
    }
    if (finite) continue;
    ++statistics.non_finite;
    if (statistics.first_non_finite.empty()) {
      const AllocationExemption message;  // this step is not going to be applied
      statistics.first_non_finite = fmt::format("rank {}: {}", context_.rank(), piece.spec->name);
    }
  }
}

StepStatistics StatisticsReducer::reduce(std::span<const ParamShard> shards, std::span<const double> losses) {
  StepStatistics statistics;
  ExactSum loss, squares;
  for (const double l : losses) loss.add(l);
  for (const ParamShard& shard : shards) {
    if (shard.counts_in_norm) add_squares(shard, squares, statistics);
  }
  loss.normalise();
  squares.normalise();
  const std::span<std::int64_t> words = exchange_.span<std::int64_t>();
  std::copy(loss.limbs().begin(), loss.limbs().end(), words.begin());
  std::copy(squares.limbs().begin(), squares.limbs().end(), words.begin() + ExactSum::kLimbs);
  words.back() = statistics.non_finite;
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline}) {
    context_.statistics(axis).all_reduce(context_.compute_stream(), exchange_, ReduceOp::kSum);
  }
  context_.compute_stream().synchronize();
  std::copy_n(words.begin(), ExactSum::kLimbs, loss.limbs().begin());
  std::copy_n(words.begin() + ExactSum::kLimbs, ExactSum::kLimbs, squares.limbs().begin());
  statistics.loss_sum = loss.value();
  statistics.gradient_norm = std::sqrt(squares.value());
  statistics.non_finite = words.back();
  return statistics;
}

}  // namespace trident
