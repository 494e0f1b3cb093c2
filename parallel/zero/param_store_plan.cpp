// The planning half of ParamStore: what is booked, granted and drawn before the first step.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/bf16.h"
#include "core/at.h"
#include "core/f16.h"
#include "device/operations.h"
#include "device/ops.h"
#include "parallel/zero/param_store.h"

namespace trident {
namespace {

std::int64_t bytes_of(std::int64_t elements, DType dtype) { return elements * size_of(dtype); }

// The values, rounded to a dtype of 16 bits, take the place of the first half of their memory.
void round_in_place(std::span<float> values, DType dtype) {
  auto* out = reinterpret_cast<std::byte*>(values.data());
  for (const float value : values) {
    const std::uint16_t bits = dtype == DType::kBF16 ? to_bf16(value).bits : to_f16(value).bits;
    std::memcpy(out, &bits, sizeof bits);
    out += sizeof bits;
  }
}

}  // namespace

ParamStore::ParamStore(const ParamStoreConfig& config, std::vector<UnitParams> units, ParallelContext& context, ArenaPlan& plan)
    : config_(config), context_(context), shard_count_(context.data_reduce().size()), shard_index_(context.data_reduce().rank()) {
  const int tensor_degree = context.grid().degrees().tensor;
  units_.reserve(units.size());
  int lookup = -1;
  for (UnitParams& params : units) {
    Unit& unit = units_.emplace_back();
    unit.id = params.unit;
    unit.specs = std::move(params.specs);
    unit.places.resize(unit.specs.size());
    if (static_cast<std::size_t>(unit.id) >= unit_index_.size()) unit_index_.resize(static_cast<std::size_t>(unit.id) + 1, -1);
    at(unit_index_, unit.id) = static_cast<int>(units_.size()) - 1;
    for (BucketLayout& layout : make_buckets(unit.specs, tensor_degree, shard_count_, config_.bucket_bytes)) {
      const int index = static_cast<int>(buckets_.size());
      Bucket& bucket = buckets_.emplace_back();
      bucket.layout = std::move(layout);
      bucket.trains = trains() && bucket.layout.trainable;
      bucket.unit_offset = unit.elements;
      bucket.grad_offset = unit.grad_elements;
      bucket.unit_index = units_.size() - 1;
      unit.buckets.push_back(index);
      unit.elements += bucket.layout.elements;
      if (bucket.trains) unit.grad_elements += bucket.layout.elements;
      if (bucket.layout.tie != TiedEnd::kNone) {
        // The gradients of both ends meet before partial sums are taken.
        TRIDENT_CHECK(bucket.layout.partial_over.empty(), "unit {}: a tied weight with a partial gradient", unit.id);
        if (bucket.layout.tie == TiedEnd::kHead) bucket.shares_weight_with = lookup;
        if (bucket.layout.tie == TiedEnd::kLookup) lookup = index;
      }
      const Bucket& holder = resident() && bucket.shares_weight_with >= 0 ? at(buckets_, bucket.shares_weight_with) : bucket;
      for (const BucketLayout::Entry& entry : bucket.layout.entries) {
        at(unit.places, entry.param) = {entry.shape, bucket.grad_offset + entry.offset, holder.unit_index,
                                                              holder.unit_offset + entry.offset};
      }
    }
  }
  make_shards();
  book(plan);
}

void ParamStore::make_shards() {
  const bool sharded = config_.policy.shard_optimizer;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    const Unit& unit = units_[bucket.unit_index];
    bucket.owned = sharded ? bucket.layout.shard_elements : bucket.layout.elements;
    bucket.owned_begin = sharded ? shard_index_ * bucket.owned : 0;
    bucket.shard = shards_.size();
    ParamShard& shard = shards_.emplace_back();
    shard.unit = unit.id;
    shard.elements = bucket.owned;
    shard.pieces = shard_pieces(bucket.layout, unit.specs, bucket.owned_begin, bucket.owned, context_.grid().degrees().tensor,
                                context_.coordinates().tensor);
    shard.counts_in_norm = bucket.layout.trainable && bucket.layout.tie != TiedEnd::kHead && (sharded || shard_index_ == 0);
    shard.updated = bucket.layout.trainable && bucket.shares_weight_with < 0;
  }
}

