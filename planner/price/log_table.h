// Measured times over one or more sizes, and what lies between: linear in the logarithms of both.
#pragma once

#include <span>
#include <vector>

namespace trident {

// A grid of positive values. Between its points they are interpolated, so that a power law is met exactly; below the first point of
// an axis they stay what they are there (what a call costs whatever its size), beyond the last one they grow with the power
// `beyond` of that axis. Where the values do not fall along any axis, neither does at().
class LogTable {
 public:
  LogTable() = default;
  // Axes ascend strictly and are positive; values are positive, one for each point, the last axis running fastest; `beyond` has a
  // power for each axis. InternalError otherwise.
  LogTable(std::vector<std::vector<double>> axes, std::vector<double> values, std::vector<double> beyond);

  double at(std::span<const double> sizes) const;
  double at(double size) const { return at(std::span<const double>(&size, 1)); }

  const std::vector<std::vector<double>>& axes() const { return axes_; }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<std::vector<double>> axes_;
  std::vector<double> values_, beyond_;
};

// Makes times rise with sizes: a point above one of a larger size was disturbed while it was measured, and gets that one's
// value. `values` as LogTable has them.
void fall_to_larger(const std::vector<std::vector<double>>& axes, std::vector<double>& values);

}  // namespace trident
