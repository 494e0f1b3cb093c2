#include "planner/search/rank_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/check.h"

namespace trident {

RankSums::RankSums(const ClosedFormInputs& in, const RankTimes& of) : times(of) {
  for (const UnitKind kind : kUnitKinds) {
    const UnitTimes& unit = of.units[kind];
    units[kind] = {unit.forward.time(), (unit.forward + in.copy).time(), {}};
    for (const bool overwrites : {false, true}) {
      const PassWork work = overwrites ? unit.first_backward + unit.gaps : unit.backward;
      units[kind].backward[overwrites ? 1 : 0] = {work, work + in.copy};
    }
  }
  for (const ChunkTimes& chunk : of.chunks) {
    Chunk sums{.first_unit = static_cast<int>(kinds.size()), .units = static_cast<int>(chunk.kinds.size())};
    for (std::size_t i = 0; i < chunk.kinds.size(); ++i) {
      const UnitTimes& unit = of.units[chunk.kinds[i]];
      const PassWork copy = chunk.receives && i == 0 ? in.copy : PassWork();
      const PassWork back = chunk.receives_gradient && i + 1 == chunk.kinds.size() ? in.copy : PassWork();
      sums.forward += (unit.forward + copy).time();
      sums.first_backward += (unit.first_backward + unit.gaps + back).time();
      sums.backward += (unit.backward + back).time();
    }
    chunks.push_back(sums);
    kinds.insert(kinds.end(), chunk.kinds.begin(), chunk.kinds.end());
  }
}

RankRun::RankRun(const ClosedFormInputs& in, const RankSums& sums, int micro_batches)
    : in_(in), sums_(sums), times_(sums.times), micro_batches_(micro_batches), streams_(in.slowdown) {
  if (in.sync_every == 1) has_accumulated_.assign(sums.kinds.size(), 0);
}

PassWork RankRun::pending_finishes() const {
  PassWork work;
  for (int i = 0; i < num_pending_; ++i) work += finish_of(pending_[static_cast<std::size_t>(i)].unit);
  return work;
}

// The unit of the next action's first compute, or kNone.
int RankRun::first_of_next(const OrderedAction& action) const {
  if (!action.has_successor) return OrderedAction::kNone;
  const RankSums::Chunk& chunk = sums_.chunks[static_cast<std::size_t>(action.successor_chunk)];
  return chunk.first_unit + (action.successor_forward ? 0 : chunk.units - 1);
}

// Work of the second stream, or in line. Returns what RankStreams::wait_for() takes.
inline double RankRun::beside(RankStreams& streams, double seconds) const {
  if (in_.overlap) return streams.add_beside(seconds);
  streams.compute(seconds);
  return kNothing;
}

// What this compute and the one behind it need, unless it is there: `gathered`, and what is returned.
inline double RankRun::gather(RankStreams& streams, double& gathered, int number, int after) {
  if (last_unit_ == OrderedAction::kNone || (!in_.overlap && number != last_unit_)) gathered = beside(streams, unit(number).gather);
  last_unit_ = number;
  if (in_.overlap && after != OrderedAction::kNone && after != number) return beside(streams, unit(after).gather);
  return gathered;
}

inline PassWork RankRun::finish_of(int number) const {
  return has_accumulated_[static_cast<std::size_t>(number)] != 0 ? unit(number).finish : unit(number).first_finish;
}

// Where gradients lie that are reduced at once: in two lanes, as memory_places.h does it.
inline std::int64_t RankRun::place(std::int64_t bytes, bool another_follows) {
  const std::size_t lane = taken_until_[0] < computes_ ? 0 : 1;
  taken_until_[lane] = computes_ + (in_.overlap && another_follows ? 1 : 0);
  return lane == 0 ? 0 : times_.gradient_region - bytes;
}

// Adds to `work` what was reduced where this unit's gradients are going to lie, and this unit's own. Returns the former's end.
inline double RankRun::meet(int number, std::int64_t begin, std::int64_t end, PassWork& work) {
  PassWork added;
  double wait = kNothing;
  int kept = 0;
  for (int i = 0; i < num_pending_; ++i) {
    const Pending& pending = pending_[static_cast<std::size_t>(i)];
    const bool here = pending.begin < end && begin < pending.end;
    if (here) wait = std::max(wait, pending.item);
    if (here || pending.unit == number) {
      added += finish_of(pending.unit);
      has_accumulated_[static_cast<std::size_t>(pending.unit)] = 1;
    } else {
      if (kept < i) pending_[static_cast<std::size_t>(kept)] = pending;
      ++kept;
    }
  }
  num_pending_ = kept;
  work += added;
  return wait;
}

// Of each lane no more than one is left by those that met it.
inline void RankRun::pend(int number, std::int64_t begin, std::int64_t end, double item) {
  TRIDENT_CHECK(num_pending_ < kLanes, "{} reductions in {} lanes", num_pending_ + 1, kLanes);
  Pending& pending = pending_[static_cast<std::size_t>(num_pending_++)];
  pending.unit = number;
  pending.begin = begin;
  pending.end = end;
  pending.item = item;
}

// One unit after the other; what they share is looked up once, and what changes with each is held here.
double RankRun::run_units(const OrderedAction& action, double arrival) {
  const RankSums::Chunk& chunk = sums_.chunks[static_cast<std::size_t>(action.chunk)];
  const ChunkTimes& ends = times_.chunks[static_cast<std::size_t>(action.chunk)];
  const bool forward = action.forward, gathers = times_.gathers_on_use;
  const bool copies = forward ? ends.receives : ends.receives_gradient;
  const bool at_once = in_.sync_every == 1, overwrites = action.micro_batch == 0 || at_once;
  const bool reduces = !forward && reduces_after(action.micro_batch);
  const int step = forward ? 1 : -1, next_action = first_of_next(action);
  int number = chunk.first_unit + (forward ? 0 : chunk.units - 1);
  const UnitKind* const kinds = sums_.kinds.data();
  const int units = chunk.units;
  RankStreams streams = streams_;
  double gathered = gathered_;
  for (int i = 0; i < units; ++i, number += step) {
    const bool last = i + 1 == units, copy = i == 0 && copies;
    const UnitKind kind = kinds[number];
    const RankSums::Unit& sum = sums_.units[kind];
    double next_gathered = gathered;
    if (gathers) next_gathered = gather(streams, gathered, number, last ? next_action : number + step);
    if (i == 0) streams.wait_until(arrival);
    if (gathered != kNothing) streams.wait_for(gathered);
    if (forward) {
      streams.compute(copy ? sum.forward_of_copy : sum.forward);
    } else {
      PassWork work = sum.backward[overwrites ? 1 : 0][copy ? 1 : 0];
      std::int64_t begin = 0, end = 0;
      if (at_once) {
        const bool another_follows = !last || (action.has_successor && !action.successor_forward && next_action != number);
        begin = place(times_.units[kind].gradient_bytes, another_follows);
        end = begin + times_.units[kind].gradient_bytes;
        const double met = meet(number, begin, end, work);
        if (met != kNothing) streams.wait_for(met);
      }
      streams.compute(work.time());
      if (reduces) {
        const double item = beside(streams, times_.units[kind].reduce);
        if (at_once) pend(number, begin, end, item);
      }
    }
    ++computes_;
    gathered = next_gathered;
  }
  last_unit_ = number - step;
  gathered_ = gathered;
  streams_ = streams;
  return streams.now();
}

}  // namespace trident
