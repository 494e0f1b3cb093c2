#include "plan/closed_form.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/check.h"
#include "plan/rank_streams.h"

namespace trident {
namespace {

constexpr double kUnknown = -1;
constexpr int kNothing = -1;

// How much two rounds or stages may differ in pace, and how often the micro-batches that are looked at are doubled until they do
// not.
constexpr double kSettled = 1e-3;
constexpr int kDoublings = 3;

// One rank on its way through its actions.
class RankRun {
 public:
  RankRun(const ClosedFormInputs& in, std::size_t rank)
      : in_(in), times_(in.ranks[rank]), actions_(in.schedule->ranks[rank]), streams_(in.slowdown) {
    int units = 0;
    for (const ChunkTimes& chunk : times_.chunks) {
      first_unit_.push_back(units);
      units += static_cast<int>(chunk.kinds.size());
      sums_.push_back(sum_of(chunk));
    }
    has_accumulated_.assign(static_cast<std::size_t>(units), false);
  }

  bool done() const { return next_ == actions_.size(); }
  const Action& next() const { return actions_[next_]; }
  RankStreams& streams() { return streams_; }
  const RankTimes& times() const { return times_; }

  // Runs the next action, whose input is there at `arrival`. Returns its end.
  double run(double arrival) {
    const Action& action = actions_[next_];
    const auto chunk = static_cast<std::size_t>(in_.schedule->chunk_of(action.virtual_stage));
    const bool forward = action.kind == ActionKind::kForward;
    if (is_plain(action)) {
      streams_.wait_until(arrival);
      const Sums& sums = sums_[chunk];
      streams_.compute(forward ? sums.forward : action.micro_batch == 0 ? sums.first_backward : sums.backward);
    } else {
      const auto units = static_cast<int>(times_.chunks[chunk].kinds.size());
      for (int i = 0; i < units; ++i) run_unit(action, chunk, forward ? i : units - 1 - i, i == 0, i + 1 == units, arrival);
    }
    ++next_;
    return streams_.now();
  }

  // What is reduced last is added once more, by the norm.
  PassWork pending_finishes() const {
    PassWork work;
    for (const Pending& pending : pending_) work += finish_of(pending.unit, pending.kind);
    return work;
  }

 private:
  struct Sums {
    double forward = 0, first_backward = 0, backward = 0;
  };
  struct Pending {  // a reduction whose result is not added yet
    int unit = 0;
    std::uint8_t kind = 0;
    std::int64_t begin = 0, end = 0;
    int item = kNothing;
  };

  Sums sum_of(const ChunkTimes& chunk) const {
    Sums sums;
    for (std::size_t i = 0; i < chunk.kinds.size(); ++i) {
      const UnitTimes& unit = times_.units[chunk.kinds[i]];
      const PassWork in = chunk.receives && i == 0 ? in_.copy : PassWork();
      const PassWork back = chunk.receives_gradient && i + 1 == chunk.kinds.size() ? in_.copy : PassWork();
      sums.forward += (unit.forward + in).time();
      sums.first_backward += (unit.first_backward + unit.gaps + back).time();
      sums.backward += (unit.backward + back).time();
    }
    return sums;
  }

  bool reduces_after(int micro_batch) const { return in_.sync_every == 1 || micro_batch + 1 == in_.schedule->num_micro_batches; }
  // Nothing comes or goes beside it.
  bool is_plain(const Action& action) const {
    if (times_.gathers_on_use || !streams_.beside_idle()) return false;
    return action.kind == ActionKind::kForward || (in_.sync_every == 0 && !reduces_after(action.micro_batch));
  }

