#include "parallel/zero/param_store.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "core/bf16.h"
#include "core/f16.h"
#include "device/operations.h"
#include "device/ops.h"

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
      if (config_.policy.grad_sync_every > 0) bucket.accumulated = flat(bucket.accumulated_slot, DType::kF32, bucket.owned);
      shard.grad = owned_grad(bucket);
    }
  }
  tied_received_ = whole(tied_slot_, DType::kF32);
  const Bucket *lookup = tied_bucket(TiedEnd::kLookup), *head = tied_bucket(TiedEnd::kHead);
  if (lookup != nullptr && lookup->trains) shards_[lookup->shard].grad = head != nullptr ? owned_grad(*head) : tied_received_;
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

std::size_t ParamStore::index_of(int id) const {
  const bool here = id >= 0 && static_cast<std::size_t>(id) < unit_index_.size() && at(unit_index_, id) >= 0;
  TRIDENT_CHECK(here, "unit {} is not on rank {}", id, context_.rank());
  return static_cast<std::size_t>(at(unit_index_, id));
}

TensorView ParamStore::Region::place(int number, std::int64_t elements) const {
  return memory.range(number * kArenaAlignment / size_of(memory.dtype()), elements);
}

namespace {

bool overlap(const TensorView& a, const TensorView& b) {
  return a.num_bytes() > 0 && b.num_bytes() > 0 && a.data() < b.data() + b.num_bytes() && b.data() < a.data() + a.num_bytes();
}

// Calls `of_bucket` for each bucket of a unit; what that asks of `group` is one group of operations: one launch on GPUs.
// Transports hold a few hundred; a unit of more buckets than that is several groups.
template <class F>
void for_each_bucket_grouped(Communicator& group, std::span<const int> buckets, F&& of_bucket) {
  constexpr std::size_t kMost = 128;
  for (; !buckets.empty(); buckets = buckets.subspan(std::min(kMost, buckets.size()))) {
    const std::span<const int> part = buckets.first(std::min(kMost, buckets.size()));
    if (part.size() == 1) return of_bucket(part.front());
    const GroupScope scope(group);
    for (const int b : part) of_bucket(b);
  }
}

}  // namespace

// ---- weights -------------------------------------------------------------------------------------------------------------------

void ParamStore::gather(int id, int place) {
  Unit& unit = unit_of(id);
  if (resident()) return gather_buckets(unit, Gathers::kUpdated);
  const TensorView weights = gathered_.place(place, unit.elements);
  for (const Unit& other : units_)
    TRIDENT_CHECK(!overlap(other.weights, weights), "unit {} is gathered to place {}, where unit {} is", id, place, other.id);
  // Whatever was there before: the compute stream is in order, so the last release stands for all.
  context_.gather_stream().wait(released_);
  unit.weights = weights;
  gather_buckets(unit, Gathers::kAll);
}

void ParamStore::gather_buckets(Unit& unit, Gathers which) {
  if (which == Gathers::kUpdated && unit.grad_elements == 0) return;
  Stream& stream = context_.gather_stream();
  stream.wait(masters_updated_);
  for_each_bucket_grouped(context_.data_gather(), unit.buckets, [&](int b) {
    const Bucket& bucket = at(buckets_, b);
    if (which == Gathers::kUpdated && !bucket.trains) return;
    if (resident() && bucket.shares_weight_with >= 0) return;  // gathered as part of the other end
    const Bucket& source = bucket.shares_weight_with >= 0 ? at(buckets_, bucket.shares_weight_with) : bucket;
    const std::int64_t n = bucket.layout.shard_elements;
    const ConstTensorView mine = source.wire.num_elements() == n ? source.wire : source.wire.range(shard_index_ * n, n);
    context_.data_gather().all_gather(stream, unit.weights.range(bucket.unit_offset, bucket.layout.elements), mine);
  });
  unit.gathered = stream.record();
  unit.gather_pending = true;
}

void ParamStore::wait_gathered(int id, int place) {
  Unit& unit = unit_of(id);
  check_place(unit, place);
  if (unit.gather_pending) context_.compute_stream().wait(unit.gathered);
  unit.gather_pending = false;
}