// Elements of a unit's own resident weights: all, but for a tied weight that the other end holds.
std::int64_t ParamStore::held_elements(const Unit& unit) const {
  if (unit.buckets.empty()) return 0;  // a unit without parameters
  const Bucket& last = at(buckets_, unit.buckets.back());
  for (const int b : unit.buckets) {
    const Bucket& bucket = at(buckets_, b);
    TRIDENT_CHECK(bucket.shares_weight_with < 0 || &bucket == &last, "unit {}: its tied weight is not the last bucket", unit.id);
  }
  return last.shares_weight_with < 0 ? unit.elements : last.unit_offset;
}

void ParamStore::book(ArenaPlan& plan) {
  const auto book = [&plan](const std::string& name, MemoryUse use, std::int64_t n, DType dtype) {
    return plan.book(fmt::format("{} {} [{}]", name, to_string(dtype), n), use, bytes_of(n, dtype));
  };
  std::int64_t wires = 0;
  for (Unit& unit : units_) {
    const std::string name = fmt::format("unit {}", unit.id);
    if (resident()) {
      unit.weight_slot = book(name + " weights", MemoryUse::kParameters, held_elements(unit), config_.compute);
    }
    if (trains() && config_.grad_bytes == 0) {
      unit.grad_slot = book(name + " gradients", MemoryUse::kGradients, unit.grad_elements, DType::kF32);
    }
    for (const int b : unit.buckets) {
      Bucket& bucket = at(buckets_, b);
      const std::int64_t n = bucket.owned;
      const bool owns_weight = bucket.shares_weight_with < 0;
      // In f32 the master is the value itself: a slice of the resident weights, or the shard that gathers send.
      if (owns_weight && (config_.compute == DType::kF32 ? !resident() : bucket.trains)) {
        bucket.master_slot = book(name + (bucket.trains ? " master weights" : " weight shard"),
                                  bucket.trains ? MemoryUse::kOptimizer : MemoryUse::kParameters, n, DType::kF32);
      }
      if (owns_weight && !resident() && config_.compute != DType::kF32) wires += n;
      if (bucket.trains && config_.policy.grad_sync_every > 0) {
        bucket.accumulated_slot = book(name + " gradient shard", MemoryUse::kGradients, n, DType::kF32);
      }
    }
  }
  if (wires > 0) wires_slot_ = book("weight shards", MemoryUse::kParameters, wires, config_.compute);
  const auto book_region = [&](std::int64_t bytes, MemoryUse use, DType dtype, std::string_view what) {
    return bytes == 0 ? ArenaSlot{} : book(std::string(what), use, bytes / size_of(dtype), dtype);
  };
  gathered_.slot = book_region(config_.gather_bytes, MemoryUse::kParameters, config_.compute, "gathered units");
  if (!trains()) return;
  transient_.slot = book_region(config_.grad_bytes, MemoryUse::kGradients, DType::kF32, "gradients of units in turn");
  const Bucket *lookup = tied_bucket(TiedEnd::kLookup), *head = tied_bucket(TiedEnd::kHead);
  if ((lookup == nullptr) != (head == nullptr)) {  // another rank holds the other end
    const Bucket* tied = lookup != nullptr ? lookup : head;
    if (tied->trains) tied_slot_ = book("tied gradient of the other end", MemoryUse::kCommunication, tied->owned, DType::kF32);
  }
}

void ParamStore::bind(Arena& arena) {
  grant(arena);
  for (const Bucket& bucket : buckets_) {
    if (bucket.shares_weight_with >= 0) continue;
    if (!trains()) context_.device().ops().run(context_.compute_stream(), op::FillZero{.out = bucket.wire});
    else if (context_.device().has_bytes()) draw_weights(bucket);
  }
  publish_masters();
}

