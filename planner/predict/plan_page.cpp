#include "planner/predict/plan_page.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/number_text.h"
#include "planner/predict/plan_timeline.h"
#include "planner/predict/rank_memory.h"
#include "planner/price/step_price.h"
#include "train/run/run_report.h"

namespace trident {
namespace {

constexpr std::size_t kMostLines = 8, kMostBars = 16, kMostSamples = 1200;

// The unit of ranks' memory on the whole page: MB where the most loaded one has less than a GB.
struct MemoryUnit {
  double bytes = 1e9;
  std::string name = "GB";
  double of(double count) const { return count / bytes; }
  double of(std::int64_t count) const { return of(static_cast<double>(count)); }
};
MemoryUnit unit_of(const ClusterForecast& plan) {
  return plan.most().total() < 1'000'000'000 ? MemoryUnit{1e6, "MB"} : MemoryUnit{};
}

// With its first letter large and a full stop.
std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

Table with_large_title(Table table) {
  table.title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(table.title[0])));
  return table;
}

// A step function with the most of each of so many windows of time, so that none of its peaks is lost.
std::vector<PlotPoint> peaks_of(const std::vector<HeldBytes>& held, double seconds, double base, const MemoryUnit& unit) {
  std::vector<PlotPoint> points;
  if (held.size() <= kMostSamples) {
    for (const HeldBytes& it : held) points.push_back({it.seconds, unit.of(base + static_cast<double>(it.bytes))});
  } else {
    const double window = seconds / kMostSamples;
    for (const HeldBytes& it : held) {
      const double start = window * std::floor(it.seconds / window), bytes = unit.of(base + static_cast<double>(it.bytes));
      if (!points.empty() && points.back().x == start)
        points.back().y = std::max(points.back().y, bytes);
      else
        points.push_back({start, bytes});
    }
  }
  if (!points.empty()) points.push_back({seconds, unit.of(base + static_cast<double>(held.back().bytes))});
  return points;
}

StackedBars time_bars(const ClusterReport& report) {
  static constexpr std::array<Hue, kNumTimeParts> kHues = {Hue::kBlue, Hue::kLightBlue, Hue::kPurple, Hue::kTeal, Hue::kOrange,
                                                           Hue::kGrey, Hue::kGold,      Hue::kPink,   Hue::kBrown};
  const ClusterForecast& plan = report.plan;
  const auto [unit, name] = plan.seconds() < 1 ? std::pair(1e-3, "ms") : std::pair(1.0, "s");
  StackedBars bars{"Where the time of a step goes, by pipeline stage", name, {}, {}, {}, {}};
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    bars.parts.push_back({std::string(part_words(static_cast<TimePart>(part)).title), kHues[part]});
  for (const std::size_t stage : some_stages(plan, kMostBars, plan.busiest)) {
    StackedBars::Bar bar{fmt::format("stage {}", stage), {}};
    for (const double seconds : plan.forecast.price.ranks[stage].seconds) bar.values.push_back(seconds / unit);
    bars.bars.push_back(std::move(bar));
  }
  return bars;
}

// Kinds that have a colour together; every kind is in one of them. Without a name: that of the only kind.
struct BarPart {
  std::string_view name;
  Hue hue;
  std::vector<MemoryPartKind> kinds;
};
const std::vector<BarPart>& bar_parts() {
  using enum MemoryPartKind;
  static const std::vector<BarPart> all{{"", Hue::kBlue, {kParameters}},
                                        {"", Hue::kLightBlue, {kGradients}},
                                        {"", Hue::kGold, {kOptimizer}},
                                        {"", Hue::kGreen, {kBlockInputs}},
                                        {"", Hue::kLightGreen, {kAttention}},
                                        {"", Hue::kTeal, {kMlp}},
                                        {"", Hue::kPink, {kNorms}},
                                        {"", Hue::kRed, {kLoss}},
                                        {"activations: other", Hue::kBrown, {kRecomputed, kSplitBackward, kSampledText}},
                                        {"scratch, workspaces, data", Hue::kGrey, {kScratch, kWorkspaces, kData}},
                                        {"communication: buffers, channels", Hue::kOrange, {kCommunication, kCommunicators}},
                                        {"driver's context", Hue::kPurple, {kContext}}};
  return all;
}

