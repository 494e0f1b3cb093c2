// An update rule on this rank's shards: f32 master weights in the ParamStore, the rule's state here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/arena.h"
#include "optim/update_rule.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"

namespace trident {

// Elements of a shard that one call updates: neighbours with equal weight decay, whatever parameters they belong to.
struct UpdateStretch {
  std::int64_t begin = 0, count = 0;
  bool decays = false;
  bool operator==(const UpdateStretch&) const = default;
};
// `pieces` in the order of the shard. Every element of a piece that trains lies in one stretch, and gaps between those in none.
std::vector<UpdateStretch> update_stretches(std::span<const ShardPiece> pieces);

// Elements of a shard that one call updates where weights are rounded at random: neighbours in one named tensor, or padding.
struct RoundedStretch {
  UpdateStretch elements;
  std::optional<RoundedElements> rounding;  // nothing: to nearest, for padding
};
// Keys and places in the tensor as of initial values: from `seed`, the tensor's name and the whole tensor's elements.
std::vector<RoundedStretch> rounded_stretches(std::span<const ShardPiece> pieces, int tensor_degree, int tensor_rank, std::uint64_t seed);

// How the weights in use are rounded after an update: to nearest, or (bf16 alone) at random.
enum class WeightRounding : std::uint8_t { kNearest, kStochastic };

class ShardedOptimizer {
 public:
  ShardedOptimizer(const OptimizerConfig& config, WeightRounding rounding, ParamStore& store, ParallelContext& context,
                   ArenaPlan& plan);
  void bind(Arena& arena);

  // The rule's states of shard `shard` of ParamStore::shards(), in its order; empty for one that is updated elsewhere.
  std::vector<TensorView> states(std::size_t shard) const;

  // Update number `update` (from 1) of `unit`'s shards: master weights and states in place, the new values rounded to the compute
  // dtype where gathers send from (to nearest, or at random where the configuration says so). `gradient_scale` multiplies the gradient first (clipping; 1 / loss scale).
  void step(int unit, std::int64_t update, double lr, double gradient_scale);

 private:
  struct ShardState {
    std::vector<BookedTensor> views;  // f32 [n], as update_states()
    std::vector<RoundedStretch> stretches;
  };

  OptimizerConfig config_;
  ParamStore& store_;
  ParallelContext& context_;
  std::vector<ShardState> states_;  // in the order of ParamStore::shards(); empty for those that are updated elsewhere
};

// min(1, max_norm / (norm + 1e-6)); 1 when clipping is off (max_norm 0).
double clip_factor(double norm, double max_norm);

}  // namespace trident
