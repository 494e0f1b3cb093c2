#include "planner/search/layout_memory.h"

#include <algorithm>
#include <cstdint>

#include "core/at.h"
#include "core/int_math.h"
#include "pipeline/stage_regions.h"

namespace trident {
namespace {

class Booking {
 public:
  Booking(const LayoutMemoryInputs& in, const RankUnits& units, int rank) : in_(in), units_(units), rank_(rank) {}

  ArenaMemory run() {
    memory_.gathers_on_use = gathers_on_use();
    const StoreMemory& store = memory_.gathers_on_use ? in_.on_use : in_.resident;
    for (const UnitKind kind : kUnitKinds) memory_.add(store.units[kind], count(kind));
    book(MemoryUse::kWorkspace, store.statistics);
    if (memory_.gathers_on_use) {
      if (in_.compute != DType::kF32) book(MemoryUse::kParameters, sum(&UnitBytes::shard));
      book(MemoryUse::kParameters, gather_region());
    }
    if (in_.policy.grad_sync_every == 1) book(MemoryUse::kGradients, gradient_region());
    book(MemoryUse::kParameters, in_.passes.constants);
    book_activations();
    book(MemoryUse::kData, in_.batch);
    return memory_;
  }

 private:
  void book(MemoryUse use, std::int64_t bytes, std::int64_t times = 1) { memory_[use] += round_up(bytes, kArenaAlignment) * times; }
  const RankFacts& facts() const { return at(in_.schedule, rank_); }
  int count(UnitKind kind) const {
    int sum = 0;
    for (const ChunkUnits& chunk : units_) sum += chunk.count(kind);
    return sum;
  }
  std::int64_t sum(std::int64_t UnitBytes::*bytes) const {
    std::int64_t sum = 0;
    for (const UnitKind kind : kUnitKinds) sum += count(kind) * in_.unit_bytes[kind].*bytes;
    return sum;
  }

  // Stage's part: blocks of micro-batches, areas of all units, borders.
  void book_activations() {
    for (std::size_t c = 0; c < units_.size(); ++c) {
      std::int64_t bytes = 0;
      for (const UnitKind kind : kUnitKinds) bytes += units_[c].count(kind) * in_.passes.saved[kind];
      book(MemoryUse::kActivations, bytes, facts().slots[c]);
    }
    for (std::size_t r = 0; r < kNumRegions; ++r) {
      std::int64_t most = 0;
      for (const UnitKind kind : kUnitKinds) {
        if (r == kDerived) book(MemoryUse::kParameters, in_.passes.regions[kind][r], count(kind));
        if (count(kind) > 0) most = std::max(most, in_.passes.regions[kind][r]);
      }
      if (is_shared(r)) book(use_of_shared(r), most);
    }
    const int borders = facts().activation_receives + facts().gradient_receives + (in_.one_stage ? 2 : 4);
    book(MemoryUse::kCommunication, in_.passes.activation, borders);
    // Keys and values that are read and that arrive, and their gradients likewise.
    book(MemoryUse::kCommunication, in_.passes.ring, 4);
  }

  // The most of two units side by side, of all that come one after the other. `sums`: whether the second of a succession of two
  // actions lies beside the first.
  template <class Bytes, class Sums>
  std::int64_t most_of_two(Bytes bytes, Sums sums) const {
    std::int64_t most = 0;
    const auto beside = [&](UnitKind a, UnitKind b) { most = std::max(most, bytes(a) + bytes(b)); };
    for (const ChunkUnits& chunk : units_) {
      for (const UnitKind kind : kUnitKinds)
        if (chunk.count(kind) > 0) most = std::max(most, bytes(kind));
      if (!in_.overlap) continue;
      if (chunk.blocks > 1) beside(UnitKind::kBlock, UnitKind::kBlock);
      if (chunk.embedding) beside(UnitKind::kEmbedding, UnitKind::kBlock);
      if (chunk.head) beside(UnitKind::kHead, UnitKind::kBlock);
    }
    if (!in_.overlap) return most;
    for (const Succession& s : facts().successions) {
      const auto a = static_cast<std::size_t>(s.chunk_before), b = static_cast<std::size_t>(s.chunk_after);
      const bool forward_before = s.before == ActionKind::kForward, forward_after = s.after == ActionKind::kForward;
      const UnitKind x = forward_before ? units_[a].last() : units_[a].first();
      const UnitKind y = forward_after ? units_[b].first() : units_[b].last();
      // The same unit twice stays where it is.
      const bool single = units_[a].blocks == 1 && !units_[a].embedding && !units_[a].head;
      if (a == b && (forward_before != forward_after || single)) continue;
      if (sums(s)) beside(x, y);
    }
    return most;
  }

  std::int64_t gather_region() const {
    return most_of_two([this](UnitKind kind) { return in_.unit_bytes[kind].gathered; }, [](const Succession&) { return true; });
  }

  bool gathers_on_use() const {
    return in_.may_gather && gather_region() + round_up(sum(&UnitBytes::shard), kPlaceBytes) < sum(&UnitBytes::resident);
  }
  std::int64_t gradient_region() const {
    const auto both_backward = [](const Succession& s) {
      return s.before != ActionKind::kForward && s.after != ActionKind::kForward;
    };
    return most_of_two([this](UnitKind kind) { return in_.unit_bytes[kind].gradients; }, both_backward);
  }

  const LayoutMemoryInputs& in_;
  const RankUnits& units_;
  int rank_;
  ArenaMemory memory_;
};

}  // namespace

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

ArenaMemory arena_memory(const LayoutMemoryInputs& in, const RankUnits& units, int rank) { return Booking(in, units, rank).run(); }

}  // namespace trident
