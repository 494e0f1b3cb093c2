#include "train/generate/inference_weights.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/int_math.h"
#include "parallel/zero/param_layout.h"

namespace trident {

TensorView InferenceWeights::UnitViews::grad(int) const {
  throw InternalError("a gradient was asked for where nothing is trained");
}

InferenceWeights::InferenceWeights(std::vector<UnitParams> units, DType compute, int tensor_degree, int tensor_rank,
                                   ArenaPlan& plan)
    : units_(std::move(units)), compute_(compute), tensor_degree_(tensor_degree), tensor_rank_(tensor_rank) {
  bool has_lookup = false, shares_lookup = false;
  std::int64_t lookup_bytes = 0;
  params_.reserve(units_.size());
  for (const UnitParams& unit : units_) {
    std::vector<Param>& params = params_.emplace_back();
    for (const ParamSpec& spec : unit.specs) {
      Param& param = params.emplace_back();
      const Shape shape = local_shape(spec, tensor_degree_);
      param.elements = round_up(shape.num_elements(), kParamAlignment);
      param.view = TensorView(nullptr, compute_, shape);
      param.shares_lookup = spec.tie == TiedEnd::kHead && has_lookup;
      shares_lookup = shares_lookup || param.shares_lookup;
      has_lookup = has_lookup || spec.tie == TiedEnd::kLookup;
      if (param.shares_lookup) continue;
      const std::int64_t bytes = param.elements * size_of(compute_);
      param.slot = plan.book(spec.name, MemoryUse::kParameters, bytes);
      bytes_ += bytes;
      if (unit.unit == 0) lookup_bytes += bytes;
    }
    views_.emplace(unit.unit, UnitViews(params));
  }
  bytes_per_token_ = shares_lookup ? bytes_ : bytes_ - lookup_bytes;
  master_slot_ = plan.book("weights on their way from a file, f32", MemoryUse::kWorkspace,
                           compute_ == DType::kF32 ? 0 : kMostElements * size_of(DType::kF32));
}

void InferenceWeights::bind(Arena& arena, Device& device) {
  const TensorView master = arena.grant(master_slot_, DType::kF32, {master_slot_.bytes / size_of(DType::kF32)});
  TensorView lookup;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t i = 0; i < params_[u].size(); ++i) {
      Param& param = params_[u][i];
      const ParamSpec& spec = units_[u].specs[i];
      const Shape shape = param.view.shape();
      if (param.shares_lookup) {
        param.view = lookup.reshape(shape);
        continue;
      }
      const TensorView all = arena.grant(param.slot, compute_, {param.elements});
      param.view = all.range(0, shape.num_elements()).reshape(shape);
      if (spec.tie == TiedEnd::kLookup) lookup = param.view;
      device.ops().fill_zero(device.compute_stream(), all);
      BucketLayout bucket;
      bucket.entries = {{static_cast<int>(i), 0, shape}};
      bucket.elements = bucket.shard_elements = param.elements;
      for (std::int64_t begin = 0; begin < param.elements; begin += kMostElements) {
        ParamShard& shard = shards_.emplace_back();
        shard.unit = units_[u].unit;
        shard.elements = std::min(kMostElements, param.elements - begin);
        shard.param = all.range(begin, shard.elements);
        shard.master = compute_ == DType::kF32 ? shard.param : master.range(0, shard.elements);
        shard.pieces = shard_pieces(bucket, units_[u].specs, begin, shard.elements, tensor_degree_, tensor_rank_);
      }
    }
  }
}

void InferenceWeights::draw(std::uint64_t seed, Device& device) {
  Stream& stream = device.compute_stream();
  std::vector<float> values;
  for (const ParamShard& shard : shards_) {
    values.assign(static_cast<std::size_t>(shard.elements), 0.0f);
    for (const ShardPiece& piece : shard.pieces)
      draw_initial_values(
          piece, tensor_degree_, tensor_rank_, seed,
          std::span(values).subspan(static_cast<std::size_t>(piece.shard_begin), static_cast<std::size_t>(piece.count)));
    device.write(stream, shard.master, values.data());
    if (compute_ != DType::kF32) device.ops().convert(stream, shard.param, shard.master);
  }
}

}  // namespace trident