  void run_unit(const Action& action, std::size_t c, int i, bool first, bool last, double arrival) {
    const ChunkTimes& chunk = times_.chunks[c];
    const bool forward = action.kind == ActionKind::kForward;
    const std::uint8_t kind = chunk.kinds[static_cast<std::size_t>(i)];
    const UnitTimes& unit = times_.units[kind];
    const int number = first_unit_[c] + i;
    const int after = last ? first_of_next() : number + (forward ? 1 : -1);
    gather(number, after);
    if (first) streams_.wait_until(arrival);
    if (times_.gathers_on_use && gathered_ != kNothing) streams_.wait_for(gathered_);
    if (!forward) {
      backward(action, chunk, number, kind, first, last, unit);
    } else {
      streams_.compute((unit.forward + (first && chunk.receives ? in_.copy : PassWork())).time());
    }
    ++computes_;
    last_unit_ = number;
    gathered_ = next_gathered_;
  }

  // The unit of the next action's first compute, or kNothing.
  int first_of_next() const {
    if (next_ + 1 == actions_.size()) return kNothing;
    const Action& action = actions_[next_ + 1];
    const auto c = static_cast<std::size_t>(in_.schedule->chunk_of(action.virtual_stage));
    const auto units = static_cast<int>(times_.chunks[c].kinds.size());
    return first_unit_[c] + (action.kind == ActionKind::kForward ? 0 : units - 1);
  }

  // What this compute and the one behind it need, unless it is there.
  void gather(int number, int after) {
    if (!times_.gathers_on_use) return;
    const auto start = [&](int unit) {
      const double seconds = times_.units[kind_of(unit)].gather;
      if (in_.overlap) return streams_.add_beside(seconds);
      streams_.compute(seconds);
      return kNothing;
    };
    if (last_unit_ == kNothing || (!in_.overlap && number != last_unit_)) gathered_ = start(number);
    next_gathered_ = gathered_;
    if (in_.overlap && after != kNothing && after != number) next_gathered_ = start(after);
  }
  std::uint8_t kind_of(int number) const {
    std::size_t c = first_unit_.size() - 1;
    while (first_unit_[c] > number) --c;
    return times_.chunks[c].kinds[static_cast<std::size_t>(number - first_unit_[c])];
  }

  PassWork finish_of(int unit, std::uint8_t kind) const {
    return has_accumulated_[static_cast<std::size_t>(unit)] ? times_.units[kind].finish : times_.units[kind].first_finish;
  }

  void backward(const Action& action, const ChunkTimes& chunk, int number, std::uint8_t kind, bool first, bool last,
                const UnitTimes& unit) {
    const bool overwrites = action.micro_batch == 0 || reduces_after(action.micro_batch - 1);
    PassWork work = overwrites ? unit.first_backward + unit.gaps : unit.backward;
    if (first && chunk.receives_gradient) work += in_.copy;
    std::int64_t begin = 0;
    if (in_.sync_every == 1) {
      begin = place(unit.gradient_bytes, last ? another_backward_follows(number) : true);
      work += meet(number, begin, begin + unit.gradient_bytes);
    }
    streams_.compute(work.time());
    if (!reduces_after(action.micro_batch)) return;
    int item = kNothing;
    if (in_.overlap) item = streams_.add_beside(unit.reduce);
    else streams_.compute(unit.reduce);
    if (in_.sync_every == 1) pending_.push_back({number, kind, begin, begin + unit.gradient_bytes, item});
  }

  bool another_backward_follows(int number) const {
    const int after = first_of_next();
    return after != kNothing && actions_[next_ + 1].kind != ActionKind::kForward && after != number;
  }

  // Where gradients lie that are reduced at once: in two lanes, as memory_places.h does it.
  std::int64_t place(std::int64_t bytes, bool another_follows) {
    const std::size_t lane = taken_until_[0] < computes_ ? 0 : 1;
    taken_until_[lane] = computes_ + (in_.overlap && another_follows ? 1 : 0);
    return lane == 0 ? 0 : times_.gradient_region - bytes;
  }

