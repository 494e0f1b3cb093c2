#include "report/run_curves.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "report/records.h"

namespace trident {
namespace {

// The tokens that the run had trained on at a step, between the lines of its log on a straight line.
double tokens_at(const RunFolder& run, double step) {
  const auto after = std::ranges::find_if(run.metrics, [&](const JsonValue& record) { return number(record, "step") >= step; });
  if (after == run.metrics.end()) return kNone;
  const double step_1 = number(*after, "step"), tokens_1 = number(*after, "tokens");
  const bool is_first = after == run.metrics.begin();
  const double step_0 = is_first ? 0 : number(*(after - 1), "step"), tokens_0 = is_first ? 0 : number(*(after - 1), "tokens");
  return step_1 == step_0 ? tokens_1 : tokens_0 + (tokens_1 - tokens_0) * (step - step_0) / (step_1 - step_0);
}

// A line of each run that has the value.
void add_lines(LinePlot& plot, const std::vector<RunFolder>& runs, std::string_view name,
               std::vector<JsonValue> RunFolder::*records, std::string_view key, Hue hue, bool dashed) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunFolder& run = runs[r];
    if (!has(run.*records, key)) continue;
    PlotLine& line = plot.lines.emplace_back();
    line.name = runs.size() == 1 ? std::string(name) : fmt::format("{}, {}", run.name, name);
    line.hue = runs.size() == 1 ? hue : hue_of(r);
    line.dashed = dashed;
    for (const JsonValue& record : run.*records) {
      const double step = number(record, "step"), tokens = number(record, "tokens");
      line.points.push_back({step, number(record, key)});
      line.other_x.push_back(std::isfinite(tokens) ? tokens : tokens_at(run, step));
    }
    line.marked = line.points.size() <= 30;
  }
}

// A dot on the curve where a later start began.
void add_starts(LinePlot& plot, const RunFolder& run) {
  std::set<double> steps;
  for (const JsonValue& start : run.run.items_at("starts"))
    if (const double step = number(start, "step"); step > 0) steps.insert(step);
  PlotLine line{.name = "a new start", .points = {}, .hue = Hue::kPurple, .marked = true};
  for (const double step : steps) {
    const auto at = std::ranges::find_if(run.metrics, [&](const JsonValue& record) { return number(record, "step") > step; });
    const double x = at == run.metrics.end() ? kNone : number(*at, "step");
    if (!std::isfinite(x) || (!line.points.empty() && line.points.back().x == x)) continue;
    const double gap = (step + x) / 2;  // no line from dot to dot
    line.points.insert(line.points.end(), {{gap, kNone}, {x, number(*at, "loss")}});
    line.other_x.insert(line.other_x.end(), {tokens_at(run, gap), tokens_at(run, x)});
  }
  if (!line.points.empty()) plot.lines.push_back(std::move(line));
}

}  // namespace

ReportSection curves_section(const std::vector<RunFolder>& runs) {
  const bool learns_from_pairs = std::ranges::any_of(runs, [](const RunFolder& run) { return has(run.metrics, "margin"); });
  ReportSection section{"Curves", {}};
  const auto add = [&](const std::string& title, const std::string& unit, std::string_view name, std::string_view key, Hue hue,
                       std::string_view of_evaluations = "") {
    LinePlot plot;
    plot.title = title, plot.x_label = "step", plot.other_x_label = "tokens", plot.y_label = unit;
    add_lines(plot, runs, name, &RunFolder::metrics, key, hue, false);
    add_lines(plot, runs, "validation", &RunFolder::evals, of_evaluations, Hue::kOrange, runs.size() > 1);
    if (runs.size() == 1 && key == "loss") add_starts(plot, runs.front());
    if (!plot.lines.empty()) section.blocks.emplace_back(std::move(plot));
  };
  add("Loss", learns_from_pairs ? "per pair" : "nats per token", "training", "loss", Hue::kBlue, "valid_loss");
  add("Token accuracy", "share of counted targets", "training", "mean_token_accuracy", Hue::kBlue, "valid_mean_token_accuracy");
  add("Pairs", "accuracy", "training", "accuracy", Hue::kBlue, "valid_accuracy");
  add("Margin", "of rewards", "training", "margin", Hue::kBlue, "valid_margin");
  add("Gradient norm", "before clipping", "gradient norm", "grad_norm", Hue::kGreen);
  add("Learning rate", "", "learning rate", "lr", Hue::kPurple);
  add("Speed", "tokens/s", "tokens/s", "tokens_per_s", Hue::kTeal);
  return section;
}

}  // namespace trident