StackedBars memory_bars(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  const MemoryUnit unit = unit_of(plan);
  StackedBars bars{"Memory of a rank, by pipeline stage", unit.name, {}, {}, {}, {}};
  const auto bytes_of = [](const RankMemory& memory, const BarPart& bar) {
    std::int64_t bytes = 0;
    for (const MemoryPartKind kind : bar.kinds) bytes += memory.of(kind);
    return bytes;
  };
  std::vector<const BarPart*> used;
  for (const BarPart& bar : bar_parts()) {
    if (std::none_of(plan.memory.begin(), plan.memory.end(), [&](const RankMemory& it) { return bytes_of(it, bar) > 0; })) continue;
    used.push_back(&bar);
    bars.parts.push_back({std::string(bar.name.empty() ? to_string(bar.kinds.front()) : bar.name), bar.hue});
  }
  for (const std::size_t stage : some_stages(plan, kMostBars, plan.fullest)) {
    StackedBars::Bar bar{fmt::format("stage {}", stage), {}};
    for (const BarPart* const part : used) bar.values.push_back(unit.of(bytes_of(plan.memory[stage], *part)));
    bars.bars.push_back(std::move(bar));
  }
  if (report.hardware.on_gpus() && report.hardware.device_bytes > 0) {
    bars.limit = unit.of(report.hardware.device_bytes);
    bars.limit_name = "memory of " + report.hardware.device;
  }
  return bars;
}

std::string range_text(const Band& band, std::string (*text_of)(double)) {
  return band ? fmt::format("{} to {}", text_of(band->low), text_of(band->high)) : "no band";
}

KeyNumbers key_numbers(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  const bool on_gpus = report.hardware.on_gpus();
  const double rate = plan.tokens_per_second(), gpus = plan.plan.world_size();
  const double there = report.hardware.device_bytes;
  const std::string needed = bytes_text(plan.needed_bytes());
  const std::string verdict =
      there == 0 ? "how much there is is not known"
                 : fmt::format("{}: {}{}", plan.fits ? "it fits" : "it does not fit", needed,
                               room_text(static_cast<double>(plan.needed_bytes()), there, plan.bytes_off(report.hardware)));
  KeyNumbers block;
  block.numbers = {
      {on_gpus ? "most memory of a rank" : "memory of the process", needed,
       fmt::format("{}{}; {}", verdict, on_gpus ? fmt::format(", stage {}", plan.most().stage) : "",
                   range_text(needed_band(report), bytes_text))},
      {"a step", seconds_text(plan.seconds()), range_text(seconds_band(report, plan.seconds()), seconds_text)},
      {"tokens/s", rounded_text(rate),
       range_text(rate_band(report, rate), rounded_text) +
           (on_gpus ? fmt::format("; {} per GPU", rounded_text(rate / gpus)) : "")}};
  if (plan.peak_flops > 0) {
    block.numbers.push_back({"MFU", percent_digits(plan.mfu) + " %", range_text(rate_band(report, plan.mfu), percent_digits)});
    block.numbers.push_back({"HFU", percent_digits(plan.hfu) + " %", range_text(rate_band(report, plan.hfu), percent_digits)});
  }
  block.numbers.push_back({"first limit", std::string(to_string(plan.limit.limit)), plan.limit.why});
  if (report.cost.tokens == 0) return block;  // run.epochs without data
  block.numbers.push_back({count_text(report.cost.tokens) + " tokens",
                           rounded_text(report.cost.gpu_hours) + (on_gpus ? " GPU-hours" : " core-hours"),
                           fmt::format("{}; {} on {}", range_text(seconds_band(report, report.cost.gpu_hours), rounded_text),
                                       seconds_text(86400 * report.cost.days), on_gpus ? "these GPUs" : "this machine")});
  return block;
}

ReportSection advice_section(const ClusterReport& report) {
  const ClusterForecast& now = report.plan;
  ReportSection section{now.fits ? "What would be faster" : "What would make it fit", {}};
  if (report.advice.empty()) {
    section.blocks.emplace_back(
        Paragraph{now.fits ? "Nothing that was tried makes it faster." : "Nothing that was tried needs less memory."});
    return section;
  }
  Table table{"", {{"change", true}, {"step"}, {"difference"}, {"memory"}, {"fits"}}};
  for (const PricedChange& change : report.advice)
    table.rows.push_back({settings_text(change.settings), seconds_text(change.seconds),
                          fmt::format("{:+.1f} %", 100 * (change.seconds / now.seconds() - 1)),
                          bytes_text(change.bytes), change.fits ? "yes" : "no"});
  section.blocks.emplace_back(
      Paragraph{"Each was planned and priced like this configuration, with the same ranks and the same global batch."});
  section.blocks.emplace_back(std::move(table));
  return section;
}

