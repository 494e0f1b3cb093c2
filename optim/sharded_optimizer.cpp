#include "optim/sharded_optimizer.h"

#include <algorithm>
#include <cmath>

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

ShardedOptimizer::ShardedOptimizer(const AdamWConfig& config, ParamStore& store, ParallelContext& context, ArenaPlan& plan)
    : config_(config), store_(store), context_(context) {
  for (const ParamShard& shard : store.shards()) {
    Moments& moments = moments_.emplace_back();
    if (!shard.updated) continue;
    moments.stretches = update_stretches(shard.pieces);
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
    for (const UpdateStretch& stretch : moments_[i].stretches) {
      params.weight_decay = stretch.decays ? static_cast<float>(config_.weight_decay) : 0.0f;
      const auto range = [&](TensorView view) { return view.range(stretch.begin, stretch.count); };
      ops.adamw(context_.compute_stream(), range(shard.param), range(shard.master), range(moments_[i].first),
                range(moments_[i].second), range(shard.grad), params);
    }
  }
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

}  // namespace trident
