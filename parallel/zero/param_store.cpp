#include "parallel/zero/param_store.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/at.h"
#include "device/operations.h"
#include "device/ops.h"

namespace trident {

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
  Ops& ops = context_.device().ops();
  Stream& compute = context_.compute_stream();
  if (lookup != nullptr) finish_reduction(*lookup);
  if (head != nullptr) finish_reduction(*head);
  if (peer == context_.coordinates().pipeline) {
    TRIDENT_CHECK(lookup != nullptr && head != nullptr, "rank {} does not hold both ends of the tied weight", context_.rank());
    const TensorView sum = shards_[lookup->shard].grad;
    ops.run(compute, op::Add{.out = sum, .a = sum, .b = shards_[head->shard].grad});
    return;
  }
  TRIDENT_CHECK((lookup == nullptr) != (head == nullptr), "rank {} does not hold one end of the tied weight", context_.rank());
  const TensorView mine = shards_[(lookup != nullptr ? lookup : head)->shard].grad;
  const Direction out = lookup != nullptr ? Direction::kForward : Direction::kBackward;
  const Direction in = lookup != nullptr ? Direction::kBackward : Direction::kForward;
  Stream& send = context_.send_stream(out);
  Stream& recv = context_.recv_stream(in);
  send.wait(compute.record());
  recv.wait(compute.record());  // the addition of the step before read tied_received_
  context_.pipeline(out).send(send, mine, peer);
  context_.pipeline(in).recv(recv, tied_received_, peer);
  compute.wait(recv.record());
  compute.wait(send.record());  // `mine` is overwritten next
  if (lookup != nullptr) {
    ops.run(compute, op::Add{.out = mine, .a = mine, .b = tied_received_});
  } else {
    ops.run(compute, op::Add{.out = mine, .a = tied_received_, .b = mine});
  }
}

}  // namespace trident
