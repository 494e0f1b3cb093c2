#include "report/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/number_text.h"

namespace trident {
namespace {

// 1, 2 or 5 times a power of ten, of which at most `most` fit into `span`.
double round_step(double span, int most) {
  const double raw = span / most, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

double base_of(AxisScale scale) { return scale == AxisScale::kLog2 ? 2 : 10; }
double logarithm(double value, AxisScale scale) { return scale == AxisScale::kLog2 ? std::log2(value) : std::log10(value); }

}  // namespace

NumberRange axis_range(const std::vector<double>& values, AxisScale scale) {
  const bool logarithmic = scale != AxisScale::kLinear;
  std::vector<double> used;
  for (const double value : values)
    if (std::isfinite(value) && (!logarithmic || value > 0)) used.push_back(value);
  if (used.empty()) return logarithmic ? NumberRange{1, 10} : NumberRange{0, 1};
  const auto [least, most] = std::minmax_element(used.begin(), used.end());
  double low = *least, high = *most;
  if (logarithmic) {
    low = std::floor(logarithm(low, scale) + 1e-9), high = std::ceil(logarithm(high, scale) - 1e-9);
    if (high <= low) high = low + 1;
    return {std::pow(base_of(scale), low), std::pow(base_of(scale), high)};
  }
  if (low > 0 && low < 0.6 * high) low = 0;
  if (high < 0 && high > 0.6 * low) high = 0;
  if (high == low) {
    high += low == 0 ? 1 : std::abs(low) / 2;
    low -= std::abs(low) / 2;
  }
  const double step = round_step(high - low, 6);
  return {step * std::floor(low / step + 1e-9), step * std::ceil(high / step - 1e-9)};
}

std::vector<double> axis_ticks(const NumberRange& range, AxisScale scale, int most) {
  std::vector<double> ticks;
  if (scale == AxisScale::kLinear) {
    const double step = round_step(range.high - range.low, most);
    const double first = std::ceil(range.low / step - 1e-9), last = std::floor(range.high / step + 1e-9);
    for (double n = first; n <= last; ++n) ticks.push_back(n == 0 ? 0 : n * step);
    return ticks;
  }
  const double first = std::ceil(logarithm(range.low, scale) - 1e-9), last = std::floor(logarithm(range.high, scale) + 1e-9);
  const double stride = std::max(1.0, std::ceil((last - first + 1) / most));
  for (double n = first; n <= last; n += stride) ticks.push_back(std::pow(base_of(scale), n));
  return ticks;
}

double axis_position(double value, const NumberRange& range, AxisScale scale) {
  if (scale == AxisScale::kLinear) return (value - range.low) / (range.high - range.low);
  return std::log(value / range.low) / std::log(range.high / range.low);
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e15) return fmt::format("{:.4g}", value);
  for (const auto& [from, unit, suffix] : {std::tuple(1e12, 1e12, "T"), std::tuple(1e9, 1e9, "G"), std::tuple(1e6, 1e6, "M")})
    if (size >= from) return fmt::format("{:.4g}{}", value / unit, suffix);
  return size >= 1e3 ? with_commas(std::llround(value)) : fmt::format("{:.4g}", value);
}

}  // namespace trident
