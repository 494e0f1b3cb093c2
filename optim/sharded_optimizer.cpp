#include "optim/sharded_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace trident {

std::vector<UpdateStretch> update_stretches(std::span<const ShardPiece> pieces) {
  std::vector<UpdateStretch> stretches;
  for (const ShardPiece& piece : pieces) {
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
    for (const TensorStretch& part : tensor_stretches(piece, tensor_degree, tensor_rank)) {
      RoundedStretch& next = stretches.emplace_back();
      next.elements = {piece.shard_begin + part.begin, part.count, piece.spec->weight_decay};
      if (part.part == nullptr) continue;
      next.rounding = StochasticRounding{.key = random_key(seed, RandomPurpose::kRounding, part.part->tensor),
                                         .first_index = part.first_index,
                                         .first_column = part.first_column,
                                         .columns = part.columns,
                                         .stride = part.stride};
    }
  }
  return stretches;
}

ShardedOptimizer::ShardedOptimizer(const AdamWConfig& config, ParamStore& store, ParallelContext& context, ArenaPlan& plan)
    : config_(config), store_(store), context_(context) {
  TRIDENT_CHECK(!config.stochastic_rounding || store.config().compute == DType::kBF16, "stochastic rounding of weights in {}",
                to_string(store.config().compute));
  const int tensor_degree = context.grid().degrees().tensor, tensor_rank = context.coordinates().tensor;
  for (const ParamShard& shard : store.shards()) {
    Moments& moments = moments_.emplace_back();
    if (!shard.updated) continue;
    if (config.stochastic_rounding) {
      moments.stretches = rounded_stretches(shard.pieces, tensor_degree, tensor_rank, store.config().seed);
    } else {
      for (const UpdateStretch& stretch : update_stretches(shard.pieces)) moments.stretches.push_back({stretch, std::nullopt});
    }
    const std::int64_t bytes = shard.elements * size_of(DType::kF32);
    moments.first_slot = plan.book(fmt::format("unit {} first moments f32 [{}]", shard.unit, shard.elements), MemoryUse::kOptimizer, bytes);
    moments.second_slot = plan.book(fmt::format("unit {} second moments f32 [{}]", shard.unit, shard.elements), MemoryUse::kOptimizer, bytes);
  }
}

void ShardedOptimizer::bind(Arena& arena) {
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const ParamShard& shard = store_.shards()[i];
    if (!shard.updated) continue;
    moments_[i].first = arena.grant(moments_[i].first_slot, DType::kF32, Shape{shard.elements});
    moments_[i].second = arena.grant(moments_[i].second_slot, DType::kF32, Shape{shard.elements});
  }
}

std::span<const std::string> ShardedOptimizer::state_names() {
  static const std::string names[] = {"exp_avg", "exp_avg_sq"};
  return names;
}

std::vector<TensorView> ShardedOptimizer::states(std::size_t shard) const {
  if (!store_.shards()[shard].updated) return {};
  return {moments_[shard].first, moments_[shard].second};
}

void ShardedOptimizer::step(int unit, std::int64_t update, double lr, double gradient_scale) {
  AdamWParams params;
  params.lr = static_cast<float>(lr);
  params.beta1 = static_cast<float>(config_.beta1);
  params.beta2 = static_cast<float>(config_.beta2);
  params.eps = static_cast<float>(config_.eps);
  params.grad_scale = static_cast<float>(gradient_scale);
  params.bias_correction1 = static_cast<float>(1.0 / (1.0 - std::pow(config_.beta1, static_cast<double>(update))));
  params.bias_correction2 = static_cast<float>(1.0 / (1.0 - std::pow(config_.beta2, static_cast<double>(update))));
  Ops& ops = context_.device().ops();
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const ParamShard& shard = store_.shards()[i];
    if (shard.unit != unit || !shard.updated) continue;
    for (const auto& [stretch, rounding] : moments_[i].stretches) {
      params.rounding = rounding;
      if (rounding) params.rounding->update = static_cast<std::uint64_t>(update);
      params.weight_decay = stretch.decays ? static_cast<float>(config_.weight_decay) : 0.0f;
      const auto range = [&](TensorView view) { return view.range(stretch.begin, stretch.count); };
      ops.adamw(context_.compute_stream(), range(shard.param), range(shard.master), range(moments_[i].first),
                range(moments_[i].second), range(shard.grad), params);
    }
  }
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

}  // namespace trident
