#include "planner/bench/step_overheads.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/check.h"

namespace trident {

double seconds_of_each(std::span<const StepSum> sums, double StepSum::*of) {
  double bb = 0, by = 0;
  for (const StepSum& s : sums) {
    const double b = s.*of / s.measured, y = (s.measured - s.priced) / s.measured;
    bb += b * b, by += b * y;
  }
  return bb > 0 ? std::max(by / bb, 0.0) : 0;
}

double median_of_each(std::span<const StepSum> sums, double StepSum::*of) {
  std::vector<double> each;
  for (const StepSum& s : sums)
    if (s.*of > 0) each.push_back((s.measured - s.priced) / s.*of);
  if (each.empty()) return 0;
  std::ranges::sort(each);
  const std::size_t middle = each.size() / 2;
  return std::max(each.size() % 2 == 1 ? each[middle] : (each[middle - 1] + each[middle]) / 2, 0.0);
}

std::pair<double, double> seconds_of_each(std::span<const StepSum> sums, double StepSum::*first, double StepSum::*second) {
  if (sums.empty()) return {0, 0};
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
  for (const StepSum& s : sums) {
    const double a = s.*first / s.measured, b = s.*second / s.measured, y = (s.measured - s.priced) / s.measured;
    aa += a * a, ab += a * b, bb += b * b, ay += a * y, by += b * y;
  }
  const double determinant = aa * bb - ab * ab;
  TRIDENT_CHECK(determinant > 1e-12 * aa * bb, "what {} steps count twice is in proportion: determinant {} of {} x {}", sums.size(),
                determinant, aa, bb);
  const double of_first = (bb * ay - ab * by) / determinant, of_second = (aa * by - ab * ay) / determinant;
  if (of_first < 0) return {0, seconds_of_each(sums, second)};
  if (of_second < 0) return {seconds_of_each(sums, first), 0};
  return {of_first, of_second};
}

}  // namespace trident
