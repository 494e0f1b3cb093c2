#include "planner/published/weight_filling.h"

#include <algorithm>

#include "core/at.h"
#include "core/check.h"

namespace trident {
namespace {

constexpr double kUnknown = -1;
constexpr double kSlack = 1e-9;  // of units of memory that were added up from shares

struct RankProgress {
  std::size_t next = 0;     // of the given order
  std::size_t weights = 0;  // of `waiting`
  std::vector<Action> waiting;
  double now = 0;
  int whole = 0;
};

// Runs all ranks together, in any order that dependencies allow: what a rank does next depends on when its inputs arrive, and that
// is known once the rank before has got there.
class Filler {
 public:
  Filler(const PlacedSchedule& placed, const StageTimes& times, const WeightFilling& filling);
  std::optional<PlacedSchedule> run();

 private:
  enum class Advance { kActed, kMustWait, kDone, kTooLittleMemory };
  Advance advance(int rank);
  void do_weight(int rank);
  void do_pass(int rank, const Action& action, double start);
  double held(const RankProgress& progress) const {
    return progress.whole + filling_.weight_share * static_cast<double>(progress.waiting.size() - progress.weights);
  }
  std::size_t index(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(placed_.schedule.num_micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }
  double arrival(const Action& action) const {
    return (action.kind == ActionKind::kForward ? activations_ : gradients_)[index(action.virtual_stage, action.micro_batch)];
  }
  double transit(int from_stage, int to_stage) const {
    const auto& rank_of = placed_.rank_of_stage;
    return at(rank_of, from_stage) == at(rank_of, to_stage) ? 0 : times_[from_stage].message;
  }

  const PlacedSchedule& placed_;
  const StageTimes& times_;
  const WeightFilling& filling_;
  std::vector<double> activations_, gradients_;  // when a pass's input is there; kUnknown so far
  std::vector<RankProgress> ranks_;
  PlacedSchedule filled_;
};

Filler::Filler(const PlacedSchedule& placed, const StageTimes& times, const WeightFilling& filling)
    : placed_(placed), times_(times), filling_(filling) {
  const Schedule& schedule = placed.schedule;
  const auto passes =
      static_cast<std::size_t>(schedule.num_virtual_stages()) * static_cast<std::size_t>(schedule.num_micro_batches);
  activations_.assign(passes, kUnknown);
  gradients_.assign(passes, kUnknown);
  std::fill_n(activations_.begin(), schedule.num_micro_batches, 0.0);
  ranks_.resize(schedule.ranks.size());
  filled_ = {{schedule.num_ranks, schedule.num_chunks, schedule.num_micro_batches, {}}, placed.rank_of_stage};
  filled_.schedule.ranks.resize(schedule.ranks.size());
}

void Filler::do_weight(int rank) {
  RankProgress& progress = at(ranks_, rank);
  Action action = progress.waiting[progress.weights++];
  action.kind = ActionKind::kBackwardWeight;
  at(filled_.schedule.ranks, rank).push_back(action);
  progress.now += times_[action.virtual_stage].backward_weight;
}

void Filler::do_pass(int rank, const Action& action, double start) {
  RankProgress& progress = at(ranks_, rank);
  at(filled_.schedule.ranks, rank).push_back(action);
  ++progress.next;
  const int stage = action.virtual_stage, last = placed_.schedule.num_virtual_stages() - 1;
  if (action.kind == ActionKind::kForward) {
    progress.now = start + times_[stage].forward;
    ++progress.whole;
    if (stage < last)
      activations_[index(stage + 1, action.micro_batch)] = progress.now + transit(stage, stage + 1);
    else
      gradients_[index(stage, action.micro_batch)] = progress.now;
    return;
  }
  TRIDENT_CHECK(action.kind == ActionKind::kBackwardInput, "{} is no input gradient", to_string(action));
  progress.now = start + times_[stage].backward_input;
  --progress.whole;
  progress.waiting.push_back(action);
  if (stage > 0) gradients_[index(stage - 1, action.micro_batch)] = progress.now + transit(stage, stage - 1);
}

Filler::Advance Filler::advance(int rank) {
  RankProgress& progress = at(ranks_, rank);
  const auto& order = at(placed_.schedule.ranks, rank);
  const bool weight_waits = progress.weights < progress.waiting.size();
  if (progress.next == order.size()) {
    if (!weight_waits) return Advance::kDone;
    do_weight(rank);
    return Advance::kActed;
  }
  const Action& action = order[progress.next];
  if (action.kind == ActionKind::kForward && held(progress) + 1 > filling_.limit + kSlack) {
    if (!weight_waits) return Advance::kTooLittleMemory;
    do_weight(rank);
    return Advance::kActed;
  }
  const double there = arrival(action);
  if (there == kUnknown) return Advance::kMustWait;
  const auto weight_seconds = [&] { return times_[progress.waiting[progress.weights].virtual_stage].backward_weight; };
  if (weight_waits && there - progress.now > filling_.threshold * weight_seconds())
    do_weight(rank);
  else
    do_pass(rank, action, std::max(progress.now, there));
  return Advance::kActed;
}

std::optional<PlacedSchedule> Filler::run() {
  for (bool all_done = false; !all_done;) {
    bool acted = false;
    all_done = true;
    for (int rank = 0; rank < placed_.schedule.num_ranks; ++rank) {
      Advance outcome = advance(rank);
      while (outcome == Advance::kActed) acted = true, outcome = advance(rank);
      if (outcome == Advance::kTooLittleMemory) return std::nullopt;
      all_done = all_done && outcome == Advance::kDone;
    }
    if (!all_done && !acted) return std::nullopt;
  }
  return std::move(filled_);
}

}  // namespace

std::optional<PlacedSchedule> fill_weight_gradients(const PlacedSchedule& placed, const StageTimes& times,
                                                    const WeightFilling& filling) {
  return Filler(placed, times, filling).run();
}

}  // namespace trident
