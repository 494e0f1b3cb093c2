// Pictures as values: what is drawn, not how. svg_plot.h makes documents of them, report_page.h parts of a page.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/named_enum.h"
#include "core/number_range.h"
#include "report/palette.h"

namespace trident {

enum class AxisScale : std::uint8_t { kLinear, kLog2, kLog10 };  // of logarithms only values > 0 are drawn
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<AxisScale>{"linear", "log2", "log10"};

struct PlotPoint {
  double x = 0, y = 0;
};

struct PlotLine {
  std::string name;
  std::vector<PlotPoint> points;  // by rising x; one that is not finite leaves a gap
  Hue hue = Hue::kBlue;
  bool dashed = false;
  bool stepped = false;  // the value holds until the next point
  bool marked = false;   // with a dot at each point
  std::vector<double> other_x = {};  // of each point, where the plot has another x axis
};

struct LinePlot {
  std::string title, x_label, y_label;  // labels with their units
  AxisScale x_scale = AxisScale::kLinear, y_scale = AxisScale::kLinear;
  std::vector<PlotLine> lines;
  std::optional<double> limit = {};  // a horizontal line
  std::string limit_name = {};
  std::string other_x_label = {};  // readers of a page may take this axis; "": there is one alone
};

struct StackedBars {
  struct Bar {
    std::string name;
    std::vector<double> values;  // >= 0, by part
    std::optional<double> all = {};  // the number beside the bar, where parts too small to be drawn belong to it; else their sum
  };
  static double number_of(const Bar& bar) {
    return bar.all ? *bar.all : std::accumulate(bar.values.begin(), bar.values.end(), 0.0);
  }
  std::string title, unit;
  std::vector<LegendKey> parts;
  std::vector<Bar> bars;
  std::optional<double> limit = {};  // what a bar should not exceed
  std::string limit_name = {};
};

// The range of the values, rounded outwards to ticks: low < high, of logarithms both > 0. Linear ones hold 0 where the values come
// near it. No usable value: [0, 1] or [1, 10].
NumberRange axis_range(const std::vector<double>& values, AxisScale scale);

// At most about `most` of them, within the range.
std::vector<double> axis_ticks(const NumberRange& range, AxisScale scale, int most);

// From 0 at low to 1 at high.
double axis_position(double value, const NumberRange& range, AxisScale scale);

// "0.25", "4,096", "1.5M", "2e-06": four significant digits, and all of a whole part below a million.
std::string short_number(double value);

}  // namespace trident
