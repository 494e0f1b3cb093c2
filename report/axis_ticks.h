// Round numbers along an axis.
#pragma once

#include <string>
#include <vector>

#include "core/number_range.h"
#include "report/plot.h"

namespace trident {

// The range of the values, rounded outwards to ticks: low < high, of logarithms both > 0. Linear ones hold 0 where the values come
// near it. No usable value: [0, 1] or [1, 10].
NumberRange axis_range(const std::vector<double>& values, AxisScale scale);

// At most about `most` of them, within the range.
std::vector<double> axis_ticks(const NumberRange& range, AxisScale scale, int most);

// From 0 at low to 1 at high.
double axis_position(double value, const NumberRange& range, AxisScale scale);

// "0.25", "4096", "1.5M", "2e-06": four significant digits.
std::string short_number(double value);

}  // namespace trident
