#include "planner/search/closed_form.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/check.h"
#include "planner/search/rank_run.h"

namespace trident {
namespace {

// How much two rounds or stages may differ in pace, and how often the micro-batches that are looked at are doubled until they do
// not.
constexpr double kSettled = 1e-3;
constexpr int kDoublings = 3;

// Longer pipelines are looked at as two, of `few` ranks and of twice as many.
constexpr int kFew = 4, kFewUneven = 12;
// Interleaved chunks of a few ranks do not show what happens in many.
constexpr int kFewInterleaved = 12, kFewUnevenInterleaved = 16;

// Some ranks through some micro-batches.
class Pipeline {
 public:
  Pipeline(const ClosedFormInputs& in, const std::vector<RankSums>& sums, const std::vector<int>& rank_of, const ActionOrder& order)
      : in_(in), order_(order), ends_(order.passes(), 0.0), wires_(2 * rank_of.size(), 0.0) {
    ranks_.reserve(rank_of.size());
    for (const int rank : rank_of) {
      const RankSums& of = sums[static_cast<std::size_t>(rank)];
      ranks_.emplace_back(in, of, order.micro_batches);
      for (const RankSums::Chunk& chunk : of.chunks)
        times_.insert(times_.end(), {chunk.forward, chunk.first_backward, chunk.backward});
    }
  }

  void run() {
    for (std::size_t i = run_plain(); i < order_.actions.size(); ++i) {
      const OrderedAction& action = order_.actions[i];
      const auto rank = static_cast<std::size_t>(action.rank), pass = static_cast<std::size_t>(action.pass);
      const double end = ends_[pass] = ranks_[rank].run(action, ends_[pass]);
      send(action, end);
    }
  }

  // Seconds that each further micro-batch takes: the pace of the round `back` rounds before the last micro-batch; of the round
  // that there is, where there are not so many.
  double pace(int back) const {
    const int last = std::max(order_.micro_batches - 2 - back * order_.ranks, 1), round = std::min(order_.ranks, last);
    const int end = order_.stages - 1;
    const auto between = [&](std::size_t now, std::size_t before) { return (ends_[now] - ends_[before]) / round; };
    if (order_.micro_batches == 1) return ends_[order_.backward(end, 0)];
    if (order_.all_forwards_first) {
      return between(order_.forward(end, last), order_.forward(end, last - round)) +
             between(order_.backward(0, last), order_.backward(0, last - round));
    }
    return between(order_.backward(end, last), order_.backward(end, last - round));
  }

  // Whether every stage goes at one pace: a slower one behind or before buffers of micro-batches is not felt everywhere at once.
  bool has_settled() const {
    const double now = pace(0);
    const auto differs = [now](double other) { return std::abs(other - now) > kSettled * now; };
    if (differs(pace(1))) return false;
    if (order_.all_forwards_first) return true;
    const int last = order_.micro_batches - 1, round = std::min(order_.ranks, last);
    for (int stage = 0; stage < order_.stages && round > 0; ++stage)
      if (differs((ends_[order_.forward(stage, last)] - ends_[order_.forward(stage, last - round)]) / round)) return false;
    return true;
  }

  // From the last micro-batch on: the tied weight's exchange, the norm, the updates. Seconds of the whole step.
  double finish() {
    if (in_.tied_over_ranks) {
      const double tied = std::max(ranks_.front().streams().end(), ranks_.back().streams().end());
      for (RankRun* rank : {&ranks_.front(), &ranks_.back()}) {
        rank->streams().wait_until(tied);
        rank->streams().compute(rank->times().tie);
      }
    }
    double gate = 0, end = 0;
    for (RankRun& rank : ranks_) gate = std::max(gate, rank.streams().end());
    for (RankRun& rank : ranks_) end = std::max(end, update(rank, gate));
    return end;
  }

 private:
  void send(const OrderedAction& action, double end) {
    if (action.next == OrderedAction::kNone) return;
    double& wire = wires_[2 * static_cast<std::size_t>(action.rank) + (action.forward ? 0 : 1)];
    ends_[static_cast<std::size_t>(action.next)] = wire = std::max(wire, end) + in_.message;
  }

