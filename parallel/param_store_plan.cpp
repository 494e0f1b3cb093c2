// The planning half of ParamStore: what is booked, granted and drawn before the first step.

#include <algorithm>
#include <cstdint>
#include <string>

#include "parallel/param_store.h"

namespace trident {
namespace {

std::int64_t bytes_of(std::int64_t elements, DType dtype) { return elements * size_of(dtype); }

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
    unit_index_[static_cast<std::size_t>(unit.id)] = static_cast<int>(units_.size()) - 1;
    for (BucketLayout& layout : make_buckets(unit.specs, tensor_degree, shard_count_, config_.bucket_bytes)) {
      const int index = static_cast<int>(buckets_.size());
      Bucket& bucket = buckets_.emplace_back();
      bucket.layout = std::move(layout);
      bucket.unit_offset = unit.elements;
      bucket.unit_index = units_.size() - 1;
      unit.buckets.push_back(index);
      unit.elements += bucket.layout.elements;
      if (bucket.layout.tie != TiedEnd::kNone) {
        // The gradients of both ends meet before partial sums are taken.
        TRIDENT_CHECK(bucket.layout.partial_over.empty(), "unit {}: a tied weight with a partial gradient", unit.id);
        if (bucket.layout.tie == TiedEnd::kHead) bucket.shares_weight_with = lookup;
        if (bucket.layout.tie == TiedEnd::kLookup) lookup = index;
      }
      const Bucket& holder = resident() && bucket.shares_weight_with >= 0 ? buckets_[static_cast<std::size_t>(bucket.shares_weight_with)] : bucket;
      for (const BucketLayout::Entry& entry : bucket.layout.entries) {
        unit.places[static_cast<std::size_t>(entry.param)] = {entry.shape, bucket.unit_offset + entry.offset, holder.unit_index,
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
  const Bucket& last = buckets_[static_cast<std::size_t>(unit.buckets.back())];
  for (const int b : unit.buckets) {
    const Bucket& bucket = buckets_[static_cast<std::size_t>(b)];
    TRIDENT_CHECK(bucket.shares_weight_with < 0 || &bucket == &last, "unit {}: its tied weight is not the last bucket", unit.id);
  }
  return last.shares_weight_with < 0 ? unit.elements : last.unit_offset;
}

void ParamStore::book(ArenaPlan& plan) {
  const auto book = [&plan](const std::string& name, MemoryUse use, std::int64_t n, DType dtype) {
    return plan.book(fmt::format("{} {} [{}]", name, to_string(dtype), n), use, bytes_of(n, dtype));
  };
  std::int64_t largest = 0;
  for (Unit& unit : units_) {
    largest = std::max(largest, unit.elements);
    const std::string name = fmt::format("unit {}", unit.id);
    if (resident()) {
      unit.weight_slot = book(name + " weights", MemoryUse::kParameters, held_elements(unit), config_.compute);
    }
    if (config_.num_grad_slots == 0) {
      unit.grad_slot = book(name + " gradients", MemoryUse::kGradients, unit.elements, DType::kF32);
    }
    for (const int b : unit.buckets) {
      Bucket& bucket = buckets_[static_cast<std::size_t>(b)];
      const std::int64_t n = bucket.owned;
      const bool owns_weight = bucket.shares_weight_with < 0;
      // In f32 the master is the value itself: a slice of the resident weights, or the shard that gathers send.
      if (owns_weight && !(resident() && config_.compute == DType::kF32)) {
        bucket.master_slot = book(name + " master weights", MemoryUse::kOptimizer, n, DType::kF32);
      }
      if (owns_weight && !resident() && config_.compute != DType::kF32) {
        bucket.wire_slot = book(name + " weight shard", MemoryUse::kParameters, n, config_.compute);
      }
      if (config_.policy.grad_sync_every > 0) {
        bucket.accumulated_slot = book(name + " gradient shard", MemoryUse::kGradients, n, DType::kF32);
      }
    }
  }
  const auto book_slots = [&](std::vector<Slot>& slots, int count, MemoryUse use, DType dtype, std::string_view what) {
    slots.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i].range = book(fmt::format("{} {}", what, i), use, largest, dtype);
    }
  };
  book_slots(gather_slots_, config_.num_gather_slots, MemoryUse::kParameters, config_.compute, "gathered unit");
  book_slots(grad_slots_, config_.num_grad_slots, MemoryUse::kGradients, DType::kF32, "gradients of a unit");
  const Bucket *lookup = tied_bucket(TiedEnd::kLookup), *head = tied_bucket(TiedEnd::kHead);
  if ((lookup == nullptr) != (head == nullptr)) {  // another rank holds the other end
    const Bucket* tied = lookup != nullptr ? lookup : head;
    tied_slot_ = book("tied gradient of the other end", MemoryUse::kCommunication, tied->owned, DType::kF32);
  }
}

void ParamStore::bind(Arena& arena) {
  grant(arena);
  for (const Bucket& bucket : buckets_) {
    if (bucket.shares_weight_with < 0 && context_.device().has_bytes()) draw_weights(bucket);
  }
  publish_masters();
}

void ParamStore::publish_masters() {
  for (const ParamShard& shard : shards_) {
    if (shard.param.data() == shard.master.data()) continue;  // one and the same, or the other end of a tied weight
    context_.device().ops().convert(context_.compute_stream(), shard.param, shard.master);
  }
  publish_weights();
}

void ParamStore::publish_weights() {
  masters_updated();
  if (!resident() || !config_.policy.shard_optimizer) return;
  for (const Unit& unit : units_) gather(unit.id, /*slot=*/-1);
  for (const Unit& unit : units_) wait_gathered(unit.id, /*slot=*/-1);
}

void ParamStore::grant(Arena& arena) {
  const auto flat = [&](ArenaSlot slot, DType dtype, std::int64_t n) { return arena.grant(slot, dtype, Shape{n}); };
  std::int64_t largest = 0;
  for (const Unit& unit : units_) largest = std::max(largest, unit.elements);
  for (Slot& slot : gather_slots_) slot.buffer = flat(slot.range, config_.compute, largest);
  for (Slot& slot : grad_slots_) slot.buffer = flat(slot.range, DType::kF32, largest);
  for (Unit& unit : units_) {
    if (resident()) unit.weights = flat(unit.weight_slot, config_.compute, held_elements(unit));
    if (grad_slots_.empty()) unit.grads = flat(unit.grad_slot, DType::kF32, unit.elements);
    for (const int b : unit.buckets) {
      Bucket& bucket = buckets_[static_cast<std::size_t>(b)];
      ParamShard& shard = shards_[bucket.shard];
      if (bucket.shares_weight_with < 0) {
        if (resident()) {
          bucket.wire = unit.weights.range(bucket.unit_offset + bucket.owned_begin, bucket.owned);
        } else {
          const bool is_master = config_.compute == DType::kF32;
          bucket.wire = flat(is_master ? bucket.master_slot : bucket.wire_slot, config_.compute, bucket.owned);
        }
        shard.param = bucket.wire;
        shard.master = config_.compute == DType::kF32 ? bucket.wire : flat(bucket.master_slot, DType::kF32, bucket.owned);
      }
      const bool accumulates = config_.policy.grad_sync_every > 0;
      if (accumulates) bucket.accumulated = flat(bucket.accumulated_slot, DType::kF32, bucket.owned);
      shard.grad = accumulates ? bucket.accumulated : reduced_grad(bucket);
    }
  }
  tied_received_ = flat(tied_slot_, DType::kF32, tied_slot_.bytes / size_of(DType::kF32));
}

void ParamStore::draw_weights(const Bucket& bucket) {
  ParamShard& shard = shards_[bucket.shard];
  const int tensor_degree = context_.grid().degrees().tensor, tensor_rank = context_.coordinates().tensor;
  std::vector<float> values;  // on their way to a device
  for (const ShardPiece& piece : shard.pieces) {
    const TensorView target = shard.master.range(piece.shard_begin, piece.count);
    if (target.where() == MemoryKind::kHost) {
      draw_initial_values(piece, tensor_degree, tensor_rank, config_.seed, target.span<float>());
      continue;
    }
    values.assign(static_cast<std::size_t>(piece.count), 0.0f);
    draw_initial_values(piece, tensor_degree, tensor_rank, config_.seed, values);
    context_.device().write(context_.compute_stream(), target, values.data());
  }
}

}  // namespace trident
