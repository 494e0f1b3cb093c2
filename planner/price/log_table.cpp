#include "planner/price/log_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace trident {
namespace {

constexpr std::size_t kMostAxes = 3;

// Where a size lies on an axis: between `low` and the point after it, `share` of the way in logarithms.
struct Place {
  std::size_t low = 0;
  double share = 0;
};

Place place_on(const std::vector<double>& axis, double size) {
  if (axis.size() == 1 || size <= axis.front()) return {};
  if (size >= axis.back()) return {axis.size() - 2, 1};
  const auto above = static_cast<std::size_t>(std::upper_bound(axis.begin(), axis.end(), size) - axis.begin());
  return {above - 1, std::log(size / axis[above - 1]) / std::log(axis[above] / axis[above - 1])};
}

}  // namespace

LogTable::LogTable(std::vector<std::vector<double>> axes, std::vector<double> values, std::vector<double> beyond)
    : axes_(std::move(axes)), values_(std::move(values)), beyond_(std::move(beyond)) {
  TRIDENT_CHECK(!axes_.empty() && axes_.size() <= kMostAxes && axes_.size() == beyond_.size(), "a table of {} axes and {} powers",
                axes_.size(), beyond_.size());
  std::size_t points = 1;
  for (const std::vector<double>& axis : axes_) {
    TRIDENT_CHECK(!axis.empty() && axis.front() > 0 && std::ranges::adjacent_find(axis, std::greater_equal<>()) == axis.end(),
                  "an axis of a table does not ascend from above 0");
    points *= axis.size();
  }
  TRIDENT_CHECK(points == values_.size(), "a table of {} points has {} values", points, values_.size());
  TRIDENT_CHECK(std::ranges::all_of(values_, [](double value) { return value > 0; }), "a value of a table is not above 0");
}

double LogTable::at(std::span<const double> sizes) const {
  TRIDENT_CHECK(sizes.size() == axes_.size(), "{} sizes for a table of {} axes", sizes.size(), axes_.size());
  std::array<Place, kMostAxes> places{};
  double beyond = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    places[a] = place_on(axes_[a], sizes[a]);
    if (sizes[a] > axes_[a].back()) beyond += beyond_[a] * std::log(sizes[a] / axes_[a].back());
  }
  double sum = 0;
  for (std::size_t corner = 0; corner < std::size_t{1} << axes_.size(); ++corner) {
    double weight = 1;
    std::size_t index = 0;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      const bool upper = (corner >> a & 1U) != 0;
      weight *= upper ? places[a].share : 1 - places[a].share;
      index = index * axes_[a].size() + std::min(places[a].low + (upper ? 1 : 0), axes_[a].size() - 1);
    }
    if (weight > 0) sum += weight * std::log(values_[index]);
  }
  return std::exp(sum + beyond);
}

void fall_to_larger(const std::vector<std::vector<double>>& axes, std::vector<double>& values) {
  std::size_t stride = 1;
  for (std::size_t a = axes.size(); a-- > 0;) {
    const std::size_t points = axes[a].size();
    for (std::size_t i = values.size(); i-- > 0;) {
      if (i / stride % points + 1 < points) values[i] = std::min(values[i], values[i + stride]);
    }
    stride *= points;
  }
}

}  // namespace trident