  // Adds what was reduced where this unit's gradients are going to lie, and this unit's own; waits for the former.
  PassWork meet(int number, std::int64_t begin, std::int64_t end) {
    PassWork work;
    int wait = kNothing;
    const auto met = [&](const Pending& p) {
      const bool here = p.begin < end && begin < p.end;
      if (here) wait = std::max(wait, p.item);
      if (!here && p.unit != number) return false;
      work += finish_of(p.unit, p.kind);
      has_accumulated_[static_cast<std::size_t>(p.unit)] = true;
      return true;
    };
    std::erase_if(pending_, met);
    if (wait != kNothing) streams_.wait_for(wait);
    return work;
  }

  const ClosedFormInputs& in_;
  const RankTimes& times_;
  const std::vector<Action>& actions_;
  RankStreams streams_;
  std::size_t next_ = 0;
  std::vector<int> first_unit_;  // by chunk: number of its first unit
  std::vector<Sums> sums_;
  std::vector<bool> has_accumulated_;
  std::vector<Pending> pending_;
  std::array<std::int64_t, 2> taken_until_ = {-1, -1};
  std::int64_t computes_ = 0;
  int last_unit_ = kNothing, gathered_ = kNothing, next_gathered_ = kNothing;
};

// All ranks through the schedule's micro-batches.
class Pipeline {
 public:
  explicit Pipeline(const ClosedFormInputs& in)
      : in_(in), stages_(in.schedule->num_virtual_stages()), micro_batches_(in.schedule->num_micro_batches) {
    const auto slots = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(micro_batches_);
    forward_end_.assign(slots, kUnknown);
    backward_end_ = activations_ = gradients_ = forward_end_;
    for (std::size_t rank = 0; rank < in.ranks.size(); ++rank) ranks_.emplace_back(in, rank);
    wires_.assign(2 * in.ranks.size(), 0);
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        while (run_next(rank)) moved = true;
    }
    for (const RankRun& rank : ranks_) TRIDENT_CHECK(rank.done(), "a schedule whose ranks wait for each other");
  }

  std::vector<RankRun>& ranks() { return ranks_; }

  // Seconds that each further micro-batch takes: the pace of the round `back` rounds before the last micro-batch; of the round
  // that there is, where there are not so many.
  double pace(int back) const {
    const int ranks = in_.schedule->num_ranks;
    const int last = std::max(micro_batches_ - 2 - back * ranks, 1), round = std::min(ranks, last);
    const auto between = [&](const std::vector<double>& ends, int stage) {
      return (ends[slot(stage, last)] - ends[slot(stage, last - round)]) / round;
    };
    if (is_gpipe()) return between(forward_end_, stages_ - 1) + between(backward_end_, 0);
    return between(backward_end_, stages_ - 1);
  }

  // Whether every stage goes at one pace: a slower one behind or before buffers of micro-batches is not felt everywhere at once.
  bool has_settled() const {
    const double now = pace(0);
    const auto differs = [now](double other) { return std::abs(other - now) > kSettled * now; };
    if (differs(pace(1))) return false;
    if (is_gpipe()) return true;
    const int last = micro_batches_ - 1, round = std::min(in_.schedule->num_ranks, last);
    for (int stage = 0; stage < stages_; ++stage)
      if (round > 0 && differs((forward_end_[slot(stage, last)] - forward_end_[slot(stage, last - round)]) / round)) return false;
    return true;
  }

 private:
  std::size_t slot(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(micro_batch);
  }
  bool is_gpipe() const {
    const std::vector<Action>& last = in_.schedule->ranks.back();
    return last.size() > 1 && last[1].kind == ActionKind::kForward && in_.schedule->num_chunks == 1 && in_.ranks.size() > 1;
  }

  bool run_next(std::size_t r) {
    RankRun& rank = ranks_[r];
    if (rank.done()) return false;
    const Action action = rank.next();
    const std::size_t at = slot(action.virtual_stage, action.micro_batch);
    const bool forward = action.kind == ActionKind::kForward;
    const bool outer = forward ? action.virtual_stage == 0 : action.virtual_stage == stages_ - 1;
    const double arrival = outer ? 0 : forward ? activations_[at] : gradients_[at];
    if (arrival == kUnknown) return false;
    const double end = rank.run(arrival);
    (forward ? forward_end_ : backward_end_)[at] = end;
    const int to = action.virtual_stage + (forward ? 1 : -1);
    if (to < 0 || to == stages_) return true;
    double& wire = wires_[2 * r + (forward ? 0 : 1)];
    wire = std::max(wire, end) + (in_.schedule->num_ranks > 1 ? in_.message : 0);
    (forward ? activations_ : gradients_)[slot(to, action.micro_batch)] = wire;
    return true;
  }

