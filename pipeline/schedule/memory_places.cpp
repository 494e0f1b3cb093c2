#include "pipeline/schedule/memory_places.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "core/at.h"
#include "core/check.h"

namespace trident {
namespace {

using Order = std::vector<std::size_t>;  // indices of lifetimes

template <class Less> Order sorted(std::span<const Lifetime> lifetimes, Less less) {
  Order order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return less(lifetimes[a], lifetimes[b]); });
  return order;
}

Order by_time(std::span<const Lifetime> lifetimes) {
  return sorted(lifetimes, [](const Lifetime& a, const Lifetime& b) { return a.begin < b.begin; });
}

// With never more than two alive, one lies at the bottom of the region and the other at its top.
std::optional<Places> in_two_lanes(std::span<const Lifetime> lifetimes, std::int64_t bytes) {
  Places places{std::vector<std::int64_t>(lifetimes.size()), bytes};
  std::array<std::optional<std::int64_t>, 2> taken_until;
  for (const std::size_t i : by_time(lifetimes)) {
    const Lifetime& life = lifetimes[i];
    const auto is_free = [&](const auto& end) { return !end || *end < life.begin; };
    const auto lane = std::find_if(taken_until.begin(), taken_until.end(), is_free);
    if (lane == taken_until.end()) return std::nullopt;
    *lane = life.end;
    places.offsets[i] = lane == taken_until.begin() ? 0 : bytes - life.bytes;
  }
  return places;
}

// One after the other, each into the tightest gap between those of its time that lie already, or above them.
class Greedy {
 public:
  explicit Greedy(std::span<const Lifetime> lifetimes)
      : lifetimes_(lifetimes), seen_by_(lifetimes.size(), lifetimes.size()) {
    places_.offsets.resize(lifetimes.size());
    for (const Lifetime& life : lifetimes) first_ = std::min(first_, life.begin), last_ = std::max(last_, life.end);
    alive_.resize(static_cast<std::size_t>(last_ - first_ + 1));
  }

  Places in(const Order& order) && {
    for (const std::size_t i : order) {
      places_.offsets[i] = gap_for(i);
      places_.bytes = std::max(places_.bytes, places_.offsets[i] + lifetimes_[i].bytes);
      for (std::int64_t t = lifetimes_[i].begin; t <= lifetimes_[i].end; ++t) alive_at(t).push_back(i);
    }
    return std::move(places_);
  }

 private:
  Order& alive_at(std::int64_t time) { return at(alive_, time - first_); }

  std::int64_t gap_for(std::size_t i) {
    Order around;  // those of its time, from the bottom up
    for (std::int64_t t = lifetimes_[i].begin; t <= lifetimes_[i].end; ++t)
      for (const std::size_t other : alive_at(t))
        if (std::exchange(seen_by_[other], i) != i) around.push_back(other);
    std::sort(around.begin(), around.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(places_.offsets[a], a) < std::pair(places_.offsets[b], b);
    });
    std::int64_t top = 0;
    std::optional<std::int64_t> best, best_size;
    for (const std::size_t other : around) {
      const std::int64_t size = places_.offsets[other] - top;
      if (size >= lifetimes_[i].bytes && (!best_size || size < *best_size)) best = top, best_size = size;
      top = std::max(top, places_.offsets[other] + lifetimes_[other].bytes);
    }
    return best.value_or(top);
  }

  std::span<const Lifetime> lifetimes_;
  Places places_;
  Order seen_by_;             // the last that met it in gap_for
  std::vector<Order> alive_;  // by time
  std::int64_t first_ = 0, last_ = 0;
};

}  // namespace

std::int64_t most_alive(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // (time, bytes); what ends at a time makes room after it
  for (const Lifetime& life : lifetimes) {
    TRIDENT_CHECK(life.bytes >= 0 && life.begin <= life.end, "{} bytes from {} to {}", life.bytes, life.begin, life.end);
    changes.emplace_back(life.begin, life.bytes);
    changes.emplace_back(life.end + 1, -life.bytes);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t alive = 0, most = 0;
  for (const auto& [time, bytes] : changes) most = std::max(most, alive += bytes);
  return most;
}

Places place(std::span<const Lifetime> lifetimes) {
  const std::int64_t bound = most_alive(lifetimes);
  if (std::optional<Places> places = in_two_lanes(lifetimes, bound)) return std::move(*places);
  const auto larger = [](const Lifetime& a, const Lifetime& b) {
    return std::pair(-a.bytes, a.begin) < std::pair(-b.bytes, b.begin);
  };
  Places by_size = Greedy(lifetimes).in(sorted(lifetimes, larger));
  if (by_size.bytes == bound) return by_size;
  Places in_time = Greedy(lifetimes).in(by_time(lifetimes));
  return in_time.bytes < by_size.bytes ? in_time : by_size;
}

}  // namespace trident
