#include "planner/search/layout_memory.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/at.h"
#include "core/check.h"
#include "core/exact_sum.h"
#include "core/int_math.h"

namespace trident {
namespace {

constexpr std::int64_t kStatisticsBlocks = 16384;  // of the norm's sums of squares

std::int64_t rounded(std::int64_t bytes) { return round_up(bytes, kArenaAlignment); }

std::int64_t elements_of(const LayoutMemoryInputs& in, UnitKind kind) {
  std::int64_t sum = 0;
  for (const BucketSize& bucket : in.buckets[kind]) sum += bucket.elements;
  return sum;
}

class Booking {
 public:
  Booking(const LayoutMemoryInputs& in, const RankUnits& units, int rank) : in_(in), units_(units), rank_(rank) {}

  ArenaMemory run() {
    book(MemoryUse::kParameters, in_.passes.constants);
    book_activations();
    book_parameters();
    book_rest();
    return memory_;
  }

 private:
  void book(MemoryUse use, std::int64_t bytes, std::int64_t times = 1) { at(memory_.by_use, use) += rounded(bytes) * times; }
  const RankFacts& facts() const { return at(in_.schedule, rank_); }
  int count(UnitKind kind) const {
    int sum = 0;
    for (const ChunkUnits& chunk : units_) sum += chunk.count(kind);
    return sum;
  }

  // Stage's part: blocks of micro-batches, areas of all units, borders.
  void book_activations() {
    for (std::size_t c = 0; c < units_.size(); ++c) {
      std::int64_t bytes = 0;
      for (const UnitKind kind : kUnitKinds) {
        const std::int64_t input = kind == UnitKind::kEmbedding ? 0 : in_.passes.activation;
        bytes += units_[c].count(kind) * (in_.passes.saved[kind] + input);
      }
      book(MemoryUse::kActivations, bytes, facts().slots[c]);
    }
    for (std::size_t r = 0; r < kNumRegions; ++r) {
      const auto region = static_cast<Region>(r);
      if (region == Region::kSaved || region == Region::kSavedForW) continue;
      if (region == Region::kDerived) {
        for (const UnitKind kind : kUnitKinds) book(MemoryUse::kParameters, in_.passes.regions[kind][r], count(kind));
        continue;
      }
      std::int64_t most = 0;
      for (const UnitKind kind : kUnitKinds)
        if (count(kind) > 0) most = std::max(most, in_.passes.regions[kind][r]);
      const bool recomputed = region == Region::kRecomputed || region == Region::kRecomputedForW;
      book(recomputed ? MemoryUse::kActivations : MemoryUse::kWorkspace, most);
    }
    const int borders = facts().activation_receives + facts().gradient_receives + (in_.pipeline * in_.chunks > 1 ? 4 : 2);
    book(MemoryUse::kCommunication, in_.passes.activation, borders);
    // Keys and values that are read and that arrive, and their gradients likewise.
    book(MemoryUse::kCommunication, in_.passes.ring, 4);
  }

  std::int64_t elements(UnitKind kind) const { return elements_of(in_, kind); }
  std::int64_t owned(const BucketSize& bucket) const { return in_.policy.shard_optimizer ? bucket.shard : bucket.elements; }
  // The head's copy of a weight that lies with the embedding on this rank.
  bool shares(const BucketSize& bucket) const { return in_.tied && in_.pipeline == 1 && bucket.tie == TiedEnd::kHead; }

  // The most of two units side by side, of all that come one after the other. `sums`: whether the second of a succession of two
  // actions lies beside the first.
  template <class Bytes, class Sums>
  std::int64_t most_of_two(Bytes bytes, Sums sums) const {
    std::int64_t most = 0;
    const auto beside = [&](UnitKind a, UnitKind b) { most = std::max(most, bytes(a) + bytes(b)); };
    for (const ChunkUnits& chunk : units_) {
      for (const UnitKind kind : kUnitKinds)
        if (chunk.has(kind)) most = std::max(most, bytes(kind));
      if (!in_.overlap) continue;
      if (chunk.blocks > 1) beside(UnitKind::kBlock, UnitKind::kBlock);
      if (chunk.embedding) beside(UnitKind::kEmbedding, chunk.blocks > 0 ? UnitKind::kBlock : UnitKind::kHead);
      if (chunk.head) beside(UnitKind::kHead, UnitKind::kBlock);
    }
    if (!in_.overlap) return most;
    for (const Succession& s : facts().successions) {
      const auto a = static_cast<std::size_t>(s.chunk_before), b = static_cast<std::size_t>(s.chunk_after);
      const bool forward_before = s.before == ActionKind::kForward, forward_after = s.after == ActionKind::kForward;
      const UnitKind x = forward_before ? units_[a].last() : units_[a].first();
      const UnitKind y = forward_after ? units_[b].first() : units_[b].last();
      // The same unit twice stays where it is.
      const bool end_a = forward_before, end_b = !forward_after;
      const bool single = a == b && units_[a].blocks + (units_[a].embedding ? 1 : 0) + (units_[a].head ? 1 : 0) == 1;
      if (a == b && (end_a == end_b || single)) continue;
      if (sums(s)) beside(x, y);
    }
    return most;
  }

