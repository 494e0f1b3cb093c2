#include "plan/rank_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace trident {

RankSums::RankSums(const ClosedFormInputs& in, const RankTimes& of) : times(of) {
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

double RankRun::run_units(const OrderedAction& action, double arrival) {
  const RankSums::Chunk& chunk = sums_.chunks[static_cast<std::size_t>(action.chunk)];
  for (int i = 0; i < chunk.units; ++i) {
    const int number = chunk.first_unit + (action.forward ? i : chunk.units - 1 - i);
    run_unit(action, number, i == 0, i + 1 == chunk.units, arrival);
  }
  return streams_.now();
}

PassWork RankRun::pending_finishes() const {
  PassWork work;
  for (const Pending& pending : pending_) work += finish_of(pending.unit);
  return work;
}

void RankRun::run_unit(const OrderedAction& action, int number, bool first, bool last, double arrival) {
  if (times_.gathers_on_use) gather(number, last ? first_of_next(action) : number + (action.forward ? 1 : -1));
  if (first) streams_.wait_until(arrival);
  if (times_.gathers_on_use && gathered_ != kNothing) streams_.wait_for(gathered_);
  if (action.forward) {
    const bool copies = first && times_.chunks[static_cast<std::size_t>(action.chunk)].receives;
    streams_.compute(copies ? (unit(number).forward + in_.copy).time() : unit(number).forward.time());
  } else {
    backward(action, number, first, last);
  }
  ++computes_;
  last_unit_ = number;
  gathered_ = next_gathered_;
}

// The unit of the next action's first compute, or kNone.
int RankRun::first_of_next(const OrderedAction& action) const {
  if (!action.has_successor) return OrderedAction::kNone;
  const RankSums::Chunk& chunk = sums_.chunks[static_cast<std::size_t>(action.successor_chunk)];
  return chunk.first_unit + (action.successor_forward ? 0 : chunk.units - 1);
}

// What this compute and the one behind it need, unless it is there.
void RankRun::gather(int number, int after) {
  const auto start = [&](int of) {
    if (in_.overlap) return streams_.add_beside(unit(of).gather);
    streams_.compute(unit(of).gather);
    return kNothing;
  };
  if (last_unit_ == OrderedAction::kNone || (!in_.overlap && number != last_unit_)) gathered_ = start(number);
  next_gathered_ = gathered_;
  if (in_.overlap && after != OrderedAction::kNone && after != number) next_gathered_ = start(after);
}

PassWork RankRun::finish_of(int number) const {
  return has_accumulated_[static_cast<std::size_t>(number)] != 0 ? unit(number).finish : unit(number).first_finish;
}

void RankRun::backward(const OrderedAction& action, int number, bool first, bool last) {
  const UnitTimes& of = unit(number);
  const bool overwrites = action.micro_batch == 0 || reduces_after(action.micro_batch - 1);
  PassWork work = overwrites ? of.first_backward + of.gaps : of.backward;
  if (first && times_.chunks[static_cast<std::size_t>(action.chunk)].receives_gradient) work += in_.copy;
  std::int64_t begin = 0;
  if (in_.sync_every == 1) {
    const bool another_follows =
        !last || (action.has_successor && !action.successor_forward && first_of_next(action) != number);
    begin = place(of.gradient_bytes, another_follows);
    work += meet(number, begin, begin + of.gradient_bytes);
  }
  streams_.compute(work.time());
  if (!reduces_after(action.micro_batch)) return;
  double item = kNothing;
  if (in_.overlap) item = streams_.add_beside(of.reduce);
  else streams_.compute(of.reduce);
  if (in_.sync_every == 1) pending_.push_back({number, begin, begin + of.gradient_bytes, item});
}

// Where gradients lie that are reduced at once: in two lanes, as memory_places.h does it.
std::int64_t RankRun::place(std::int64_t bytes, bool another_follows) {
  const std::size_t lane = taken_until_[0] < computes_ ? 0 : 1;
  taken_until_[lane] = computes_ + (in_.overlap && another_follows ? 1 : 0);
  return lane == 0 ? 0 : times_.gradient_region - bytes;
}

// Adds what was reduced where this unit's gradients are going to lie, and this unit's own; waits for the former.
PassWork RankRun::meet(int number, std::int64_t begin, std::int64_t end) {
  PassWork work;
  double wait = kNothing;
  std::size_t kept = 0;
  for (const Pending& pending : pending_) {
    const bool here = pending.begin < end && begin < pending.end;
    if (here) wait = std::max(wait, pending.item);
    if (here || pending.unit == number) {
      work += finish_of(pending.unit);
      has_accumulated_[static_cast<std::size_t>(pending.unit)] = 1;
    } else {
      pending_[kept++] = pending;
    }
  }
  pending_.resize(kept);
  if (wait != kNothing) streams_.wait_for(wait);
  return work;
}

}  // namespace trident
