#include "planner/study/study_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "core/json_by_name.h"
#include "core/number_text.h"
#include "planner/study/study_keys.h"
#include "report/svg_plot.h"

namespace trident {
namespace {

bool is_gpus(const StudySpec& spec, std::size_t key) { return spec.varied[key].key == kGpusKey; }

std::string remark_of(const StudyResult& result, const StudyRow& row) {
  if (!row.possible()) return "cannot be: " + row.reason;
  std::vector<std::string> remarks;
  const auto is_rival = [&](const StudyRow& it) {
    return it.possible() && it.gpus == row.gpus && it.tokens_per_gpu() != row.tokens_per_gpu();
  };
  if (row.fits && &row == fastest_of(result, row.gpus) && std::ranges::any_of(result.rows, is_rival))
    remarks.emplace_back("fastest");
  if (!row.fits) remarks.emplace_back("does not fit");
  if (row.tight) remarks.emplace_back("fits tightly");
  if (row.measured && row.measured->worked) remarks.push_back(disturbance_text(*row.measured, time_unit_of(result)));
  if (!row.not_run.empty()) remarks.push_back("not run: " + row.not_run);
  return fmt::format("{}", fmt::join(remarks, "; "));
}

double bytes_of(const StudyRow& row) { return std::accumulate(row.bytes_sent.begin(), row.bytes_sent.end(), 0.0); }

// A number that is not known is 0; JSON has null for it.
JsonValue known(auto number) { return number > 0 ? JsonValue(number) : JsonValue(); }

JsonValue row_json(const StudySpec& spec, const StudyRow& row) {
  JsonValue settings{JsonValue::Object{}};
  for (std::size_t i = 0; i < spec.varied.size(); ++i)
    if (!is_gpus(spec, i)) settings.set(spec.varied[i].key, row.point.values[i]);
  JsonValue::Object out{{"arm", spec.arms[row.point.arm].name},
                        {"settings", std::move(settings)},
                        {"gpus", known(row.possible() ? row.gpus : row.point.gpus)},
                        {"possible", row.possible()}};
  const auto add = [&out](JsonValue::Object more) { out.insert(out.end(), more.begin(), more.end()); };
  if (!row.possible()) {
    add({{"reason", row.reason}});
    return out;
  }
  add({{"replicas", row.replicas},
       {"micro_batches", row.micro_batches},
       {"tokens_per_step", row.tokens},
       {"parameters", row.parameters},
       {"step_s", row.seconds},
       {"parts_s", json_by_name<TimePart>(row.parts.seconds)},
       {"tokens_per_s", row.tokens_per_second()},
       {"tokens_per_s_per_gpu", row.tokens_per_gpu()},
       {"mfu", known(row.mfu)},
       {"bubble_over_ideal", row.bubble},
       {"memory_bytes", row.memory_bytes},
       {"optimizer_bytes", row.optimizer_bytes},
       {"memory_there_bytes", known(row.memory_there)},
       {"fits", row.fits},
       {"tight", row.tight},
       {"bytes_sent", json_by_name<Axis>(row.bytes_sent)},
       {"gathers", row.gathers},
       {"reductions", row.reductions},
       {"efficiency", known(row.efficiency)},
       {"of_first", row.of_first}});
  if (const auto& measured = row.measured) {
    // Processors' time has no waiting in it.
    const double waits = measured->clock == "processor" ? row.parts[TimePart::kBubble] : 0;
    add({{"measured_s", measured->seconds},
         {"measured_over_predicted", measured->seconds / (row.seconds - waits)},
         {"measured_clock", measured->clock},
         {"measured_steps", measured->steps}});
    if (measured->worked) add({{"worked_s", *measured->worked}});
    add({{"predicted_by_run_s", measured->predicted}, {"measured_memory_bytes", measured->memory_bytes}});
  }
  if (!row.not_run.empty()) add({{"not_run", row.not_run}});
  return out;
}

JsonValue::Array rows_json(const StudyResult& result) {
  JsonValue::Array rows;
  for (const StudyRow& row : result.rows) rows.push_back(row_json(result.spec, row));
  return rows;
}

}  // namespace

Table table_of(const StudyResult& result) {
  const StudySpec& spec = result.spec;
  Table table{"Points", {}, std::vector<std::vector<std::string>>(result.rows.size())};
  enum class Rows : std::uint8_t { kAll, kPossible };
  const auto add = [&](Rows of, Column column, auto cell) {
    table.columns.push_back(std::move(column));
    for (std::size_t i = 0; i < result.rows.size(); ++i)
      if (of == Rows::kAll || result.rows[i].possible()) table.rows[i].push_back(cell(result.rows[i]));
  };
  const auto any = [&](auto counts) {
    return std::ranges::any_of(result.rows, [&](const StudyRow& row) { return row.possible() && counts(row); });
  };
  // `unknown` is written for 0.
  const auto number = [&](std::string title, const char* digits, auto value, const char* unknown = nullptr) {
    add(Rows::kPossible, {std::move(title)}, [&](const StudyRow& row) {
      const auto it = value(row);
      return unknown != nullptr && !(it > 0) ? std::string(unknown) : fmt::format(fmt::runtime(digits), it);
    });
  };

  if (spec.arms.size() > 1 || !spec.arms.front().name.empty())
    add(Rows::kAll, {"", true}, [&](const StudyRow& row) { return spec.arms[row.point.arm].name; });
  for (std::size_t i = 0; i < spec.varied.size(); ++i)
    if (!is_gpus(spec, i))
      add(Rows::kAll, {std::string(short_key(spec.varied[i].key)), true}, [i](const StudyRow& row) { return row.point.values[i]; });
  add(Rows::kAll, {result.counted_as + "s"}, [](const StudyRow& row) {
    const std::int64_t gpus = row.possible() ? row.gpus : row.point.gpus;
    return gpus > 0 ? with_commas(gpus) : std::string("-");
  });
  table.keys = table.columns.size();
  if (result.any_possible()) {
    const auto unit_of = [&](auto value) {
      return any([&](const StudyRow& row) { return value(row) >= 1e8; }) ? std::pair("GB", 1e9) : std::pair("MB", 1e6);
    };
    const StudyTimeUnit unit = time_unit_of(result);
    const std::string in_unit = fmt::format(" {}", unit.name);
    const auto sent = unit_of(bytes_of), held = unit_of([](const StudyRow& row) { return row.memory_bytes; });
    if (result.models.size() > 1)
      add(Rows::kPossible, {"parameters"}, [](const StudyRow& row) { return parameters_text(1.0 * row.parameters); });
    const auto count = [&](std::string title, auto value) {
      add(Rows::kPossible, {std::move(title)}, [&](const StudyRow& row) { return with_commas(std::llround(1.0 * value(row))); });
    };
    count("replicas", [](const StudyRow& row) { return row.replicas; });
    count("micro-batches", [](const StudyRow& row) { return row.micro_batches; });
    count("tokens/s", [](const StudyRow& row) { return row.tokens_per_second(); });
    count("tokens/s a " + result.counted_as, [](const StudyRow& row) { return row.tokens_per_gpu(); });
    number("step" + in_unit, "{:.4g}", [&](const StudyRow& row) { return unit.of_second * row.seconds; });
    if (any([](const StudyRow& row) { return row.measured.has_value(); })) {
      const auto seconds = [](const StudyRow& row) { return row.measured ? row.measured->seconds : 0; };
      number("measured" + in_unit, "{:.4g}", [&](const StudyRow& row) { return unit.of_second * seconds(row); }, "");
      number("of predicted", "{:.2f}", [&](const StudyRow& row) { return seconds(row) / row.seconds; }, "");
    }
    for (std::size_t part = 0; part < kNumTimeParts; ++part) {
      const auto above = [part](double share) {
        return [=](const StudyRow& row) { return row.parts.seconds[part] > share * row.seconds; };
      };
      if (any(above(5e-4)))  // rounding of other parts is none of this one
        number(std::string(to_string(static_cast<TimePart>(part))) + in_unit, "{:.3g}",
               [&](const StudyRow& row) { return above(1e-9)(row) ? unit.of_second * row.parts.seconds[part] : 0; });
    }
    if (any([](const StudyRow& row) { return row.mfu > 0; }))
      add(Rows::kPossible, {"MFU %"}, [](const StudyRow& row) { return percent_digits(row.mfu); });
    if (any([](const StudyRow& row) { return bytes_of(row) > 0; }))
      number(fmt::format("{} sent", sent.first), "{:.4g}", [&](const StudyRow& row) { return bytes_of(row) / sent.second; });
    number(fmt::format("{} held", held.first), "{:.4g}", [&](const StudyRow& row) { return row.memory_bytes / held.second; });
    add(Rows::kPossible, {fmt::format("of {}", held.first)}, [&](const StudyRow& row) {
      return row.memory_there > 0 ? rounded_text(static_cast<double>(row.memory_there) / held.second) : std::string("?");
    });
    if (any([](const StudyRow& row) { return row.efficiency > 0; }))
      number("efficiency", "{:.3f}", [](const StudyRow& row) { return row.efficiency; }, "-");
    const auto of_reference = [&](const StudyRow& row) {
      const StudyRow* const reference = reference_of(result, row);
      return reference == nullptr ? 0 : row.tokens_per_gpu() / reference->tokens_per_gpu();
    };
    if (any([&](const StudyRow& row) { return of_reference(row) != 1; }))
      number(spec.arms.size() > 1 ? "of first" : "of fastest", "{:.3f}", of_reference, "-");
  }
  add(Rows::kAll, {"", true}, [&](const StudyRow& row) { return remark_of(result, row); });
  return table;
}

namespace {

// "model: ...", or "models: ...; ...; and 3 more".
std::string names_text(const char* one, const char* several, std::span<const std::string> lines) {
  constexpr std::size_t kMost = 3;
  return fmt::format("{}: {}{}", lines.size() == 1 ? one : several,
                     fmt::join(lines.first(std::min(kMost, lines.size())), "; "),
                     lines.size() <= kMost ? "" : fmt::format("; and {} more", lines.size() - kMost));
}

std::vector<std::string> studied(const StudyResult& result) {
  const StudySpec& spec = result.spec;
  const std::string settings = fmt::format("{}", fmt::join(spec.settings, ", "));
  std::vector<std::string> lines{
      fmt::format("configuration: {}{}{}", spec.config, spec.config.empty() || settings.empty() ? "" : " with ", settings)};
  if (!result.models.empty()) lines.push_back(names_text("model", "models", result.models));
  if (!result.batches.empty()) lines.push_back(names_text("batch", "batches", result.batches));
  return lines;
}

}  // namespace

std::string to_text(const StudyResult& result, std::size_t columns) {
  std::string text = result.spec.title.empty() ? "" : result.spec.title + '\n';
  for (const std::string& line : studied(result)) text += line + '\n';
  text += "predicted, by prices of: " + result.hardware + '\n';
  for (const std::string& sentence : result.held) text += sentence + '\n';
  text += '\n' + to_text(table_of(result), columns);
  if (!result.causes.empty()) text += '\n';
  for (const std::string& sentence : result.causes) text += sentence + '\n';
  return text;
}

JsonValue to_json(const StudyResult& result) {
  return JsonValue::Object{{"study", result.spec.title},
                           {"config", result.spec.config},
                           {"set", result.spec.settings},
                           {"models", result.models},
                           {"batches", result.batches},
                           {"hardware", result.hardware},
                           {"counted_as", result.counted_as},
                           {"scaling", to_string(result.spec.scaling)},
                           {"held_fixed", result.held},
                           {"rows", rows_json(result)},
                           {"causes", result.causes}};
}

std::string to_csv(const StudyResult& result) { return to_csv(rows_json(result)); }

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
    // Rows have rising gpus within a line. One that does not fit has no efficiency.
    if (value(row) > 0) line->points.push_back({static_cast<double>(row.gpus), value(row)});
  }
  std::erase_if(plot.lines, [](const PlotLine& line) { return line.points.empty(); });
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

ReportPage page_of(const StudyResult& result) {
  require_rows(result);
  ReportPage page{.title = result.spec.title.empty() ? "Study" : result.spec.title,
                  .subtitle = "predicted, by prices of: " + result.hardware,
                  .sections = {}};
  ReportSection what{.title = "What is compared", .blocks = {BulletList{studied(result)}}};
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
  return page;
}

}  // namespace trident