  std::int64_t gather_region() const {
    return most_of_two([this](UnitKind kind) { return unit_bytes_of(in_, kind).gathered; }, [](const Succession&) { return true; });
  }

  bool gathers_on_use() const {
    if (in_.data == 1 || in_.policy.param_gather != ParamGather::kPerUse) return false;
    std::int64_t resident = 0, shards = 0;
    for (const UnitKind kind : kUnitKinds) {
      const UnitBytes bytes = unit_bytes_of(in_, kind);
      resident += count(kind) * bytes.resident;
      shards += count(kind) * bytes.shard;
    }
    return gather_region() + round_up(shards, kPlaceBytes) < resident;
  }
  std::int64_t gradient_region() const {
    const auto both_backward = [](const Succession& s) {
      return s.before != ActionKind::kForward && s.after != ActionKind::kForward;
    };
    return most_of_two([this](UnitKind kind) { return unit_bytes_of(in_, kind).gradients; }, both_backward);
  }

  // ParamStore's and the optimizer's part.
  void book_parameters() {
    memory_.gathers_on_use = gathers_on_use();
    const bool resident = !memory_.gathers_on_use, f32 = in_.compute == DType::kF32;
    const bool in_turn = in_.policy.grad_sync_every == 1;
    std::int64_t wires = 0;
    for (const UnitKind kind : kUnitKinds) {
      const std::int64_t n = count(kind);
      std::int64_t held = 0;
      for (const BucketSize& bucket : in_.buckets[kind]) {
        const bool owns = !shares(bucket);
        if (owns || !resident) held += bucket.elements;
        const std::int64_t bytes = owned(bucket) * size_of(DType::kF32);
        if (owns && (!f32 || !resident)) book(MemoryUse::kOptimizer, bytes, n);
        if (owns && !resident && !f32) wires += n * owned(bucket);
        if (in_.policy.grad_sync_every > 0) book(MemoryUse::kGradients, bytes, n);
        if (owns) book(MemoryUse::kOptimizer, bytes, n * in_.optimizer_states);
      }
      if (resident) book(MemoryUse::kParameters, held * size_of(in_.compute), n);
      if (!in_turn) book(MemoryUse::kGradients, elements(kind) * size_of(DType::kF32), n);
    }
    book(MemoryUse::kParameters, wires * size_of(in_.compute));
    if (!resident) book(MemoryUse::kParameters, gather_region());
    if (in_turn) book(MemoryUse::kGradients, gradient_region());
    if (!in_.tied || in_.pipeline == 1) return;
    for (const UnitKind kind : {UnitKind::kEmbedding, UnitKind::kHead}) {
      if (count(kind) == 0) continue;
      for (const BucketSize& bucket : in_.buckets[kind])
        if (bucket.tie != TiedEnd::kNone) book(MemoryUse::kCommunication, owned(bucket) * size_of(DType::kF32));
    }
  }

  // The norm's sums and the batch.
  void book_rest() {
    book(MemoryUse::kWorkspace, kStatisticsBlocks * size_of(DType::kF64));
    book(MemoryUse::kWorkspace, static_cast<std::int64_t>(ExactSum::kLimbs) * size_of(DType::kI64));
    book(MemoryUse::kData, in_.batch);
  }

  const LayoutMemoryInputs& in_;
  const RankUnits& units_;
  int rank_;
  ArenaMemory memory_;
};

}  // namespace

std::int64_t ArenaMemory::total() const { return std::accumulate(by_use.begin(), by_use.end(), std::int64_t{0}); }

std::vector<RankUnits> units_by_rank(const UnitsOfStage& stages, int pipeline, int head_unit) {
  std::vector<RankUnits> ranks(static_cast<std::size_t>(pipeline));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    ChunkUnits& chunk = ranks[stage % ranks.size()].emplace_back();
    chunk.embedding = stages[stage].front() == 0;
    chunk.head = stages[stage].back() == head_unit;
    chunk.blocks = static_cast<int>(stages[stage].size()) - (chunk.embedding ? 1 : 0) - (chunk.head ? 1 : 0);
  }
  return ranks;
}

UnitBytes unit_bytes_of(const LayoutMemoryInputs& in, UnitKind kind) {
  std::int64_t held = 0, owned = 0;
  for (const BucketSize& bucket : in.buckets[kind]) {
    if (bucket.tie == TiedEnd::kHead && in.pipeline == 1) continue;  // lies with the embedding
    held += bucket.elements;
    owned += in.policy.shard_optimizer ? bucket.shard : bucket.elements;
  }
  return {.gathered = round_up(elements_of(in, kind) * size_of(in.compute), kPlaceBytes),
          .gradients = round_up(elements_of(in, kind) * size_of(DType::kF32), kPlaceBytes),
          .resident = round_up(held * size_of(in.compute), kPlaceBytes),
          .shard = owned * size_of(in.compute)};
}

ArenaMemory arena_memory(const LayoutMemoryInputs& in, const RankUnits& units, int rank) { return Booking(in, units, rank).run(); }

}  // namespace trident
