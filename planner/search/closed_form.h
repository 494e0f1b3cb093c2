// The time of a step from what single units take: the order of the schedule, rank by rank, with a few rounds of micro-batches, and
// the rest at their pace once it is every stage's. Long pipelines are looked at as two short ones of the same stages: what ranks
// and micro-batches add to a step does not depend on how many there are already. Within 1 % of price_step() on the programs
// themselves (a test compares whole spaces). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/price/overlap_slowdown.h"
#include "planner/price/unit_kind.h"
#include "planner/search/schedule_facts.h"

namespace trident {

// Of a pass: what its device and collectives take, and what its host takes to issue it. The longer one counts, of the whole pass.
struct PassWork {
  double seconds = 0, issue = 0;
  double time() const { return seconds > issue ? seconds : issue; }
  PassWork& operator+=(const PassWork& other) {
    seconds += other.seconds;
    issue += other.issue;
    return *this;
  }
  friend PassWork operator+(PassWork a, const PassWork& b) { return a += b; }
  friend PassWork operator*(PassWork a, int times) { return {a.seconds * times, a.issue * times}; }
};

// A unit of one kind on one rank. `gather`, `reduce`: beside computes.
struct UnitTimes {
  PassWork forward, first_backward, backward;
  PassWork gaps, first_finish, finish;  // of ParamStore, in backwards
  double gather = 0, reduce = 0;
  double update = 0;
  std::int64_t gradient_bytes = 0;  // as they lie in a region of transient ones
};

struct ChunkTimes {
  std::vector<UnitKind> kinds;  // in model order
  bool receives = true;         // its input comes from another rank
  bool receives_gradient = true;
};

struct RankTimes {
  ByUnitKind<UnitTimes> units;
  std::vector<ChunkTimes> chunks;
  bool gathers_on_use = false, gathers_after_update = false;
  std::int64_t gradient_region = 0;  // bytes, where gradients lie in turn
  double norm = 0;                   // seconds in line
  double tie = 0;                    // of an end of a tied weight
};

struct ClosedFormInputs {
  ScheduleBook* schedules = nullptr;
  ScheduleKey schedule;
  std::vector<RankTimes> ranks;  // different ones
  std::vector<int> rank_of;      // by pipeline rank: its number in `ranks`
  PassWork copy;                 // more of a pass that reads what another rank sent
  double message = 0;
  std::int64_t sync_every = 0;   // micro-batches; 0: gradients are reduced once
  bool overlap = true;           // gathers and reductions run beside computes
  OverlapSlowdown slowdown;
  bool tied_over_ranks = false;
  double outside = 0;            // once a step
};

double closed_form_seconds(const ClosedFormInputs& in);

// Never more than a simulated step takes: what the busiest rank computes, behind the first forwards and before the last backwards
// of those before it.
double least_seconds(const ClosedFormInputs& in);

}  // namespace trident
