// AdamW on this rank's shards: f32 master weights in the ParamStore, both moments here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/ops.h"
#include "parallel/parallel_context.h"
#include "parallel/param_store.h"

namespace trident {

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  bool stochastic_rounding = false;  // of the weights in use, which are bf16
};

// Elements of a shard that one call updates: neighbours with equal weight decay, whatever parameters they belong to.
struct UpdateStretch {
  std::int64_t begin = 0, count = 0;
  bool decays = false;
  bool operator==(const UpdateStretch&) const = default;
};
// `pieces` in the order of the shard. Every element of a piece lies in one stretch, and gaps between pieces in none.
std::vector<UpdateStretch> update_stretches(std::span<const ShardPiece> pieces);

// Elements of a shard that one call updates where weights are rounded at random: neighbours in one named tensor, or padding.
struct RoundedStretch {
  UpdateStretch elements;
  std::optional<StochasticRounding> rounding;  // in an update to be named; nothing: to nearest, for padding
};
// Keys and places in the tensor as of initial values: from `seed`, the tensor's name and the whole tensor's elements.
std::vector<RoundedStretch> rounded_stretches(std::span<const ShardPiece> pieces, int tensor_degree, int tensor_rank, std::uint64_t seed);

class ShardedOptimizer {
 public:
  ShardedOptimizer(const AdamWConfig& config, ParamStore& store, ParallelContext& context, ArenaPlan& plan);
  void bind(Arena& arena);

  // What the update rule keeps of every element beside the master weight, f32, by name; and these of shard `shard` of
  // ParamStore::shards() in that order, empty for one that is updated elsewhere.
  static std::span<const std::string> state_names();
  std::vector<TensorView> states(std::size_t shard) const;

  // Update number `update` (from 1) of `unit`'s shards: master weights and moments in place, the new values rounded to the compute
  // dtype where gathers send from (to nearest, or at random where the configuration says so). `gradient_scale` multiplies the gradient first (clipping; 1 / loss scale).
  void step(int unit, std::int64_t update, double lr, double gradient_scale);

 private:
  struct Moments {
    ArenaSlot first_slot, second_slot;
    TensorView first, second;  // f32 [n]
    std::vector<RoundedStretch> stretches;
  };

  AdamWConfig config_;
  ParamStore& store_;
  ParallelContext& context_;
  std::vector<Moments> moments_;  // in the order of ParamStore::shards(); empty for those that are updated elsewhere
};

// min(1, max_norm / (norm + 1e-6)); 1 when clipping is off (max_norm 0).
double clip_factor(double norm, double max_norm);

}  // namespace trident