  // The actions before the first one that gathers or reduces: until then when a rank is free is all that there is to know of it.
  // Returns their number.
  std::size_t run_plain() {
    const auto gathers = [](const RankRun& rank) { return rank.times().gathers_on_use; };
    if (in_.sync_every == 1 || std::any_of(ranks_.begin(), ranks_.end(), gathers)) return 0;
    std::vector<double> free(ranks_.size(), 0.0);
    std::size_t i = 0;
    for (; i < order_.actions.size(); ++i) {
      const OrderedAction& action = order_.actions[i];
      if (!action.forward && action.micro_batch + 1 == order_.micro_batches) break;
      double& end = ends_[static_cast<std::size_t>(action.pass)];
      double& now = free[static_cast<std::size_t>(action.rank)];
      end = now = std::max(now, end) + times_[static_cast<std::size_t>(action.time)];
      send(action, end);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].streams().wait_until(free[rank]);
    return i;
  }

  double update(RankRun& rank, double gate) const {
    RankStreams& streams = rank.streams();
    const RankTimes& times = rank.times();
    streams.wait_until(gate);
    streams.compute(times.norm + rank.pending_finishes().time());
    for (const ChunkTimes& chunk : times.chunks) {
      for (const UnitKind kind : chunk.kinds) {
        streams.compute(times.units[kind].update);
        if (!times.gathers_after_update) continue;
        if (in_.overlap) streams.add_beside(times.units[kind].gather);
        else streams.compute(times.units[kind].gather);
      }
    }
    return streams.end();
  }

  const ClosedFormInputs& in_;
  const ActionOrder& order_;
  std::vector<RankRun> ranks_;
  std::vector<double> times_;            // of passes beside which nothing comes or goes: ActionOrder::time()
  std::vector<double> ends_;             // by pass; before it is run, when its input arrives
  std::vector<double> wires_;            // when they are free: of each rank one to the next and one to the one before
};

// A step of some ranks and micro-batches, and what each further micro-batch takes.
struct Looked {
  double seconds = 0, pace = 0;
  int micro_batches = 1;
  bool settled = true;
  double without_micro_batches() const { return seconds - pace * micro_batches; }
};

class ClosedForm {
 public:
  explicit ClosedForm(const ClosedFormInputs& in)
      : in_(in), ranks_(in.schedule.pipeline), micro_batches_(in.schedule.micro_batches) {
    for (const RankTimes& times : in.ranks) sums_.emplace_back(in, times);
  }

  double seconds() const {
    const int few = this->few();
    return (may_be(few) ? of_two_lengths(few) : of_all_ranks()) + in_.outside;
  }

 private:
  int few() const {
    if (in_.schedule.chunks == 1) return is_even() ? kFew : kFewUneven;
    return is_even() ? std::max(kFewInterleaved, ranks_ / 4) : kFewUnevenInterleaved;
  }

  // Ranks in the middle have the same units, in all chunks.
  bool is_even() const {
    const int middle = in_.rank_of[in_.rank_of.size() / 2];
    const std::vector<ChunkTimes>& chunks = in_.ranks[static_cast<std::size_t>(middle)].chunks;
    const auto alike = [&](const ChunkTimes& chunk) { return chunk.kinds == chunks.front().kinds; };
    return std::all_of(in_.rank_of.begin() + 1, in_.rank_of.end() - 1, [&](int rank) { return rank == middle; }) &&
           std::all_of(chunks.begin(), chunks.end(), alike);
  }

  // Whether ranks can be left out: what is left has as many micro-batches for each rank.
  bool may_be(int few) const {
    if (ranks_ <= 2 * few) return false;
    return micro_batches_ >= ranks_ || std::int64_t{micro_batches_} * few % ranks_ == 0;
  }

  Looked look(const std::vector<int>& rank_of, int micro_batches) const {
    ScheduleKey key = in_.schedule;
    key.pipeline = static_cast<int>(rank_of.size());
    key.micro_batches = micro_batches;
    Pipeline pipeline(in_, sums_, rank_of, in_.schedules->order(key));
    pipeline.run();
    const double pace = pipeline.pace(0);
    const bool settled = pipeline.has_settled();
    return {pipeline.finish(), pace, micro_batches, settled};
  }

  // Interleaved chunks are at work together one round later.
  int rounds(int ranks) const {
    return ScheduleBook::laid_out(ranks, std::numeric_limits<int>::max()) / ranks + (in_.schedule.chunks > 1 ? 1 : 0);
  }

