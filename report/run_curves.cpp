#include "report/run_curves.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
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

// The validation data that a record was made with, as its start names them; "" where starts do not say.
std::string valid_of(const RunFolder& run, const JsonValue& record) {
  const JsonValue none, *writer = &none;
  for (const JsonValue& start : run.run.items_at("starts"))
    if (number(start, "time") <= number(record, "time")) writer = &start;
  std::string all;
  for (const JsonValue& file : writer->items_at("valid"))
    if (file.is_string()) all += (all.empty() ? "" : " + ") + file.as_string();
  return all;
}

// A line of each run that has the value; of evaluations one of each validation data. A name that is alone is the plot's title.
void add_lines(LinePlot& plot, const std::vector<RunFolder>& runs, std::string_view name,
               std::vector<JsonValue> RunFolder::*records, std::string_view key, Hue hue, bool dashed, bool is_alone = false) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunFolder& run = runs[r];
    if (!has(run.*records, key)) continue;
    std::map<std::string, PlotLine> lines;
    std::string data;
    for (const JsonValue& record : run.*records) {
      const double step = number(record, "step"), tokens = number(record, "tokens");
      const double other = std::isfinite(tokens) ? tokens : tokens_at(run, step);
      const std::string before = std::exchange(data, records == &RunFolder::evals ? valid_of(run, record) : "");
      PlotLine& line = lines[data];
      if (before != data && !line.points.empty())  // data that come back are not joined over what lay between
        line.points.push_back({step, kNone}), line.other_x.push_back(other);
      line.points.push_back({step, number(record, key)});
      line.other_x.push_back(other);
    }
    std::size_t others = 0;
    for (auto& [of, line] : lines) {
      line.name = lines.size() == 1 || of.empty() ? std::string(name) : fmt::format("{}, {}", name, of);
      if (runs.size() > 1) line.name = is_alone ? run.name : fmt::format("{}, {}", run.name, line.name);
      line.hue = runs.size() > 1 ? hue_of(r) : others == 0 ? hue : hue_of(static_cast<std::size_t>(hue) + others);
      line.dashed = dashed, line.marked = line.points.size() <= 30;
      plot.lines.push_back(std::move(line));
      ++others;
    }
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

// The loss of each validation set, where there are several.
void add_sets(LinePlot& plot, const std::vector<RunFolder>& runs) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::map<std::string, PlotLine> lines;
    for (const JsonValue& record : runs[r].evals) {
      for (const JsonMember& set : record.members_at("sets")) {
        PlotLine& line = lines[set.key];
        line.points.push_back({number(record, "step"), number(set.value, "loss")});
        line.other_x.push_back(tokens_at(runs[r], number(record, "step")));
      }
    }
    for (auto& [set, line] : lines) {
      line.name = runs.size() > 1 ? fmt::format("{}, {}", runs[r].name, set) : set;
      line.hue = hue_of(plot.lines.size()), line.marked = line.points.size() <= 30;
      plot.lines.push_back(std::move(line));
    }
  }
}

}  // namespace

ReportSection curves_section(const std::vector<RunFolder>& runs) {
  const bool learns_from_pairs = std::ranges::any_of(runs, [](const RunFolder& run) { return has(run.metrics, "margin"); });
  ReportSection section{"Curves", {}};
  const auto add = [&](const std::string& title, const std::string& y_label, std::string_view name, std::string_view key, Hue hue,
                       std::string_view of_evaluations = "") {
    LinePlot plot;
    plot.title = title, plot.x_label = "step", plot.other_x_label = "tokens", plot.y_label = y_label;
    add_lines(plot, runs, name, &RunFolder::metrics, key, hue, false, of_evaluations.empty());
    add_lines(plot, runs, "validation", &RunFolder::evals, of_evaluations, Hue::kOrange, runs.size() > 1);
    if (runs.size() == 1 && key == "loss") add_starts(plot, runs.front());
    if (!plot.lines.empty()) section.blocks.emplace_back(std::move(plot));
  };
  const std::string unit = learns_from_pairs ? "per pair" : "nats per token";
  add("Loss", unit, "training", "loss", Hue::kBlue, "valid_loss");
  LinePlot sets;
  sets.title = "Validation loss by set", sets.x_label = "step", sets.other_x_label = "tokens", sets.y_label = unit;
  add_sets(sets, runs);
  if (!sets.lines.empty()) section.blocks.emplace_back(std::move(sets));
  add("Token accuracy", "share of counted targets", "training", "mean_token_accuracy", Hue::kBlue, "valid_mean_token_accuracy");
  add("Pairs", "accuracy", "training", "accuracy", Hue::kBlue, "valid_accuracy");
  add("Margin", "of rewards", "training", "margin", Hue::kBlue, "valid_margin");
  add("Gradient norm", "before clipping", "gradient norm", "grad_norm", Hue::kGreen);
  add("Learning rate", "", "learning rate", "lr", Hue::kPurple);
  add("Speed", "tokens/s", "tokens/s", "tokens_per_s", Hue::kTeal);
  return section;
}

}  // namespace trident