Table traffic_table(const ClusterForecast& plan) {
  Table table{"Sent by a rank in a step, on average", {{"axis", true}, {"bytes"}}};
  for (std::size_t axis = 0; axis < kNumAxes; ++axis)
    table.rows.push_back({std::string(to_string(static_cast<Axis>(axis))), bytes_text(plan.bytes_sent[axis])});
  return table;
}

}  // namespace

LinePlot memory_over_time(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  const MemoryUnit unit = unit_of(plan);
  LinePlot plot{"", "seconds", unit.name + " of a rank", AxisScale::kLinear, AxisScale::kLinear, {}, {}, {}};
  std::size_t number = 0;
  for (const std::size_t stage : some_stages(plan, kMostLines, plan.fullest)) {
    const DryRun& run = plan.forecast.stages[stage];
    const RankMemory& memory = plan.memory[stage];
    const std::vector<HeldBytes> held =
        held_activations(plan.plan.step_programs[stage], run.blocks, plan.forecast.price.spans[stage]);
    const auto base = static_cast<double>(memory.total() - memory.held);
    plot.lines.push_back({fmt::format("stage {}", stage), peaks_of(held, plan.forecast.price.seconds, base, unit),
                          hue_of(number++), false, true});
  }
  if (report.hardware.on_gpus() && report.hardware.device_bytes > 0) {
    plot.limit = unit.of(report.hardware.device_bytes);
    plot.limit_name = report.hardware.device;
  }
  return plot;
}

ReportPage page_of(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  ReportPage page{"Plan of " + plan.plan.config.run.dir, fmt::format("{}; {}", hardware_line(report), model_line(plan.plan)), {}};
  ReportSection summary{"In short", {key_numbers(report), Paragraph{layout_line(plan.plan)}}};
  for (const std::string& note : plan.plan.notes) summary.blocks.emplace_back(Paragraph{note});
  if (plan.peak_flops > 0)
    summary.blocks.emplace_back(Paragraph{"MFU is " + mfu_formula(report) + "; HFU counts forwards that are done again, too."});
  summary.blocks.emplace_back(Paragraph{"Predicted, not measured. " + sentence(band_line(report))});
  page.sections.push_back(std::move(summary));
  page.sections.push_back(advice_section(report));
  ReportSection time{"Time", {time_bars(report), with_large_title(time_table(report)), traffic_table(plan)}};
  if (plan.process && plan.process->shares_cores)
    time.blocks.insert(time.blocks.begin(),
                       Paragraph{"More threads compute than there are cores, which they take in turns: the bubble is of cores that "
                                 "have nothing to do. Bars and the step below are of ranks with cores of their own."});
  time.blocks.emplace_back(Paragraph{"No band for parts: what is known to be off is the time of whole steps."});
  page.sections.push_back(std::move(time));
  page.sections.push_back(
      {"The step",
       {Paragraph{"Each row is a rank of a pipeline stage: above what it computes, numbered by micro-batch; below its gathers "
                  "and reductions. The ranks of other data- and tensor-parallel coordinates do the same."},
        timeline_of(plan.plan, plan.forecast)}});
  ReportSection memory{"Memory", {memory_bars(report), with_large_title(memory_table(plan))}};
  memory.blocks.emplace_back(
      Paragraph{"GB are 10^9 bytes, MB 10^6. Exact: a rank of this program books as much, to the byte; from 0: the most that "
                "libraries' workspaces take; no band: one figure for every run, from the profile."});
  if (const std::string device = device_line(report); !device.empty()) memory.blocks.emplace_back(Paragraph{sentence(device)});
  page.sections.push_back(std::move(memory));
  page.sections.push_back(
      {"Memory over the time of a step",
       {Paragraph{"Activations as micro-batches in flight hold them, on what is there all the time. The arena has "
                  "room for the most of them from the start."},
        memory_over_time(report)}});
  return page;
}

}  // namespace trident
