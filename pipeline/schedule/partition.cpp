#include "pipeline/schedule/partition.h"

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

#include "core/at.h"
#include "core/check.h"
#include "core/counted.h"

namespace trident {
namespace {

void require_a_block_per_stage(int num_layers, int pipeline, int virtual_stages) {
  TRIDENT_CHECK(pipeline >= 1 && virtual_stages >= 1, "pipeline {} x virtual_stages {}", pipeline, virtual_stages);
  if (num_layers >= pipeline * virtual_stages) return;
  throw ConfigError(fmt::format(
      "model layers = {}: fewer than parallel.pipeline = {} x parallel.virtual_stages = {} stages, and each needs at least one; "
      "use a product of at most {}", num_layers, pipeline, virtual_stages, num_layers));
}

UnitsOfStage units_from_counts(std::span<const int> blocks_of_stage) {
  UnitsOfStage stages(blocks_of_stage.size());
  int unit = 0;
  stages.front().push_back(unit++);
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (int i = 0; i < blocks_of_stage[s]; ++i) stages[s].push_back(unit++);
  stages.back().push_back(unit);
  return stages;
}

// Splits L blocks over S stages. Both goals have the form "fold the stage costs": best[s][b] is the best fold over the stages
// s..S-1 when they run the blocks b..L-1. Working from the back lets the first stages take the smallest of equal choices.
class BalancedSplit {
 public:
  BalancedSplit(std::span<const double> unit_costs, int num_stages)
      : num_layers_(static_cast<int>(unit_costs.size()) - 2), num_stages_(num_stages), prefix_(1, 0.0) {
    for (int block = 1; block <= num_layers_; ++block) prefix_.push_back(prefix_.back() + at(unit_costs, block));
    embedding_ = unit_costs.front();
    head_ = unit_costs.back();
  }

  std::vector<int> run() const {
    const Table least_maximum = solve([](double cost, double rest) { return std::max(cost, rest); });
    const double limit = best_at(least_maximum, 0, 0);
    const Table least_squares = solve([&](double cost, double rest) { return cost > limit ? kImpossible : cost * cost + rest; });

    std::vector<int> counts;
    for (int stage = 0, block = 0; stage < num_stages_; ++stage) {
      int count = 1;
      while (fold_squares(stage, block, count, limit, least_squares) != best_at(least_squares, stage, block)) ++count;
      counts.push_back(count);
      block += count;
    }
    return counts;
  }

 private:
  using Table = std::vector<double>;
  static constexpr double kImpossible = std::numeric_limits<double>::infinity();

  double best_at(const Table& best, int stage, int block) const { return at(best, stage * (num_layers_ + 1) + block); }
  double cost(int stage, int block, int count) const {
    return at(prefix_, block + count) - at(prefix_, block) + (stage == 0 ? embedding_ : 0.0) +
           (stage == num_stages_ - 1 ? head_ : 0.0);
  }
  double fold_squares(int stage, int block, int count, double limit, const Table& best) const {
    const double c = cost(stage, block, count);
    return c > limit ? kImpossible : c * c + best_at(best, stage + 1, block + count);
  }

  template <class Fold> Table solve(Fold fold) const {
    Table best(static_cast<std::size_t>((num_stages_ + 1) * (num_layers_ + 1)), kImpossible);
    best.back() = 0;  // no stage left, no block left
    for (int stage = num_stages_ - 1; stage >= 0; --stage)
      for (int block = 0; block < num_layers_; ++block) {
        double& least = at(best, stage * (num_layers_ + 1) + block);
        for (int count = 1; block + count <= num_layers_; ++count) {
          const double rest = best_at(best, stage + 1, block + count);
          if (rest != kImpossible) least = std::min(least, fold(cost(stage, block, count), rest));
        }
      }
    return best;
  }

  int num_layers_, num_stages_;
  std::vector<double> prefix_;  // prefix_[b]: cost of the first b blocks
  double embedding_ = 0, head_ = 0;
};

}  // namespace

UnitsOfStage partition_balanced(std::span<const double> unit_costs, int pipeline, int virtual_stages) {
  const int num_layers = static_cast<int>(unit_costs.size()) - 2;
  require_a_block_per_stage(num_layers, pipeline, virtual_stages);
  return units_from_counts(BalancedSplit(unit_costs, pipeline * virtual_stages).run());
}

UnitsOfStage partition_explicit(std::span<const std::int64_t> layers, int num_layers, int pipeline, int virtual_stages) {
  require_a_block_per_stage(num_layers, pipeline, virtual_stages);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("parallel.layers = [{}]: {}; give {} of at least 1 that add up to the model's {}, "
                                  "or null for a balanced split", fmt::join(layers, ", "), why,
                                  counted(pipeline * virtual_stages, "count"), counted(num_layers, "layer")));
  };
  if (static_cast<int>(layers.size()) != pipeline * virtual_stages)
    refuse(fmt::format("{} for parallel.pipeline = {} x parallel.virtual_stages = {}", counted(std::ssize(layers), "count"), pipeline,
                       virtual_stages));
  std::vector<int> counts;
  std::int64_t left = num_layers;  // compared before every subtraction: absurd counts cannot overflow
  for (const std::int64_t count : layers) {
    if (count < 1) refuse(fmt::format("{} is less than 1", count));
    if (count > left) refuse("the sum is too large");
    left -= count;
    counts.push_back(static_cast<int>(count));
  }
  if (left != 0) refuse(fmt::format("the sum is {}", num_layers - left));
  return units_from_counts(counts);
}

}  // namespace trident
