// The two streams of one rank as a simulated step runs them: one computes, the other gathers and reduces meanwhile. Pure.
//
// Overlapped work starts when the work issued before it there has ended, and never waits for later computing; hence both
// streams are run in one pass, in the order of the rank's instructions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/price/overlap_slowdown.h"

namespace trident {

class OverlappedStreams {
 public:
  // Items that were issued up to `keep` items ago can be waited for and asked about.
  OverlappedStreams(const OverlapSlowdown& slowdown, std::int64_t keep) : slowdown_(slowdown), keep_(keep) {
    std::size_t size = 4;
    while (static_cast<std::int64_t>(size) < keep + 2) size *= 2;
    items_.resize(size);
  }

  double now() const { return now_; }  // the computing stream is done with what it was given
  std::int64_t issued() const { return issued_; }
  bool overlapped_idle() const { return head_ == issued_; }
  double start_of(std::int64_t item) const { return at(item).start; }
  double end_of(std::int64_t item) const { return at(item).end; }

  void issue_overlapped(double seconds) {
    if (issued_ - std::min(head_, issued_ - keep_) >= std::int64_t(items_.size())) grow();
    at(issued_++) = {now_, seconds, 0, 0};
  }

  // The computing stream stands still until `time`, or until an item has ended.
  void wait_until(double time) {
    if (time <= now_) return;
    advance(time);
    now_ = time;
  }
  void wait_for(std::int64_t item) {
    while (head_ <= item) finish_head_alone();
    wait_until(at(item).end);
  }
  // When everything that was issued has ended, if the computing stream stands still until then.
  double finish_overlapped() {
    while (head_ < issued_) finish_head_alone();
    return std::max(now_, clock_);
  }

  void compute(double seconds) {
    if (overlapped_idle()) {
      now_ += seconds;
      return;
    }
    advance(now_);
    while (seconds > 0 && head_ < issued_) {
      if (left_ < 0) begin_head(now_);
      const double mine = seconds * slowdown_.compute, other = left_ * slowdown_.communication;
      if (mine < other) {
        left_ -= mine / slowdown_.communication;
        clock_ = now_ += mine;
        return;
      }
      seconds = std::max(0.0, seconds - other / slowdown_.compute);
      now_ += other;
      end_head(now_);
    }
    now_ += seconds;
  }

 private:
  static constexpr double kNotBegun = -1;
  struct Item {
    double issued = 0, seconds = 0, start = 0, end = 0;
  };
  Item& at(std::int64_t item) { return items_[static_cast<std::size_t>(item) & (items_.size() - 1)]; }
  const Item& at(std::int64_t item) const { return items_[static_cast<std::size_t>(item) & (items_.size() - 1)]; }

  void begin_head(double time) {
    at(head_).start = clock_ = time;
    left_ = at(head_).seconds;
  }
  void end_head(double time) {
    at(head_++).end = clock_ = time;
    left_ = kNotBegun;
  }
  void finish_head_alone() {
    if (left_ < 0) begin_head(std::max(clock_, at(head_).issued));
    end_head(clock_ + left_);
  }
  // Work beside runs alone up to `time`.
  void advance(double time) {
    while (head_ < issued_) {
      if (left_ < 0) {
        const double start = std::max(clock_, at(head_).issued);
        if (start >= time) return;
        begin_head(start);
      }
      if (clock_ + left_ > time) {
        left_ -= time - clock_;
        clock_ = time;
        return;
      }
      end_head(clock_ + left_);
    }
  }
  void grow() {
    std::vector<Item> larger(2 * items_.size());
    const std::int64_t first = std::max(std::int64_t{0}, issued_ - std::int64_t(items_.size()));
    for (std::int64_t i = first; i < issued_; ++i) larger[static_cast<std::size_t>(i) & (larger.size() - 1)] = at(i);
    items_ = std::move(larger);
  }

  OverlapSlowdown slowdown_;
  std::int64_t keep_ = 0;
  std::vector<Item> items_;  // a ring
  std::int64_t head_ = 0, issued_ = 0;  // of all items: the first that has not ended
  double now_ = 0;
  double clock_ = 0;          // the second stream has been run up to here
  double left_ = kNotBegun;   // of the item at head_
};

}  // namespace trident
