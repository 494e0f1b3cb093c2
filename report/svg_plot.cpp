#include "report/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "core/check.h"
#include "report/markup.h"

namespace trident {
namespace {

constexpr double kWidth = 720, kTop = 44, kLeft = 66, kRight = 20, kPlotHeight = 300, kCharWidth = 6.6, kLegendLine = 18;
constexpr double kMargin = 4;  // that words keep from the edge of the page

constexpr std::string_view kStyle = R"css(
  text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; font-size: 12px; fill: #57606a }
  .page { fill: #ffffff } .title { fill: #1f2328; font-weight: 600; font-size: 15px } .name { fill: #1f2328 }
  .middle { text-anchor: middle } .end { text-anchor: end }
  .grid { stroke: #d8dee4; stroke-width: 1 } .axis { stroke: #8c959f } .limit { stroke: #cf3b3b; stroke-dasharray: 5 4 }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round } .dashed { stroke-dasharray: 6 4 }
)css";

// Colours by class: "s3" strokes, "f3" fills.
std::string style() {
  std::string light, dark;
  for (std::size_t hue = 0; hue < kNumHues; ++hue) {
    light += fmt::format("  .s{0} {{ stroke: {1} }} .f{0} {{ fill: {1} }}\n", hue, kHueColors[hue].light);
    dark += fmt::format("    .s{0} {{ stroke: {1} }} .f{0} {{ fill: {1} }}\n", hue, kHueColors[hue].dark);
  }
  return fmt::format(
      "<style>{}{}  @media (prefers-color-scheme: dark) {{\n    text {{ fill: #9198a1 }} .page {{ fill: #0d1117 }} "
      ".title, .name {{ fill: #e6edf3 }} .grid {{ stroke: #2a313a }} .axis {{ stroke: #6e7681 }}\n{}  }}\n</style>\n",
      kStyle, light, dark);
}

class Document {
 public:
  void text(double x, double y, std::string_view style, std::string_view words, std::string_view attributes = "") {
    body_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\"{}>{}</text>\n", x, y, style, attributes, html_escaped(words));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view style) {
    body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2, style);
  }
  void rect(double x, double y, double width, double height, Hue hue, std::string_view tip = "") {
    body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"f{}\"", x, y, width, height,
                         static_cast<int>(hue));
    body_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", html_escaped(tip));
  }
  void add(std::string_view markup) { body_ += markup; }

  // Coloured squares with names from `top` on, as many to a line as fit. Returns where the next line would be.
  double legend(const std::vector<LegendKey>& keys, double left, double top) {
    double x = left;
    for (const LegendKey& key : keys) {
      const double width = 17 + kCharWidth * static_cast<double>(key.name.size()) + 14;
      if (x > left && x + width > kWidth - kRight) x = left, top += kLegendLine;
      rect(x, top - 10, 12, 12, key.hue);
      text(x + 17, top, "", key.name);
      x += width;
    }
    return top + kLegendLine;
  }

  std::string finish(double height, std::string_view title) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "role=\"img\">\n<title>{2}</title>\n{3}<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\" rx=\"8\"/>\n"
        "{4}</svg>\n",
        kWidth, height, html_escaped(title), style(), body_);
  }

 private:
  std::string body_;
};

bool is_drawn(const PlotPoint& point, const LinePlot& plot) {
  return std::isfinite(point.x) && std::isfinite(point.y) && (plot.x_scale == AxisScale::kLinear || point.x > 0) &&
         (plot.y_scale == AxisScale::kLinear || point.y > 0);
}

// Where values lie on the page.
class PlotArea {
 public:
  PlotArea(const LinePlot& plot, double top) : plot_(plot), top_(top) {
    std::vector<double> xs, ys;
    for (const PlotLine& line : plot.lines) {
      for (const PlotPoint& point : line.points)
        if (is_drawn(point, plot)) xs.push_back(point.x), ys.push_back(point.y);
    }
    if (plot.limit) ys.push_back(*plot.limit);
    x_ = axis_range(xs, plot.x_scale);
    if (!xs.empty() && plot.x_scale == AxisScale::kLinear) {  // time has no room before its first point
      const auto [low, high] = std::minmax_element(xs.begin(), xs.end());
      if (*low < *high) x_ = {*low, *high};
    }
    y_ = axis_range(ys, plot.y_scale);
  }
  double x(double value) const { return kLeft + (kWidth - kLeft - kRight) * axis_position(value, x_, plot_.x_scale); }
  double y(double value) const { return top_ + kPlotHeight * (1 - axis_position(value, y_, plot_.y_scale)); }
  double bottom() const { return top_ + kPlotHeight; }