void ParamStore::publish_masters() {
  for (const ParamShard& shard : shards_) {
    // One and the same, the other end of a tied weight, or none.
    if (shard.master.data() == nullptr || shard.param.data() == shard.master.data()) continue;
    context_.device().ops().run(context_.compute_stream(), op::Convert{.out = shard.param, .x = shard.master});
  }
  publish_weights();
}

void ParamStore::publish_weights() {
  masters_updated();
  if (!resident() || !config_.policy.shard_optimizer) return;
  for (Unit& unit : units_) gather_buckets(unit, Gathers::kAll);
  for (const Unit& unit : units_) wait_gathered(unit.id, /*place=*/-1);
}

void ParamStore::grant(Arena& arena) {
  const auto flat = [&](ArenaSlot slot, DType dtype, std::int64_t n) { return arena.grant(slot, dtype, Shape{n}); };
  const auto whole = [&](ArenaSlot slot, DType dtype) { return flat(slot, dtype, slot.bytes / size_of(dtype)); };
  gathered_.memory = whole(gathered_.slot, config_.compute);
  transient_.memory = whole(transient_.slot, DType::kF32);
  TensorView wires = whole(wires_slot_, config_.compute);  // those that are not handed out yet
  for (Unit& unit : units_) {
    if (resident()) unit.weights = flat(unit.weight_slot, config_.compute, held_elements(unit));
    if (trains() && config_.grad_bytes == 0) unit.grads = flat(unit.grad_slot, DType::kF32, unit.grad_elements);
    for (const int b : unit.buckets) {
      Bucket& bucket = at(buckets_, b);
      ParamShard& shard = shards_[bucket.shard];
      if (bucket.shares_weight_with < 0) {
        if (resident()) {
          bucket.wire = unit.weights.range(bucket.unit_offset + bucket.owned_begin, bucket.owned);
        } else if (config_.compute == DType::kF32) {
          bucket.wire = flat(bucket.master_slot, DType::kF32, bucket.owned);
        } else {
          bucket.wire = wires.range(0, bucket.owned);
          wires = wires.range(bucket.owned, wires.num_elements() - bucket.owned);
        }
        shard.param = bucket.wire;
        if (config_.compute == DType::kF32) shard.master = bucket.wire;
        else if (bucket.trains) shard.master = flat(bucket.master_slot, DType::kF32, bucket.owned);
      }
      if (!bucket.trains) continue;
      const bool accumulates = config_.policy.grad_sync_every > 0;
      if (accumulates) bucket.accumulated = flat(bucket.accumulated_slot, DType::kF32, bucket.owned);
      shard.grad = accumulates ? bucket.accumulated : reduced_grad(bucket);
    }
  }
  tied_received_ = whole(tied_slot_, DType::kF32);
}

// Draws masters, or where a frozen bucket has none the weights in use, rounded to nearest.
void ParamStore::draw_weights(const Bucket& bucket) {
  ParamShard& shard = shards_[bucket.shard];
  const int tensor_degree = context_.grid().degrees().tensor, tensor_rank = context_.coordinates().tensor;
  const TensorView all = shard.master.data() != nullptr ? shard.master : shard.param;
  std::vector<float> values;  // on their way to a device or to another dtype
  for (const ShardPiece& piece : shard.pieces) {
    const TensorView target = all.range(piece.shard_begin, piece.count);
    if (target.where() == MemoryKind::kHost && all.dtype() == DType::kF32) {
      draw_initial_values(piece, tensor_degree, tensor_rank, config_.seed, target.span<float>());
      continue;
    }
    values.assign(static_cast<std::size_t>(piece.count), 0.0f);
    draw_initial_values(piece, tensor_degree, tensor_rank, config_.seed, values);
    if (all.dtype() != DType::kF32) round_in_place(values, all.dtype());
    context_.device().write(context_.compute_stream(), target, values.data());
  }
}

}  // namespace trident
