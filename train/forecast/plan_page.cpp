#include "train/forecast/plan_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "train/forecast/held_activations.h"
#include "train/forecast/plan_timeline.h"
#include "train/run/run_report.h"

namespace trident {
namespace {

constexpr std::size_t kMostLines = 8, kMostBars = 16, kMostPoints = 1200;

double gb(double bytes) { return 1e-9 * bytes; }

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// A step function with the most of each of so many windows of time, so that none of its peaks is lost.
std::vector<PlotPoint> peaks_of(const std::vector<HeldBytes>& held, double seconds, double base) {
  std::vector<PlotPoint> points;
  if (held.size() <= kMostPoints) {
    for (const HeldBytes& it : held) points.push_back({it.seconds, gb(base + static_cast<double>(it.bytes))});
  } else {
    const double window = seconds / kMostPoints;
    for (const HeldBytes& it : held) {
      const double start = window * std::floor(it.seconds / window), bytes = gb(base + static_cast<double>(it.bytes));
      if (!points.empty() && points.back().x == start)
        points.back().y = std::max(points.back().y, bytes);
      else
        points.push_back({start, bytes});
    }
  }
  if (!points.empty()) points.push_back({seconds, gb(base + static_cast<double>(held.back().bytes))});
  return points;
}

StackedBars time_bars(const ClusterReport& report) {
  static constexpr std::array<Hue, kNumTimeParts> kHues = {Hue::kBlue, Hue::kLightBlue, Hue::kPurple, Hue::kTeal, Hue::kOrange,
                                                           Hue::kGrey, Hue::kGold,      Hue::kPink,   Hue::kBrown};
  static constexpr std::array<std::string_view, kNumTimeParts> kNames = {
      "compute", "recompute", "tensor parallel", "messages", "data parallel", "bubble", "optimizer", "launch gaps", "other"};
  const ClusterPlan& plan = report.plan;
  const auto [unit, name] = plan.seconds() < 1 ? std::pair(1e-3, "ms") : std::pair(1.0, "s");
  StackedBars bars{"Where the time of a step goes, by pipeline stage", name, {}, {}, {}, {}};
  for (std::size_t part = 0; part < kNumTimeParts; ++part) bars.parts.push_back({std::string(kNames[part]), kHues[part]});
  for (const std::size_t stage : some_stages(plan, kMostBars, plan.busiest)) {
    StackedBars::Bar bar{fmt::format("stage {}", stage), {}};
    for (const double seconds : plan.forecast.price.ranks[stage].seconds) bar.values.push_back(seconds / unit);
    bars.bars.push_back(std::move(bar));
  }
  return bars;
}

StackedBars memory_bars(const ClusterReport& report) {
  static constexpr std::array<Hue, 11> kHues = {Hue::kBlue,       Hue::kLightBlue, Hue::kGold,   Hue::kGreen,
                                                Hue::kLightGreen, Hue::kTeal,      Hue::kOrange, Hue::kPurple,
                                                Hue::kPink,       Hue::kGrey,      Hue::kBrown};
  const ClusterPlan& plan = report.plan;
  StackedBars bars{"Memory of a rank, by pipeline stage", "GB", {}, {}, {}, {}};
  std::vector<std::size_t> used;
  for (std::size_t part = 0; part < plan.most().parts.size(); ++part) {
    if (std::none_of(plan.memory.begin(), plan.memory.end(), [&](const RankMemory& it) { return it.parts[part].bytes > 0; }))
      continue;
    used.push_back(part);
    bars.parts.push_back({plan.most().parts[part].name, kHues[part % kHues.size()]});
  }
  for (const std::size_t stage : some_stages(plan, kMostBars, plan.fullest)) {
    StackedBars::Bar bar{fmt::format("stage {}", stage), {}};
    for (const std::size_t part : used) bar.values.push_back(gb(static_cast<double>(plan.memory[stage].parts[part].bytes)));
    bars.bars.push_back(std::move(bar));
  }
  if (report.hardware.device_bytes > 0) {
    bars.limit = gb(report.hardware.device_bytes);
    bars.limit_name = "memory of " + report.hardware.device;
  }
  return bars;
}

KeyNumbers key_numbers(const ClusterReport& report) {
  const ClusterPlan& plan = report.plan;
  const auto gpus = static_cast<double>(plan.plan.world_size());
  const NumberRange seconds = seconds_range(report, plan.seconds()), hours = seconds_range(report, report.cost.gpu_hours);
  const auto over = [&](double rate) { return std::pair(rate / report.hardware.band.high, rate / report.hardware.band.low); };
  const auto rates = over(plan.tokens_per_second()), mfus = over(plan.mfu), hfus = over(plan.hfu);
  KeyNumbers block;
  block.numbers = {
      {"a step", duration_text(plan.seconds()), fmt::format("{} to {}", duration_text(seconds.low), duration_text(seconds.high))},
      {"tokens/s", grouped(plan.tokens_per_second()),
       fmt::format("{} to {}; {} a GPU", grouped(rates.first), grouped(rates.second), grouped(plan.tokens_per_second() / gpus))},
      {"MFU", percent(plan.mfu), fmt::format("{} to {}", percent(mfus.first), percent(mfus.second))},
      {"HFU", percent(plan.hfu), fmt::format("{} to {}", percent(hfus.first), percent(hfus.second))},
      {"most memory of a rank", fmt::format("{:.1f} GB", gb(static_cast<double>(plan.most().total()))),
       fmt::format("of {:.1f} GB, stage {}: {}", gb(report.hardware.device_bytes), plan.most().stage,
                   plan.fits ? "fits" : "does not fit")},
      {"first limit", std::string(to_string(plan.limit.limit)), plan.limit.why},
      {count_text(report.cost.tokens) + " tokens", grouped(report.cost.gpu_hours) + " GPU-hours",
       fmt::format("{} to {}; {} on these GPUs", grouped(hours.low), grouped(hours.high),
                   duration_text(86400 * report.cost.days))}};
  return block;
}

ReportSection advice_section(const ClusterReport& report) {
  const ClusterPlan& now = report.plan;
  ReportSection section{now.fits ? "What would be faster" : "What would make it fit", {}};
  if (report.advice.empty()) {
    section.blocks.emplace_back(
        Paragraph{now.fits ? "Nothing that was tried makes it faster." : "Nothing that was tried needs less memory."});
    return section;
  }
  ReportTable table{"", {"change", "step", "difference", "most memory, GB", "fits"}, {}, 1};
  for (const PricedChange& change : report.advice)
    table.rows.push_back({settings_text(change), duration_text(change.seconds),
                          fmt::format("{:+.1f} %", 100 * (change.seconds / now.seconds() - 1)),
                          fmt::format("{:.1f}", gb(static_cast<double>(change.bytes))), change.fits ? "yes" : "no"});
  section.blocks.emplace_back(
      Paragraph{"Each was planned and priced like this configuration, with the same GPUs and the same global batch."});
  section.blocks.emplace_back(std::move(table));
  return section;
}

ReportTable time_table(const ClusterPlan& plan) {
  ReportTable table{"The stage that waits least", {"part", "time", "share"}, {}, 1};
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    table.rows.push_back({std::string(to_string(static_cast<TimePart>(part))), duration_text(plan.parts.seconds[part]),
                          percent(plan.parts.seconds[part] / plan.seconds())});
  table.rows.push_back({"step", duration_text(plan.seconds()), percent(1)});
  return table;
}

ReportTable traffic_table(const ClusterPlan& plan) {
  ReportTable table{"Sent by a rank in a step, on average", {"axis", "GB"}, {}, 1};
  for (std::size_t axis = 0; axis < kNumAxes; ++axis)
    table.rows.push_back({std::string(to_string(static_cast<Axis>(axis))), fmt::format("{:.3f}", gb(plan.bytes_sent[axis]))});
  return table;
}

}  // namespace

LinePlot memory_over_time(const ClusterReport& report) {
  const ClusterPlan& plan = report.plan;
  LinePlot plot{"", "seconds", "GB of a rank", AxisScale::kLinear, AxisScale::kLinear, {}, {}, {}};
  std::size_t number = 0;
  for (const std::size_t stage : some_stages(plan, kMostLines, plan.fullest)) {
    const DryRun& run = plan.forecast.stages[stage];
    const RankMemory& memory = plan.memory[stage];
    const std::vector<HeldBytes> held =
        held_activations(plan.plan.step_programs[stage], run.blocks, plan.forecast.price.spans[stage]);
    const auto base = static_cast<double>(memory.total() - memory.of("kept activations") - memory.of("logits"));
    plot.lines.push_back({fmt::format("stage {}", stage), peaks_of(held, plan.seconds(), base), hue_of(number++), false, true});
  }
  if (report.hardware.device_bytes > 0) {
    plot.limit = gb(report.hardware.device_bytes);
    plot.limit_name = report.hardware.device;
  }
  return plot;
}

ReportPage page_of(const ClusterReport& report) {
  const ClusterPlan& plan = report.plan;
  ReportPage page{"Plan of " + plan.plan.config.run.dir, fmt::format("{}; {}", hardware_line(report), model_line(plan.plan)), {}};
  ReportSection summary{"In short", {key_numbers(report), Paragraph{layout_line(plan.plan)}}};
  for (const std::string& note : plan.plan.notes) summary.blocks.emplace_back(Paragraph{note});
  summary.blocks.emplace_back(Paragraph{"MFU is " + std::string(kMfuFormula) + "; HFU counts forwards that are done again, too."});
  summary.blocks.emplace_back(Paragraph{"Predicted, not measured: " + band_line(report) + "."});
  page.sections.push_back(std::move(summary));
  page.sections.push_back(advice_section(report));
  page.sections.push_back({"Time", {time_bars(report), time_table(plan), traffic_table(plan)}});
  page.sections.push_back(
      {"The step",
       {Paragraph{"Each row is a rank of a pipeline stage: above what it computes, numbered by micro-batch; below its gathers "
                  "and reductions. The ranks of other data- and tensor-parallel coordinates do the same."},
        timeline_of(plan.plan, plan.forecast)}});
  page.sections.push_back({"Memory", {memory_bars(report)}});
  page.sections.push_back(
      {"Memory over the time of a step",
       {Paragraph{"Activations as micro-batches in flight hold them, on what is there all the time. The arena has "
                  "room for the most of them from the start."},
        memory_over_time(report)}});
  return page;
}

}  // namespace trident
