// The ranks of a layout book this in their arenas, computed from single units: to the byte as a dry run of each rank books it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/at.h"
#include "device/arena.h"
#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/step_program.h"
#include "planner/search/schedule_facts.h"
#include "planner/search/search_space.h"
#include "planner/search/unit_costs.h"

namespace trident {

// The units of a virtual stage.
struct ChunkUnits {
  bool embedding = false, head = false;
  int blocks = 0;
  bool has(UnitKind kind) const { return kind == UnitKind::kEmbedding ? embedding : kind == UnitKind::kHead ? head : blocks > 0; }
  int count(UnitKind kind) const { return kind == UnitKind::kBlock ? blocks : has(kind) ? 1 : 0; }
  UnitKind first() const { return embedding ? UnitKind::kEmbedding : UnitKind::kBlock; }
  UnitKind last() const { return head ? UnitKind::kHead : UnitKind::kBlock; }
  bool operator==(const ChunkUnits&) const = default;
};
using RankUnits = std::vector<ChunkUnits>;  // by chunk

// By pipeline rank. partition_balanced's stages.
std::vector<RankUnits> units_by_rank(const UnitsOfStage& stages, int pipeline, int head_unit);

struct ArenaMemory {
  std::array<std::int64_t, kMemoryUses.size()> by_use{};
  bool gathers_on_use = false;  // what zero3 asks for is done only where it saves memory
  std::int64_t total() const;
  std::int64_t operator[](MemoryUse use) const { return at(by_use, use); }
};

// Everything that memory depends on beside the rank's units.
struct LayoutMemoryInputs {
  const UnitPasses& passes;
  const UnitBuckets& buckets;
  const ScheduleFacts& schedule;
  ZeroPolicy policy;
  DType compute = DType::kF32;
  int optimizer_states = 0;
  bool overlap = true, tied = false;
  int data = 1, pipeline = 1, chunks = 1;
  std::int64_t batch = 0;  // bytes of the buffers of micro-batches
};

ArenaMemory arena_memory(const LayoutMemoryInputs& in, const RankUnits& units, int rank);
// A unit's bytes, as RunPlan has them for its programs.
UnitBytes unit_bytes_of(const LayoutMemoryInputs& in, UnitKind kind);

}  // namespace trident
