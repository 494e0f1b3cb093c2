// The ranks of a layout book this in their arenas: what dry runs of single units booked, as often as a rank has them. It is to the
// byte as a dry run of each rank books it.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/schedule/partition.h"
#include "pipeline/schedule/step_program.h"
#include "planner/search/schedule_facts.h"
#include "planner/search/search_space.h"
#include "planner/search/unit_costs.h"

namespace trident {

// The units of a virtual stage.
struct ChunkUnits {
  bool embedding = false, head = false;
  int blocks = 0;  // at least one
  int count(UnitKind kind) const { return kind == UnitKind::kBlock ? blocks : kind == UnitKind::kHead ? head : embedding; }
  UnitKind first() const { return embedding ? UnitKind::kEmbedding : UnitKind::kBlock; }
  UnitKind last() const { return head ? UnitKind::kHead : UnitKind::kBlock; }
  bool operator==(const ChunkUnits&) const = default;
};
using RankUnits = std::vector<ChunkUnits>;  // by chunk

// By pipeline rank. partition_balanced's stages.
std::vector<RankUnits> units_by_rank(const UnitsOfStage& stages, int pipeline, int head_unit);

struct LayoutMemory {
  // Returns that of the pipeline rank `rank`, which has these units.
  ArenaMemory of(const RankUnits& units, int rank) const;

  const UnitPasses& passes;
  ByUnitKind<UnitBytes> unit_bytes;
  const StoreMemory &resident, &on_use;  // the same where the policy never gathers on use
  const ScheduleFacts& schedule;
  ZeroPolicy policy;
  DType compute = DType::kF32;
  bool overlap = true;
  bool may_gather = false;  // zero3, over more than one rank
  bool one_stage = true;    // nothing is sent along the pipeline
  std::int64_t batch = 0;   // bytes of the buffers of micro-batches

 private:
  std::int64_t most_of_two(const RankUnits& units, const RankFacts& facts, std::int64_t UnitBytes::*bytes) const;
};

}  // namespace trident
