// Plots as documents, and the round numbers along their axes.
#include "report/svg_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/check.h"
#include "report/axis_ticks.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using Numbers = std::vector<double>;

// Every start tag has its end tag in the right order, no stray '<' or '&'.
std::string first_fault(std::string_view xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != xml.npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    if (end == xml.npos || xml.substr(at + 1, end - at - 1).find('<') != xml.npos) return fmt::format("tag at {} has no end", at);
    const std::string_view tag = xml.substr(at + 1, end - at - 1);
    const std::string name(tag.substr(0, tag.find_first_of(" /", 1)));
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name) return fmt::format("</{}> closes nothing", name);
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
  }
  for (std::size_t at = xml.find('&'); at != xml.npos; at = xml.find('&', at + 1))
    if (xml.find(';', at) > at + 6) return fmt::format("a stray ampersand at {}", at);
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

std::size_t occurrences(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

void expect_range(const NumberRange& range, double low, double high) {
  EXPECT_DOUBLE_EQ(range.low, low);
  EXPECT_DOUBLE_EQ(range.high, high);
}

TEST(AxisTicks, RangesEndAtRoundNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  expect_range(axis_range({3, 97, nan, infinity}, AxisScale::kLinear), 0, 100);
  expect_range(axis_range({95.2, 97}, AxisScale::kLinear), 95, 97);
  expect_range(axis_range({-3, 8}, AxisScale::kLinear), -4, 8);
  expect_range(axis_range({}, AxisScale::kLinear), 0, 1);
  expect_range(axis_range({0, 0}, AxisScale::kLinear), 0, 1);
  expect_range(axis_range({64, 4096, 0, -5}, AxisScale::kLog2), 64, 4096);
  expect_range(axis_range({60, 5000}, AxisScale::kLog2), 32, 8192);
  expect_range(axis_range({0.3}, AxisScale::kLog10), 0.1, 1);
  expect_range(axis_range({10}, AxisScale::kLog10), 10, 100);
  const NumberRange flat = axis_range({7, 7}, AxisScale::kLinear);
  EXPECT_LT(flat.low, 7);
  EXPECT_GT(flat.high, 7);
}

TEST(AxisTicks, AreRoundAndFew) {
  EXPECT_EQ(axis_ticks({0, 100}, AxisScale::kLinear, 6), (Numbers{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(axis_ticks({64, 4096}, AxisScale::kLog2, 8), (Numbers{64, 128, 256, 512, 1024, 2048, 4096}));
  EXPECT_EQ(axis_ticks({1, 1024}, AxisScale::kLog2, 6), (Numbers{1, 4, 16, 64, 256, 1024}));
  EXPECT_EQ(axis_ticks({1, 1000}, AxisScale::kLog10, 8), (Numbers{1, 10, 100, 1000}));
  for (const double high : {0.0123, 1.7, 33.0, 8.1e9}) {
    const std::size_t n = axis_ticks({0, high}, AxisScale::kLinear, 6).size();
    EXPECT_GE(n, 3u) << high;
    EXPECT_LE(n, 7u) << high;
  }
}

TEST(AxisTicks, PositionsFollowTheScale) {
  EXPECT_DOUBLE_EQ(axis_position(25, {0, 100}, AxisScale::kLinear), 0.25);
  EXPECT_DOUBLE_EQ(axis_position(128, {64, 1024}, AxisScale::kLog2), 0.25);
  EXPECT_DOUBLE_EQ(axis_position(10, {1, 100}, AxisScale::kLog10), 0.5);
}

TEST(AxisTicks, NumbersAreShort) {
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(4096), "4096");
  EXPECT_EQ(short_number(16384), "16384");
  EXPECT_EQ(short_number(1.5e6), "1.5M");
  EXPECT_EQ(short_number(-2.5e9), "-2.5G");
  EXPECT_EQ(short_number(1234.56), "1235");
}

LinePlot efficiency() {
  return {"Efficiency",
          "GPUs",
          "MFU, %",
          AxisScale::kLog2,
          AxisScale::kLinear,
          {{"zero1", {{64, 50}, {256, 40}, {4096, 20}}, Hue::kBlue, false, false, true},
           {"zero3", {{64, 45}, {4096, 10}}, Hue::kRed, true}},
          50.0,
          "wanted"};
}

TEST(SvgPlot, LinesLieWhereTheirNumbersSay) {
  const std::string svg = line_plot_svg(efficiency());
  EXPECT_EQ(first_fault(svg), "");
  // x from 66 to 700 over six doublings, y from 0 at the bottom to 50 over 300 pixels
  expect_parts(svg, {"d=\"M66.0 70.0L277.3 130.0L700.0 250.0\"", "class=\"line s7 dashed\" d=\"M66.0 100.0L700.0 310.0\""});
  EXPECT_EQ(occurrences(svg, "<circle"), 3u);
  expect_parts(svg, {">4096</text>"});
  // Four digits about the right end of the axis end on the page; wider ones are moved inwards.
  expect_parts(svg,
               {"<text x=\"700.0\" y=\"389.0\" class=\"middle\">4096</text>", "class=\"limit\"", "prefers-color-scheme: dark"});
}

TEST(SvgPlot, WhatHasNoPlaceLeavesAGap) {
  LinePlot plot{"t", "x", "y", AxisScale::kLinear, AxisScale::kLog10, {{"a", {{0, 1}, {1, 0}, {2, 10}, {3, NAN}, {4, 100}}}}};
  expect_parts(line_plot_svg(plot), {"d=\"M66.0 370.0M383.0 220.0M700.0 70.0\""});
  plot.lines[0].points = {{0, 1}, {2, 10}, {4, 100}};
  plot.lines[0].stepped = true;
  expect_parts(line_plot_svg(plot), {"d=\"M66.0 370.0L383.0 370.0L383.0 220.0L700.0 220.0L700.0 70.0\""});
  plot.lines = {};
  EXPECT_EQ(first_fault(line_plot_svg(plot)), "");
}

StackedBars memory() {
  return {
      "Memory", "GB",  {{"parameters", Hue::kBlue}, {"activations", Hue::kGreen}}, {{"stage 0", {10, 30}}, {"stage 1", {10, 0}}},
      80.0,     "card"};
}

TEST(SvgPlot, BarsAreAsLongAsTheirNumbers) {
  const std::string svg = stacked_bars_svg(memory());
  EXPECT_EQ(first_fault(svg), "");
  // From 76.2, 567.8 pixels for 80 GB.
  for (const char* bar :
       {"<rect x=\"76.2\" y=\"74.0\" width=\"71.0\"", "<rect x=\"147.2\" y=\"74.0\" width=\"212.9\"",
        "<rect x=\"76.2\" y=\"106.0\" width=\"71.0\"", "<title>stage 0, activations: 30 GB</title>", ">40 GB</text>"})
    EXPECT_NE(svg.find(bar), svg.npos) << bar << " in\n" << svg;
}

TEST(SvgPlot, NumbersOfTheAxisEndOnThePage) {
  LinePlot plot = efficiency();
  for (PlotLine& line : plot.lines)
    for (PlotPoint& point : line.points) point.x *= 16384;  // 67108864 is "67.11M"
  expect_parts(line_plot_svg(plot), {"<text x=\"696.2\" y=\"389.0\" class=\"middle\">67.11M</text>"});
}

// Parts that are too small to be drawn belong to the number all the same.
TEST(SvgPlot, TheNumberBesideABarIsThatOfAllItsParts) {
  StackedBars bars = memory();
  bars.bars[0].all = 41;
  expect_parts(stacked_bars_svg(bars), {">41 GB</text>"});
  EXPECT_EQ(stacked_bars_svg(bars).find(">40 GB</text>"), std::string::npos);
}

TEST(SvgPlot, ForeignTextStaysText) {
  const std::string hostile = "</title><script>alert('1')</script>&";
  LinePlot plot = efficiency();
  plot.title = plot.x_label = plot.y_label = plot.limit_name = plot.lines[0].name = hostile;
  StackedBars bars = memory();
  bars.title = bars.unit = bars.limit_name = bars.parts[0].name = bars.bars[0].name = hostile;
  for (const std::string& svg : {line_plot_svg(plot), stacked_bars_svg(bars)}) {
    EXPECT_EQ(first_fault(svg), "");
    EXPECT_EQ(svg.find("<script"), svg.npos);
  }
}

TEST(SvgPlot, RefusesWhatDoesNotFitTogether) {
  LinePlot plot = efficiency();
  plot.lines[0].name = "";
  EXPECT_THROW(line_plot_svg(plot), InternalError);
  StackedBars bars = memory();
  bars.bars[0].values.push_back(1);
  EXPECT_THROW(stacked_bars_svg(bars), InternalError);
}

}  // namespace
}  // namespace trident