  void draw_axes(Document& page) const {
    for (const double tick : axis_ticks(y_, plot_.y_scale, 6)) {
      page.line(kLeft, y(tick), kWidth - kRight, y(tick), "grid");
      page.text(kLeft - 7, y(tick) + 4, "end", short_number(tick));
    }
    for (const double tick : axis_ticks(x_, plot_.x_scale, 8)) {
      page.line(x(tick), bottom(), x(tick), bottom() + 5, "axis");
      const std::string number = short_number(tick);
      const double half = kCharWidth / 2 * static_cast<double>(number.size());
      page.text(std::min(x(tick), kWidth - kMargin - half), bottom() + 19, "middle", number);
    }
    page.line(kLeft, bottom(), kWidth - kRight, bottom(), "axis");
    page.text((kLeft + kWidth - kRight) / 2, bottom() + 38, "middle", plot_.x_label);
    const double middle = top_ + kPlotHeight / 2;
    page.text(16, middle, "middle", plot_.y_label, fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", middle));
  }

  void draw(const PlotLine& line, Document& page) const {
    const int hue = static_cast<int>(line.hue);
    std::string path;
    double before = 0;
    bool drawing = false;
    for (const PlotPoint& point : line.points) {
      if (!is_drawn(point, plot_)) {
        drawing = false;
        continue;
      }
      if (drawing && line.stepped) path += fmt::format("L{:.1f} {:.1f}", x(point.x), before);
      path += fmt::format("{}{:.1f} {:.1f}", drawing ? "L" : "M", x(point.x), y(point.y));
      before = y(point.y), drawing = true;
    }
    page.add(fmt::format("<path class=\"line s{}{}\" d=\"{}\"/>\n", hue, line.dashed ? " dashed" : "", path));
    if (!line.marked) return;
    for (const PlotPoint& point : line.points) {
      if (!is_drawn(point, plot_)) continue;
      page.add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" class=\"f{}\"><title>{}</title></circle>\n", x(point.x),
                           y(point.y), hue,
                           html_escaped(fmt::format("{}: {}, {}", line.name, short_number(point.x), short_number(point.y)))));
    }
  }

 private:
  const LinePlot& plot_;
  double top_;
  NumberRange x_, y_;
};

}  // namespace

std::string line_plot_svg(const LinePlot& plot) {
  Document page;
  page.text(kLeft, 28, "title", plot.title);
  std::vector<LegendKey> keys;
  for (const PlotLine& line : plot.lines) {
    TRIDENT_CHECK(!line.name.empty(), "a line of plot {} has no name", in_quotes(plot.title));
    keys.push_back({line.name, line.hue});
  }
  const double top = keys.empty() ? kTop : page.legend(keys, kLeft, kTop + 8);
  const PlotArea area(plot, top);
  area.draw_axes(page);
  for (const PlotLine& line : plot.lines) area.draw(line, page);
  if (plot.limit) {
    page.line(kLeft, area.y(*plot.limit), kWidth - kRight, area.y(*plot.limit), "limit");
    page.text(kWidth - kRight, area.y(*plot.limit) - 5, "end name", plot.limit_name);
  }
  return page.finish(area.bottom() + 52, plot.title);
}

std::string stacked_bars_svg(const StackedBars& bars) {
  constexpr double kBar = 22, kPitch = 32, kTotal = 76;
  Document page;
  page.text(20, 28, "title", bars.title);
  double top = page.legend(bars.parts, 20, kTop + 8) + 4;
  double longest = bars.limit.value_or(0), names = 0;
  for (const StackedBars::Bar& bar : bars.bars) {
    TRIDENT_CHECK(bar.values.size() == bars.parts.size(), "{} values of {} parts", bar.values.size(), bars.parts.size());
    longest = std::max(longest, std::accumulate(bar.values.begin(), bar.values.end(), 0.0));
    names = std::max(names, kCharWidth * static_cast<double>(bar.name.size()));
  }
  const double left = 20 + std::min(names, 200.0) + 10, scale = longest > 0 ? (kWidth - left - kTotal) / longest : 0;
  const double first = top;
  for (const StackedBars::Bar& bar : bars.bars) {
    double x = left;
    page.text(left - 8, top + 15, "end name", bar.name);
    for (std::size_t part = 0; part < bar.values.size(); ++part) {
      const double width = scale * bar.values[part];
      if (!(width > 0)) continue;
      page.rect(x, top, width, kBar, bars.parts[part].hue,
                fmt::format("{}, {}: {} {}", bar.name, bars.parts[part].name, short_number(bar.values[part]), bars.unit));
      x += width;
    }
    page.text(x + 7, top + 15, "", fmt::format("{} {}", short_number(StackedBars::number_of(bar)), bars.unit));
    top += kPitch;
  }
  if (bars.limit) {
    const double x = left + scale * *bars.limit;
    page.line(x, first - 4, x, top - 6, "limit");
    page.text(x, top + 8, "end name", fmt::format("{}: {} {}", bars.limit_name, short_number(*bars.limit), bars.unit));
    top += 14;
  }
  return page.finish(top + 10, bars.title);
}

}  // namespace trident