void ParamStore::free(int id, int place) {
  Unit& unit = unit_of(id);
  check_place(unit, place);
  released_ = context_.compute_stream().record();
  unit.weights = TensorView();  // a use before the next gather fails instead of reading another unit's weights
}

void ParamStore::check_place(const Unit& unit, int place) const {
  if (resident()) return;
  const bool there = unit.weights.data() != nullptr && unit.weights.data() == gathered_.place(place, unit.elements).data();
  TRIDENT_CHECK(there, "unit {} is not at place {}", unit.id, place);
}

void ParamStore::masters_updated() {
  masters_updated_ = context_.compute_stream().record();
  ++weights_version_;
}

ConstTensorView ParamStore::weight(int id, int param) const {
  const Place& place = at(unit_of(id).places, param);
  const Unit& holder = units_[place.weight_unit];
  TRIDENT_CHECK(!holder.gather_pending, "unit {} is used before its gather was awaited", holder.id);
  TRIDENT_CHECK(holder.weights.data() != nullptr, "unit {} is used while not gathered", holder.id);
  return holder.weights.range(place.weight_offset, place.shape.num_elements()).reshape(place.shape);
}

// ---- gradients -------------------------------------------------------------------------------------------------------------------

void ParamStore::begin_backward(int id, int place, Accumulate mode) {
  Unit& unit = unit_of(id);
  unit.mode = mode;
  if (mode == Accumulate::kYes || unit.grad_elements == 0) return;
  finish_unit(unit);
  if (config_.grad_bytes > 0) {
    const TensorView grads = transient_.place(place, unit.grad_elements);
    for (Unit& other : units_)
      if (overlap(other.grads, grads)) finish_unit(other);
    unit.grads = grads;
  }
  zero_gaps(unit);
}

TensorView ParamStore::grad(int id, int param) const {
  const Unit& unit = unit_of(id);
  const Place& place = at(unit.places, param);
  return unit.grads.range(place.grad_offset, place.shape.num_elements()).reshape(place.shape);
}

Accumulate ParamStore::grad_mode(int id) const { return unit_of(id).mode; }

// A transient buffer holds another unit's values where this unit has gaps; reductions carry gaps along, so they must be zero.
void ParamStore::zero_gaps(const Unit& unit) {
  Ops& ops = context_.device().ops();
  Stream& stream = context_.compute_stream();
  for (const int b : unit.buckets) {
    const Bucket& bucket = at(buckets_, b);
    if (!bucket.trains) continue;
    std::int64_t end = 0;
    const auto zero_to = [&](std::int64_t next) {
      if (next > end) ops.run(stream, op::FillZero{.out = unit.grads.range(bucket.grad_offset + end, next - end)});
    };
    for (const BucketLayout::Entry& entry : bucket.layout.entries) {
      zero_to(entry.offset);
      end = entry.offset + entry.elements();
    }
    zero_to(bucket.layout.elements);
  }
}

TensorView ParamStore::bucket_grad(const Bucket& bucket) const {
  const Unit& unit = units_[bucket.unit_index];
  return unit.grads.range(bucket.grad_offset, bucket.layout.elements);
}

TensorView ParamStore::reduced_grad(const Bucket& bucket) const {
  const TensorView whole = bucket_grad(bucket);
  return whole.range(bucket.owned_begin, bucket.owned);
}

TensorView ParamStore::owned_grad(const Bucket& bucket) const {
  if (!bucket.trains) return {};
  return config_.policy.grad_sync_every > 0 ? bucket.accumulated : reduced_grad(bucket);
}

void ParamStore::reduce(int id, bool last) {
  Unit& unit = unit_of(id);
  Stream& stream = context_.reduce_stream();
  stream.wait(context_.compute_stream().record());  // backward wrote the gradients there
  for_each_bucket_grouped(context_.data_reduce(), unit.buckets, [&](int b) {
    const Bucket& bucket = at(buckets_, b);
    if (!bucket.trains) return;
    const TensorView local = bucket_grad(bucket);
    if (config_.policy.shard_optimizer) {
      context_.data_reduce().reduce_scatter(stream, reduced_grad(bucket), local, ReduceOp::kSum);
    } else {
      context_.data_reduce().all_reduce(stream, local, ReduceOp::kSum);
    }
  });
  for (const int b : unit.buckets) {
    Bucket& bucket = at(buckets_, b);
    if (!bucket.trains) continue;
    if (config_.policy.grad_sync_every == 0) sum_partial(bucket, reduced_grad(bucket));
    bucket.reduced = stream.record();
    bucket.reduction_pending = true;
    bucket.reduction_last = last;
  }
}