  const ClosedFormInputs& in_;
  int stages_, micro_batches_;
  std::vector<RankRun> ranks_;
  std::vector<double> forward_end_, backward_end_, activations_, gradients_, wires_;
};

// From the last micro-batch on: the tied weight's exchange, the norm, the updates.
double end_of_step(const ClosedFormInputs& in, std::vector<RankRun>& ranks) {
  double gate = 0, tied = 0;
  if (in.tied_over_ranks) {
    tied = std::max(ranks.front().streams().end(), ranks.back().streams().end());
    for (RankRun* rank : {&ranks.front(), &ranks.back()}) {
      rank->streams().wait_until(tied);
      rank->streams().compute(rank->times().tie);
    }
  }
  for (RankRun& rank : ranks) {
    if (!in.tied_over_ranks) rank.streams().compute(0);
    gate = std::max(gate, rank.streams().end());
  }
  double end = 0;
  for (RankRun& rank : ranks) {
    RankStreams& streams = rank.streams();
    const RankTimes& times = rank.times();
    streams.wait_until(gate);
    streams.compute(times.norm + rank.pending_finishes().time());
    for (const ChunkTimes& chunk : times.chunks) {
      for (const std::uint8_t kind : chunk.kinds) {
        streams.compute(times.units[kind].update);
        if (!times.gathers_after_update) continue;
        if (in.overlap) streams.add_beside(times.units[kind].gather);
        else streams.compute(times.units[kind].gather);
      }
    }
    end = std::max(end, streams.end());
  }
  return end;
}

}  // namespace

double closed_form_seconds(const ClosedFormInputs& in) {
  TRIDENT_CHECK(in.sync_every == 0 || in.sync_every == 1, "gradients reduced every {} micro-batches", in.sync_every);
  ClosedFormInputs longer;
  const ClosedFormInputs* now = &in;
  for (int doubling = 0;; ++doubling) {
    Pipeline pipeline(*now);
    pipeline.run();
    const int rest = in.micro_batches - now->schedule->num_micro_batches;
    if (rest <= 0 || doubling == kDoublings || !in.longer || pipeline.has_settled()) {
      const double pace = rest > 0 ? pipeline.pace(0) : 0;
      return end_of_step(in, pipeline.ranks()) + pace * std::max(rest, 0) + in.outside;
    }
    if (doubling == 0) longer = in;
    longer.schedule = &in.longer(std::min(in.micro_batches, 2 * now->schedule->num_micro_batches));
    now = &longer;
  }
}

double least_seconds(const ClosedFormInputs& in) {
  double least = 0, forwards = 0, backwards = 0;
  for (const RankTimes& rank : in.ranks) {
    double forward = 0, backward = 0, update = rank.norm;  // of all chunks; of the first one apart
    double first_forward = 0, first_backward = 0;
    for (const ChunkTimes& chunk : rank.chunks) {
      for (const std::uint8_t kind : chunk.kinds) {
        const UnitTimes& unit = rank.units[kind];
        const double back = std::min(unit.backward.time(), unit.first_backward.time());
        forward += unit.forward.time();
        backward += back;
        update += unit.update;
        if (&chunk != &rank.chunks.front()) continue;
        first_forward += unit.forward.time();
        first_backward += back;
      }
    }
    least = std::max(least, forwards + in.micro_batches * (forward + backward) + backwards + update);
    forwards += first_forward + in.message;
    backwards += first_backward + in.message;
  }
  return least + in.outside;
}

}  // namespace trident
