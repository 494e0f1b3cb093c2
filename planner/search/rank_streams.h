// The two streams of a rank, run on as work comes: for steps whose ranks are looked at one by one (closed_form.h). Pure.
#pragma once

#include <algorithm>

#include "planner/price/overlap_slowdown.h"


namespace trident {

// One that computes, one for gathers and reductions. What is on the second is known before the first is moved on and never waits
// for what the first does later: seconds of work left on it are all that there is to know of it.
class RankStreams {
 public:
  explicit RankStreams(const OverlapSlowdown& slowdown) : slowdown_(slowdown) {}

  double now() const { return now_; }           // the first stream is done with everything
  double end() const { return now_ + behind_; }  // both are

  // Behind what is on the second stream, from now on. Returns what wait_for() takes.
  double add_beside(double seconds) {
    behind_ += seconds;
    return added_ += seconds;
  }

  void wait_until(double time) {
    const double later = std::max(now_, time);
    behind_ = std::max(0.0, behind_ - (later - now_));
    now_ = later;
  }

  // Until everything that was added up to `item` is done.
  void wait_for(double item) {
    const double left = behind_ - (added_ - item);
    if (left <= 0) return;
    now_ += left;
    behind_ -= left;
  }

  void compute(double seconds) {
    if (behind_ > 0) {
      const double mine = seconds * slowdown_.compute, other = behind_ * slowdown_.communication;
      if (mine < other) {
        now_ += mine;
        behind_ -= mine / slowdown_.communication;
        return;
      }
      now_ += other;
      seconds = std::max(0.0, seconds - other / slowdown_.compute);
      behind_ = 0;
    }
    now_ += seconds;
  }

 private:
  // now_ and behind_ change together: side by side they would be moved as one vector, whose parts what follows waits for.
  double behind_ = 0;  // seconds that the second stream works from now on, if it is alone
  OverlapSlowdown slowdown_;
  double added_ = 0;  // to it, in all
  double now_ = 0;
};

}  // namespace trident
