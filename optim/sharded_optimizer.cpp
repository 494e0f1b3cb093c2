#include "optim/sharded_optimizer.h"

#include <algorithm>
#include <array>

#include "core/philox.h"
#include "device/operations.h"
#include "device/ops.h"

namespace trident {

std::vector<UpdateStretch> update_stretches(std::span<const ShardPiece> pieces) {
  std::vector<UpdateStretch> stretches;
  for (const ShardPiece& piece : pieces) {
    if (!piece.trains) continue;
    const bool decays = piece.spec->weight_decay;
    if (!stretches.empty()) {
      UpdateStretch& last = stretches.back();
      if (last.decays == decays && last.begin + last.count == piece.shard_begin) {
        last.count += piece.count;
        continue;
      }
    }
    stretches.push_back({piece.shard_begin, piece.count, decays});
  }
  return stretches;
}

std::vector<RoundedStretch> rounded_stretches(std::span<const ShardPiece> pieces, int tensor_degree, int tensor_rank, std::uint64_t seed) {
  std::vector<RoundedStretch> stretches;
  for (const ShardPiece& piece : pieces) {
    if (!piece.trains) continue;
    for (const TensorStretch& part : tensor_stretches(piece, tensor_degree, tensor_rank)) {
      RoundedStretch& next = stretches.emplace_back();
      next.elements = {piece.shard_begin + part.begin, part.count, piece.spec->weight_decay};
      if (part.part == nullptr) continue;
      const PhiloxKey key = random_key(seed, RandomPurpose::kRounding, part.part->tensor);
      next.rounding = RoundedElements{{key[0], key[1]}, part.first_index, part.first_column, part.columns, part.stride};
    }
  }
  return stretches;
}

ShardedOptimizer::ShardedOptimizer(const OptimizerConfig& config, WeightRounding rounding, ParamStore& store,
                                   ParallelContext& context, ArenaPlan& plan)
    : config_(config), store_(store), context_(context) {
  const bool at_random = rounding == WeightRounding::kStochastic;
  TRIDENT_CHECK(!at_random || store.config().compute == DType::kBF16, "stochastic rounding of weights in {}",
                to_string(store.config().compute));
  const int tensor_degree = context.grid().degrees().tensor, tensor_rank = context.coordinates().tensor;
  for (const ParamShard& shard : store.shards()) {
    ShardState& state = states_.emplace_back();
    if (!shard.updated) continue;
    if (at_random) {
      state.stretches = rounded_stretches(shard.pieces, tensor_degree, tensor_rank, store.config().seed);
    } else {
      for (const UpdateStretch& stretch : update_stretches(shard.pieces)) state.stretches.push_back({stretch, std::nullopt});
    }
    for (const auto& [key, name] : update_states(config_.type)) {
      const std::string range = fmt::format("unit {} {} f32 [{}]", shard.unit, name, shard.elements);
      state.views.emplace_back(plan, range, MemoryUse::kOptimizer, DType::kF32, Shape{shard.elements});
    }
  }
}

void ShardedOptimizer::bind(Arena& arena) {
  for (ShardState& state : states_)
    for (BookedTensor& view : state.views) view.bind(arena);
}

std::vector<TensorView> ShardedOptimizer::states(std::size_t shard) const {
  return {states_[shard].views.begin(), states_[shard].views.end()};
}

void ShardedOptimizer::step(int unit, std::int64_t update, double lr, double gradient_scale) {
  UpdateNumbers numbers = update_numbers(config_, update, lr, gradient_scale);
  const float weight_decay = numbers.weight_decay;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const ParamShard& shard = store_.shards()[i];
    if (shard.unit != unit || !shard.updated) continue;
    const std::vector<BookedTensor>& views = states_[i].views;
    for (const auto& [stretch, rounding] : states_[i].stretches) {
      numbers.weight_decay = stretch.decays ? weight_decay : 0.0f;
      const auto range = [&](TensorView view) { return view.range(stretch.begin, stretch.count); };
      std::array<TensorView, kMostUpdateStates> states;
      std::transform(views.begin(), views.end(), states.begin(), range);
      context_.device().ops().run(context_.compute_stream(), op::Update{.rule = config_.type,
                                                                 .param = range(shard.param),
                                                                 .master = range(shard.master),
                                                                 .states = std::span(states).first(views.size()),
                                                                 .grad = range(shard.grad),
                                                                 .numbers = numbers,
                                                                 .at_random = rounding ? &*rounding : nullptr});
    }
  }
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

}  // namespace trident
