#include "planner/published/v_schedules.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/at.h"
#include "core/check.h"

namespace trident {
namespace {

constexpr int kPeriod = 6;  // units: forward, input gradient and weight gradient of two stages

// Begin of the passes of micro-batch 0 on a rank.
struct Block {
  int first_forward = 0, second_forward = 0, second_gradient = 0, first_gradient = 0;
  std::array<int, 4> passes() const { return {first_forward, second_forward, second_gradient, first_gradient}; }
};

std::vector<Block> blocks_of(int p, const BlockSteps& steps, const std::array<int, 3>& delays) {
  std::vector<Block> blocks(static_cast<std::size_t>(p));
  const int up = steps.forward_down * (p - 1) + 1 + delays[0];       // second forward of the last rank
  const int down = up + steps.forward_up * (p - 1) + 1 + delays[1];  // first gradient: of the second stage of rank 0
  const int back = down + steps.gradient_down * (p - 1) + 1 + delays[2];
  for (int rank = 0; rank < p; ++rank)
    at(blocks, rank) = {steps.forward_down * rank, up + steps.forward_up * (p - 1 - rank), down + steps.gradient_down * rank,
                        back + steps.gradient_up * (p - 1 - rank)};
  return blocks;
}

// No two passes of a rank run at once, over all micro-batches.
bool are_apart(const Block& block) {
  std::array<bool, kPeriod> taken{};
  for (const int pass : block.passes()) {
    if (at(taken, pass % kPeriod)) return false;
    at(taken, pass % kPeriod) = true;
  }
  return true;
}

std::optional<std::vector<Block>> shortest_blocks(int p, const BlockSteps& steps) {
  for (int sum = 0; sum <= 3 * (kPeriod - 1); ++sum)
    for (int first = 0; first <= sum; ++first)
      for (int second = 0; second <= sum - first; ++second) {
        auto blocks = blocks_of(p, steps, {first, second, sum - first - second});
        if (std::all_of(blocks.begin(), blocks.end(), are_apart)) return blocks;
      }
  return std::nullopt;
}

// The begin of the two weight gradients: in what the period leaves free, each as soon as its input gradient has ended.
std::array<int, 2> weight_begins(const Block& block) {
  std::array<bool, kPeriod> taken{};
  for (const int pass : block.passes()) at(taken, pass % kPeriod) = true;
  const auto next_free = [&](int begin) {
    while (at(taken, begin % kPeriod)) ++begin;
    at(taken, begin % kPeriod) = true;
    return begin;
  };
  const int second = next_free(block.second_gradient + 1);
  return {second, next_free(block.first_gradient + 1)};
}

// The most micro-batches' activations that a rank holds when every block lies where it is drawn.
int peak_of(const Block& block, int num_micro_batches) {
  const auto [second_weight, first_weight] = weight_begins(block);
  struct Change {
    int time, change;
  };
  std::vector<Change> changes;
  for (int mb = 0; mb < num_micro_batches; ++mb) {
    const int shift = kPeriod * mb;
    changes.insert(changes.end(), {{block.first_forward + shift, 1},
                                   {block.second_forward + shift, 1},
                                   {second_weight + shift, -1},
                                   {first_weight + shift, -1}});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
  int now = 0, peak = 0;
  for (const Change& change : changes) peak = std::max(peak, now += change.change);
  return peak;
}

VOrder empty_order(int p, int m) {
  return {{{p, 2, m, std::vector<std::vector<Action>>(static_cast<std::size_t>(p))}, v_placement(p)}, 0};
}

}  // namespace

VOrder make_zb_v_order(int p, int m) {
  VOrder order = empty_order(p, m);
  order.limit = 2.0 * p;
  for (int rank = 0; rank < p; ++rank) {
    auto& actions = at(order.placed.schedule.ranks, rank);
    const std::array<int, 2> stages{rank, 2 * p - 1 - rank};
    std::array<int, 2> forwards{}, gradients{};
    const auto forward = [&](std::size_t of) {
      if (forwards[of] < m) actions.push_back({ActionKind::kForward, stages[of], forwards[of]++});
    };
    const auto gradient = [&](std::size_t of) {
      if (gradients[of] < forwards[of]) actions.push_back({ActionKind::kBackwardInput, stages[of], gradients[of]++});
    };
    for (int i = 0; i < 2 * (p - rank) - 1; ++i) forward(0);
    for (int i = 0; i < rank; ++i) forward(1), forward(0);
    for (int i = 0; i < p - rank; ++i) forward(1), gradient(1);
    while (forwards[0] < m || forwards[1] < m) forward(0), gradient(0), forward(1), gradient(1);
    while (gradients[0] < m || gradients[1] < m) gradient(0), gradient(1);
  }
  return order;
}

VOrder make_block_order(int p, int m, const BlockSteps& steps) {
  const auto blocks = shortest_blocks(p, steps);
  if (!blocks) throw ConfigError(fmt::format("this V-shaped schedule has no order for {} pipeline ranks; take another number", p));
  VOrder order = empty_order(p, m);
  for (int rank = 0; rank < p; ++rank) {
    const Block& block = at(*blocks, rank);
    struct Begin {
      int time;
      Action action;
    };
    std::vector<Begin> begins;
    const int first = rank, second = 2 * p - 1 - rank;
    for (int mb = 0; mb < m; ++mb) {
      const int shift = kPeriod * mb;
      begins.push_back({block.first_forward + shift, {ActionKind::kForward, first, mb}});
      begins.push_back({block.second_forward + shift, {ActionKind::kForward, second, mb}});
      begins.push_back({block.second_gradient + shift, {ActionKind::kBackwardInput, second, mb}});
      begins.push_back({block.first_gradient + shift, {ActionKind::kBackwardInput, first, mb}});
    }
    std::sort(begins.begin(), begins.end(), [](const Begin& a, const Begin& b) { return a.time < b.time; });
    for (const Begin& begin : begins) at(order.placed.schedule.ranks, rank).push_back(begin.action);
    order.limit = std::max(order.limit, static_cast<double>(peak_of(block, m)));
  }
  return order;
}

}  // namespace trident