// A partial gradient is complete once summed over the tensor ranks that hold the other parts.
void ParamStore::sum_partial(Bucket& bucket, TensorView grad) {
  for (const SubAxis& sub_axis : bucket.layout.partial_over) {
    context_.partial(sub_axis).all_reduce(context_.reduce_stream(), grad, ReduceOp::kSum);
  }
}

// Waits for a started reduction and, when micro-batches are reduced one by one, adds its result to the sum so far.
void ParamStore::finish_reduction(Bucket& bucket) {
  if (!bucket.reduction_pending) return;
  bucket.reduction_pending = false;
  Stream& compute = context_.compute_stream();
  compute.wait(bucket.reduced);
  if (config_.policy.grad_sync_every == 0) return;
  Ops& ops = context_.device().ops();
  if (bucket.has_accumulated) {
    ops.run(compute, op::AccumulateInto{.out = bucket.accumulated, .x = reduced_grad(bucket)});
  } else {
    ops.run(compute, op::Convert{.out = bucket.accumulated, .x = reduced_grad(bucket)});
  }
  bucket.has_accumulated = true;
}

void ParamStore::finish_unit(Unit& unit) {
  for (const int b : unit.buckets) finish_reduction(at(buckets_, b));
}

void ParamStore::wait_reduced() {
  Stream& compute = context_.compute_stream();
  for (Unit& unit : units_) finish_unit(unit);
  if (config_.policy.grad_sync_every > 0) {
    context_.reduce_stream().wait(compute.record());
    for (Bucket& bucket : buckets_) {
      if (bucket.has_accumulated && bucket.reduction_last) sum_partial(bucket, bucket.accumulated);
      bucket.has_accumulated = bucket.reduction_last = false;
    }
  }
  compute.wait(context_.reduce_stream().record());
}

ParamStore::Bucket* ParamStore::tied_bucket(TiedEnd end) {
  for (Bucket& bucket : buckets_) {
    if (bucket.layout.tie == end) return &bucket;
  }
  return nullptr;
}

void ParamStore::exchange_tied(int peer) {
  Bucket* lookup = tied_bucket(TiedEnd::kLookup);
  Bucket* head = tied_bucket(TiedEnd::kHead);
  Stream& compute = context_.compute_stream();
  if (lookup != nullptr) finish_reduction(*lookup);
  if (head != nullptr) finish_reduction(*head);
  const TensorView of_lookup = lookup != nullptr ? owned_grad(*lookup) : tied_received_;
  const TensorView of_head = head != nullptr ? owned_grad(*head) : tied_received_;
  if (peer == context_.coordinates().pipeline) {
    TRIDENT_CHECK(lookup != nullptr && head != nullptr, "rank {} does not hold both ends of the tied weight", context_.rank());
  } else {
    TRIDENT_CHECK((lookup == nullptr) != (head == nullptr), "rank {} does not hold one end of the tied weight", context_.rank());
    const Direction out = lookup != nullptr ? Direction::kForward : Direction::kBackward;
    const Direction in = lookup != nullptr ? Direction::kBackward : Direction::kForward;
    Stream& send = context_.send_stream(out);
    Stream& recv = context_.recv_stream(in);
    send.wait(compute.record());
    recv.wait(compute.record());  // the step before has read tied_received_
    context_.pipeline(out).send(send, lookup != nullptr ? of_lookup : of_head, peer);
    context_.pipeline(in).recv(recv, tied_received_, peer);
    compute.wait(recv.record());
    compute.wait(send.record());  // what was sent is overwritten next
  }
  context_.device().ops().run(compute, op::AccumulateInto{.out = of_head, .x = of_lookup});
}

}  // namespace trident
