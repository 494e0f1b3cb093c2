// One rank on its way through the actions of a step, for closed_form.h. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/search/action_order.h"
#include "planner/search/closed_form.h"
#include "planner/search/rank_streams.h"

namespace trident {

// What all ranks with the same times share: passes of whole chunks, for those beside which nothing comes or goes, and units by
// number.
struct RankSums {
  struct Chunk {
    int first_unit = 0, units = 0;
    double forward = 0, first_backward = 0, backward = 0;
  };
  // A unit alone, beside which something comes or goes.
  struct Unit {
    double forward = 0, forward_of_copy = 0;
    std::array<std::array<PassWork, 2>, 2> backward;  // whether it overwrites, and copies
  };
  RankSums(const ClosedFormInputs& in, const RankTimes& times);
  double first_chunk() const { return chunks.front().forward + chunks.front().backward; }

  const RankTimes& times;
  std::vector<Chunk> chunks;
  std::vector<UnitKind> kinds;  // by unit
  ByUnitKind<Unit> units;
};

class RankRun {
 public:
  // What is given outlives it.
  RankRun(const ClosedFormInputs& in, const RankSums& sums, int micro_batches);

  // The next action, whose input is there at `arrival`. Returns its end.
  double run(const OrderedAction& action, double arrival) {
    if (times_.gathers_on_use || (!action.forward && reduces_after(action.micro_batch))) return run_units(action, arrival);
    // Nothing comes beside it.
    const RankSums::Chunk& chunk = sums_.chunks[static_cast<std::size_t>(action.chunk)];
    streams_.wait_until(arrival);
    streams_.compute(action.forward ? chunk.forward : action.micro_batch == 0 ? chunk.first_backward : chunk.backward);
    ++computes_;
    return streams_.now();
  }

  RankStreams& streams() { return streams_; }
  const RankTimes& times() const { return times_; }
  // What was reduced last is added once more, by the norm.
  PassWork pending_finishes() const;

 private:
  static constexpr double kNothing = -1;
  static constexpr int kLanes = 2;
  struct Pending {  // a reduction whose result is not added yet
    int unit = 0;
    std::int64_t begin = 0, end = 0;
    double item = 0;
  };

  bool reduces_after(int micro_batch) const { return in_.sync_every == 1 || micro_batch + 1 == micro_batches_; }
  const UnitTimes& unit(int number) const { return times_.units[sums_.kinds[static_cast<std::size_t>(number)]]; }
  double run_units(const OrderedAction& action, double arrival);
  int first_of_next(const OrderedAction& action) const;
  double beside(RankStreams& streams, double seconds) const;
  double gather(RankStreams& streams, double& gathered, int number, int after);
  PassWork finish_of(int number) const;
  std::int64_t place(std::int64_t bytes, bool another_follows);
  double meet(int number, std::int64_t begin, std::int64_t end, PassWork& work);
  void pend(int number, std::int64_t begin, std::int64_t end, double item);

  const ClosedFormInputs& in_;
  const RankSums& sums_;
  const RankTimes& times_;
  int micro_batches_;
  RankStreams streams_;
  std::vector<std::uint8_t> has_accumulated_;  // by unit
  std::array<Pending, kLanes> pending_;
  int num_pending_ = 0;
  std::array<std::int64_t, kLanes> taken_until_ = {-1, -1};
  std::int64_t computes_ = 0;
  int last_unit_ = OrderedAction::kNone;
  double gathered_ = kNothing;
};

}  // namespace trident
