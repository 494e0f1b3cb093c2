#include "planner/search/layout_memory.h"

#include <algorithm>

#include "core/at.h"
#include "core/int_math.h"
#include "pipeline/stage_regions.h"

namespace trident {
namespace {

int count(const RankUnits& units, UnitKind kind) {
  int sum = 0;
  for (const ChunkUnits& chunk : units) sum += chunk.count(kind);
  return sum;
}

}  // namespace

ArenaMemory LayoutMemory::of(const RankUnits& units, int rank) const {
  const RankFacts& facts = at(schedule, rank);
  ArenaMemory memory;
  const auto book = [&](MemoryUse use, std::int64_t bytes, std::int64_t times = 1) {
    memory[use] += round_up(bytes, kArenaAlignment) * times;
  };
  const auto sum = [&](std::int64_t UnitBytes::*bytes) {
    std::int64_t sum = 0;
    for (const UnitKind kind : kUnitKinds) sum += count(units, kind) * unit_bytes[kind].*bytes;
    return sum;
  };
  // Parameters, gradients, the optimizer.
  const std::int64_t gathered = may_gather ? most_of_two(units, facts, &UnitBytes::gathered) : 0;
  memory.gathers_on_use = may_gather && gathered + round_up(sum(&UnitBytes::shard), kPlaceBytes) < sum(&UnitBytes::resident);
  const StoreMemory& store = memory.gathers_on_use ? on_use : resident;
  for (const UnitKind kind : kUnitKinds) memory.add(store.units[kind], count(units, kind));
  book(MemoryUse::kWorkspace, store.statistics);
  if (memory.gathers_on_use) book(MemoryUse::kParameters, gathered);
  if (memory.gathers_on_use && compute != DType::kF32) book(MemoryUse::kParameters, sum(&UnitBytes::shard));
  if (policy.grad_sync_every == 1) book(MemoryUse::kGradients, most_of_two(units, facts, &UnitBytes::gradients));
  // A stage: blocks of micro-batches, areas that all units share, borders.
  book(MemoryUse::kParameters, passes.constants);
  for (std::size_t c = 0; c < units.size(); ++c) {
    std::int64_t bytes = 0;
    for (const UnitKind kind : kUnitKinds) bytes += units[c].count(kind) * passes.saved[kind];
    book(MemoryUse::kActivations, bytes, facts.slots[c]);
  }
  for (std::size_t r = 0; r < kNumRegions; ++r) {
    std::int64_t most = 0;
    for (const UnitKind kind : kUnitKinds) {
      if (r == kDerived) book(MemoryUse::kParameters, passes.regions[kind][r], count(units, kind));
      if (count(units, kind) > 0) most = std::max(most, passes.regions[kind][r]);
    }
    if (is_shared(r)) book(use_of_shared(r), most);
  }
  book(MemoryUse::kCommunication, passes.activation, facts.activation_receives + facts.gradient_receives + (one_stage ? 2 : 4));
  book(MemoryUse::kCommunication, passes.ring, 4);  // keys and values that are read and that arrive, and their gradients likewise
  book(MemoryUse::kData, batch);
  return memory;
}

// The most of two units side by side, of all that come one after the other. Gradients are there in backwards alone.
std::int64_t LayoutMemory::most_of_two(const RankUnits& units, const RankFacts& facts, std::int64_t UnitBytes::*bytes) const {
  std::int64_t most = 0;
  const auto beside = [&](UnitKind a, UnitKind b) { most = std::max(most, unit_bytes[a].*bytes + unit_bytes[b].*bytes); };
  for (const ChunkUnits& chunk : units) {
    for (const UnitKind kind : kUnitKinds)
      if (chunk.count(kind) > 0) most = std::max(most, unit_bytes[kind].*bytes);
    if (!overlap) continue;
    if (chunk.blocks > 1) beside(UnitKind::kBlock, UnitKind::kBlock);
    if (chunk.embedding) beside(UnitKind::kEmbedding, UnitKind::kBlock);
    if (chunk.head) beside(UnitKind::kHead, UnitKind::kBlock);
  }
  if (!overlap) return most;
  for (const Succession& s : facts.successions) {
    const ChunkUnits &a = at(units, s.chunk_before), &b = at(units, s.chunk_after);
    const bool forward_before = s.before == ActionKind::kForward, forward_after = s.after == ActionKind::kForward;
    if (bytes == &UnitBytes::gradients && (forward_before || forward_after)) continue;
    // The same unit twice stays where it is.
    const bool single = a.blocks == 1 && !a.embedding && !a.head;
    if (&a == &b && (forward_before != forward_after || single)) continue;
    beside(forward_before ? a.last() : a.first(), forward_after ? b.first() : b.last());
  }
  return most;
}

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

}  // namespace trident
