// The weights of a rank that only computes forward: each once, in the compute dtype. No masters, no gradients, no shards.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "checkpoint/shard_boxes.h"
#include "device/arena.h"
#include "device/device.h"
#include "parallel/zero/param_store.h"
#include "tensor_parallel/pass.h"

namespace trident {

class InferenceWeights {
 public:
  // `units`: of the rank, in model order. A head that shares the embedding's weight has none of its own where both are here.
  InferenceWeights(std::vector<UnitParams> units, DType compute, int tensor_degree, int tensor_rank, ArenaPlan& plan);
  InferenceWeights(const InferenceWeights&) = delete;  // pieces point into the specs
  InferenceWeights& operator=(const InferenceWeights&) = delete;

  // Zeroes all: padding stays so.
  void bind(Arena& arena, Device& device);

  // Where values come from. Stretches of the weights of at most kMostElements, in model order: `param` is what to fill, and
  // `master` f32 memory of as many elements that all of them share. After bind().
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 22;
  std::span<const ParamShard> shards() const { return shards_; }
  ShardHolder holder() const { return {.tensor_degree = tensor_degree_, .tensor_rank = tensor_rank_, .sharded = false}; }

  // Draws every weight as training does before its first step.
  void draw(std::uint64_t seed, Device& device);

  // Lives as long as the object.
  const ParamViews& of(int unit) const { return views_.at(unit); }
  std::int64_t bytes() const { return bytes_; }
  // Of those, what a token that comes alone reads: all but the embedding's rows, unless they are the head's, too.
  std::int64_t bytes_per_token() const { return bytes_per_token_; }

 private:
  struct Param {
    ArenaSlot slot;
    std::int64_t elements = 0;  // rounded up
    TensorView view;            // dense
    bool shares_lookup = false;
  };
  class UnitViews final : public ParamViews {
   public:
    explicit UnitViews(const std::vector<Param>& params) : params_(params) {}
    ConstTensorView weight(int param) const override { return params_.at(static_cast<std::size_t>(param)).view; }
    TensorView grad(int param) const override;  // there is none
    Accumulate grad_mode() const override { return Accumulate::kNo; }

   private:
    const std::vector<Param>& params_;
  };

  std::vector<UnitParams> units_;
  DType compute_;
  int tensor_degree_, tensor_rank_;
  std::vector<std::vector<Param>> params_;  // by unit, by parameter
  std::map<int, UnitViews> views_;
  std::vector<ParamShard> shards_;
  ArenaSlot master_slot_;
  std::int64_t bytes_ = 0, bytes_per_token_ = 0;
};

}  // namespace trident