  double of_all_ranks() const {
    int micro_batches = std::min(micro_batches_, ranks_ * rounds(ranks_));
    for (int doubling = 0;; ++doubling) {
      const Looked looked = look(in_.rank_of, micro_batches);
      const int rest = micro_batches_ - micro_batches;
      if (rest == 0 || doubling == kDoublings || looked.settled) return looked.seconds + looked.pace * rest;
      micro_batches = std::min(micro_batches_, 2 * micro_batches);
    }
  }

  // As many micro-batches for each rank as there are, or fewer and the rest at their pace. What messages add to a pace depends on
  // (ranks - 1) / ranks; the rest of a step grows with what the first chunks of its ranks take.
  double of_two_lengths(int length) const {
    const std::vector<int> few = ranks_of(length), more = ranks_of(2 * length);
    std::int64_t rounds = this->rounds(2 * length);
    for (int doubling = 0;; ++doubling, rounds *= 2) {
      const bool all = rounds * ranks_ >= micro_batches_;
      const auto micro_batches = [&](std::int64_t ranks) {
        const std::int64_t of_all = std::max<std::int64_t>(1, (micro_batches_ * ranks + ranks_ / 2) / ranks_);
        return static_cast<int>(all ? of_all : rounds * ranks);
      };
      const Looked large = look(more, micro_batches(2 * length));
      if (!all && doubling < kDoublings && !large.settled) continue;
      const Looked small = look(few, micro_batches(length));
      const double pace = large.pace + (large.pace - small.pace) * (1 - 2.0 * length / ranks_);
      const double beyond = (fill(in_.rank_of) - fill(more)) / (fill(more) - fill(few));
      const double rest = large.without_micro_batches();
      return rest + (rest - small.without_micro_batches()) * beyond + pace * micro_batches_;
    }
  }

  // The first, the last, and others as they are spread between; of each kind one: a single slow one sets the pace.
  std::vector<int> ranks_of(int length) const {
    std::vector<int> list = {in_.rank_of.front()};
    for (int i = 1; i + 1 < length; ++i)
      list.push_back(in_.rank_of[static_cast<std::size_t>(1 + (2 * i - 1) * (ranks_ - 2) / (2 * (length - 2)))]);
    list.push_back(in_.rank_of.back());
    for (int rank = 1; rank + 1 < ranks_; ++rank) {
      const int kind = in_.rank_of[static_cast<std::size_t>(rank)];
      if (std::find(list.begin(), list.end(), kind) != list.end()) continue;
      list[static_cast<std::size_t>(1 + (rank - 1) * (length - 2) / (ranks_ - 2))] = kind;
    }
    return list;
  }

  double fill(const std::vector<int>& rank_of) const {
    double seconds = 0;
    for (const int rank : rank_of) seconds += sums_[static_cast<std::size_t>(rank)].first_chunk() + 2 * in_.message;
    return seconds;
  }

  const ClosedFormInputs& in_;
  int ranks_, micro_batches_;
  std::vector<RankSums> sums_;  // as in.ranks
};

}  // namespace

double closed_form_seconds(const ClosedFormInputs& in) {
  TRIDENT_CHECK(in.sync_every == 0 || in.sync_every == 1, "gradients reduced every {} micro-batches", in.sync_every);
  return ClosedForm(in).seconds();
}

double least_seconds(const ClosedFormInputs& in) {
  struct Least {
    double forward = 0, backward = 0, update = 0;  // of all chunks
    double first_forward = 0, first_backward = 0;  // of the first one
  };
  std::vector<Least> ranks;
  for (const RankTimes& rank : in.ranks) {
    Least& of = ranks.emplace_back();
    of.update = rank.norm;
    for (const ChunkTimes& chunk : rank.chunks) {
      for (const UnitKind kind : chunk.kinds) {
        const UnitTimes& unit = rank.units[kind];
        of.forward += unit.forward.time();
        of.backward += std::min(unit.backward.time(), unit.first_backward.time());
        of.update += unit.update;
      }
      if (&chunk == &rank.chunks.front()) of.first_forward = of.forward, of.first_backward = of.backward;
    }
  }
  double least = 0, before = 0;
  for (const int rank : in.rank_of) {
    const Least& of = ranks[static_cast<std::size_t>(rank)];
    least = std::max(least, before + in.schedule.micro_batches * (of.forward + of.backward) + of.update);
    before += of.first_forward + of.first_backward + 2 * in.message;
  }
  return least + in.outside;
}

}  // namespace trident
