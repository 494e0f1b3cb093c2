#include "planner/study/study_plot.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/counted.h"
#include "planner/study/study_table.h"
#include "report/report_page.h"
#include "report/svg_plot.h"

namespace trident {
namespace {

std::string line_name(const StudyResult& result, const StudyRow& row) {
  const std::string name = row_name(result.spec, row.point);
  return name.empty() ? "all" : name;
}

template <class Value>
LinePlot over_gpus(const StudyResult& result, const std::string& title, const std::string& label, Value value) {
  LinePlot plot{.title = title, .x_label = result.counted_as + "s", .y_label = label, .x_scale = AxisScale::kLog2, .lines = {}};
  for (const StudyRow& row : result.rows) {
    if (!row.possible()) continue;
    const std::string name = line_name(result, row);
    auto line = std::find_if(plot.lines.begin(), plot.lines.end(), [&](const PlotLine& l) { return l.name == name; });
    if (line == plot.lines.end()) {
      plot.lines.push_back({.name = name, .points = {}, .hue = hue_of(plot.lines.size()), .marked = true});
      line = plot.lines.end() - 1;
    }
    line->points.push_back({static_cast<double>(row.gpus), value(row)});  // rows have rising gpus within a line
  }
  return plot;
}

LinePlot efficiency_plot(const StudyResult& result) {
  return over_gpus(result, fmt::format("Efficiency, {} scaling", to_string(result.spec.scaling)),
                   fmt::format("tokens/s a {} over the smallest", result.counted_as),
                   [](const StudyRow& row) { return row.efficiency; });
}

StackedBars time_bars(const StudyResult& result) {
  StackedBars bars{.title = "Time of a step by part", .unit = "s", .parts = {}, .bars = {}};
  std::vector<std::size_t> used;
  for (std::size_t part = 0; part < kNumTimeParts; ++part) {
    if (!std::any_of(result.rows.begin(), result.rows.end(),
                     [part](const StudyRow& row) { return row.possible() && row.parts.seconds[part] > 5e-4 * row.seconds; }))
      continue;
    used.push_back(part);
    bars.parts.push_back({std::string(to_string(static_cast<TimePart>(part))), hue_of(part)});
  }
  for (const StudyRow& row : result.rows) {
    if (!row.possible()) continue;
    const std::string name = row_name(result.spec, row.point);
    StackedBars::Bar bar{name.empty() ? counted(row.gpus, result.counted_as)
                         : result.spec.varies_gpus() ? fmt::format("{}, {}", name, counted(row.gpus, result.counted_as))
                                                     : name,
                         {}};
    bar.all = row.seconds;
    for (const std::size_t part : used) bar.values.push_back(row.parts.seconds[part]);
    bars.bars.push_back(std::move(bar));
  }
  return bars;
}

void require_rows(const StudyResult& result) {
  if (!result.any_possible())
    throw ConfigError(fmt::format("nothing to draw: no point of the study can be: {}; vary other values", reasons_text(result)));
}

}  // namespace

std::string study_svg(const StudyResult& result) {
  require_rows(result);
  return result.spec.varies_gpus() ? line_plot_svg(efficiency_plot(result)) : stacked_bars_svg(time_bars(result));
}

std::string study_html(const StudyResult& result) {
  require_rows(result);
  ReportPage page{.title = result.spec.title.empty() ? "Study" : result.spec.title,
                  .subtitle = "prices of: " + result.hardware,
                  .sections = {}};
  ReportSection what{.title = "What is compared", .blocks = {}};
  for (const std::string& sentence : result.held) what.blocks.push_back(Paragraph{sentence});
  if (!result.causes.empty()) what.blocks.push_back(BulletList{result.causes});
  page.sections.push_back(std::move(what));
  ReportSection pictures{.title = "Pictures", .blocks = {}};
  if (result.spec.varies_gpus()) {
    pictures.blocks.push_back(efficiency_plot(result));
    LinePlot speed = over_gpus(result, "Throughput", "tokens/s", [](const StudyRow& row) { return row.tokens_per_second(); });
    speed.y_scale = AxisScale::kLog10;
    pictures.blocks.push_back(std::move(speed));
  }
  pictures.blocks.push_back(time_bars(result));
  page.sections.push_back(std::move(pictures));
  page.sections.push_back({.title = "Numbers", .blocks = {table_of(result)}});
  return to_html(page);
}

}  // namespace trident
