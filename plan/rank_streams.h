// The two streams of a rank, run on as work comes: for steps whose ranks are looked at one by one (closed_form.h). Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/instruction_graph.h"

namespace trident {

// The streams of one rank: one that computes, one for gathers and reductions. What is on the second is known before the first is
// moved on, and it never waits for what the first does later, so that the two run in one pass.
class RankStreams {
 public:
  explicit RankStreams(const OverlapSlowdown& slowdown) : slowdown_(slowdown) {}

  double now() const { return now_; }
  bool beside_idle() const { return head_ == items_.size(); }
  double end() const {  // of everything
    double at = clock_, left = remaining_;
    for (std::size_t i = head_; i < items_.size(); ++i, left = kNotYet)
      at = std::max(at, items_[i].ready) + (left >= 0 ? left : items_[i].seconds);
    return std::max(now_, at);
  }

  // Behind what is there, from now on.
  int add_beside(double seconds) {
    items_.push_back({now_, seconds, kNotYet});
    return static_cast<int>(items_.size()) - 1;
  }

  void wait_until(double time) {
    if (time <= now_) return;
    advance(time);
    now_ = time;
  }

  void wait_for(int item) {
    const auto wanted = static_cast<std::size_t>(item);
    while (head_ <= wanted) finish_head();
    wait_until(items_[wanted].end);
  }

  void compute(double seconds) {
    while (seconds > 0) {
      advance(now_);
      if (head_ == items_.size()) break;
      const Item& item = items_[head_];
      if (item.ready > now_) {
        const double alone = std::min(seconds, item.ready - now_);
        now_ += alone;
        seconds -= alone;
        continue;
      }
      const double mine = seconds * slowdown_.compute, other = left() * slowdown_.communication;
      if (mine < other) {
        remaining_ = left() - mine / slowdown_.communication;
        clock_ = now_ += mine;
        return;
      }
      seconds = std::max(0.0, seconds - other / slowdown_.compute);
      now_ += other;
      finish_head_at(now_);
    }
    now_ += std::max(0.0, seconds);
  }

  void shift(double seconds) {  // nothing is left beside
    now_ += seconds;
    clock_ += seconds;
  }

 private:
  static constexpr double kNotYet = -1;
  struct Item {
    double ready = 0, seconds = 0, end = kNotYet;
  };

  double left() const { return remaining_ >= 0 ? remaining_ : items_[head_].seconds; }
  void finish_head_at(double time) {
    items_[head_++].end = clock_ = time;
    remaining_ = kNotYet;
  }
  void finish_head() { finish_head_at(std::max(clock_, items_[head_].ready) + left()); }
  // Runs what is beside, alone, up to `time`.
  void advance(double time) {
    while (head_ < items_.size()) {
      const double start = std::max(clock_, items_[head_].ready);
      if (start >= time) return;
      const double stays = left();
      if (start + stays > time) {
        remaining_ = stays - (time - start);
        clock_ = time;
        return;
      }
      finish_head();
    }
  }

  OverlapSlowdown slowdown_;
  double now_ = 0;    // the first stream is done with everything
  double clock_ = 0;  // the second one is simulated up to here
  double remaining_ = kNotYet;  // of the item at head_, once it has begun
  std::size_t head_ = 0;
  std::vector<Item> items_;
};

}  // namespace trident
