#include "planner/predict/run_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "core/number_text.h"
#include "planner/predict/plan_timeline.h"
#include "report/span_kinds.h"

namespace trident {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostPoints = 4000;  // of a curve: more than a screen has columns

double number(const JsonValue& record, std::string_view key) {
  const JsonValue* const value = record.find(key);
  return value != nullptr && value->is_number() ? value->as_number() : kNone;
}

bool has(const std::vector<JsonValue>& records, std::string_view key) {
  return std::ranges::any_of(records, [&](const JsonValue& record) { return std::isfinite(number(record, key)); });
}

// Of long runs one line of so many, and the last one.
PlotLine curve(const std::string& name, const std::vector<JsonValue>& records, std::string_view key, Hue hue) {
  PlotLine line{name, {}, hue};
  const std::size_t every = 1 + records.size() / kMostPoints;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i % every == 0 || i + 1 == records.size()) line.points.push_back({number(records[i], "step"), number(records[i], key)});
  }
  line.marked = line.points.size() <= 30;
  return line;
}

ReportSection curves(const RunPageFacts& facts) {
  ReportSection section{"Curves", {}};
  if (facts.metrics.empty()) return section;
  const auto plot = [](const std::string& title, const std::string& unit, std::vector<PlotLine> lines) {
    LinePlot out;
    out.title = title, out.x_label = "step", out.y_label = unit;
    out.lines = std::move(lines);
    return out;
  };
  std::vector<PlotLine> losses{curve("training", facts.metrics, "loss", Hue::kBlue)};
  if (has(facts.evals, "valid_loss")) losses.push_back(curve("validation", facts.evals, "valid_loss", Hue::kOrange));
  section.blocks.emplace_back(plot("Loss", "nats per token", std::move(losses)));
  section.blocks.emplace_back(
      plot("Gradient norm", "before clipping", {curve("gradient norm", facts.metrics, "grad_norm", Hue::kGreen)}));
  section.blocks.emplace_back(plot("Learning rate", "", {curve("learning rate", facts.metrics, "lr", Hue::kPurple)}));
  section.blocks.emplace_back(plot("Speed", "tokens/s", {curve("tokens/s", facts.metrics, "tokens_per_s", Hue::kTeal)}));
  return section;
}

ReportSection memory_section(const RunPageFacts& facts) {
  ReportSection section{"Memory", {}};
  const JsonValue* const ranks = facts.memory.is_object() ? facts.memory.find("ranks") : nullptr;
  if (ranks == nullptr || !ranks->is_array()) return section;
  StackedBars bars;
  bars.title = "Arena of the first rank of each pipeline stage", bars.unit = "MB";
  for (const JsonValue& rank : ranks->items()) {
    const JsonValue* const uses = rank.find("by_use");
    if (rank.find("allocations") == nullptr || uses == nullptr) continue;  // the others of the stage hold the same
    std::vector<double> values;
    for (const JsonMember& use : uses->members()) {
      if (bars.bars.empty()) bars.parts.push_back({use.key, hue_of(bars.parts.size())});
      values.push_back(1e-6 * use.value.as_number());
    }
    bars.bars.push_back({fmt::format("stage {:.0f}", number(rank, "pp")), std::move(values)});
  }
  if (!bars.bars.empty()) section.blocks.emplace_back(std::move(bars));
  return section;
}

ReportSection comparison_section(const Comparison& c) {
  ReportSection section{"Predicted beside measured", {}};
  std::string what = to_lines(c).front();
  what.front() = 'P';
  Table table = comparison_table(c);
  table.columns.back() = {"predicted over measured"};
  section.blocks.emplace_back(Paragraph{what + "."});
  section.blocks.emplace_back(std::move(table));
  BulletList off;
  for (std::string line : off_lines(c)) {
    line.front() = 'M';
    off.items.push_back(line + '.');
  }
  if (!off.items.empty()) section.blocks.emplace_back(std::move(off));
  return section;
}

ReportSection summary(const RunPageFacts& facts) {
  ReportSection section{"The run", {}};
  KeyNumbers numbers;
  const auto add = [&](const std::string& name, double value, const std::string& text, const std::string& remark) {
    if (std::isfinite(value)) numbers.numbers.push_back({name, text, remark});
  };
  if (!facts.metrics.empty()) {
    const JsonValue &first = facts.metrics.front(), &last = facts.metrics.back();
    const double loss = number(last, "loss"), speed = number(last, "tokens_per_s"), step = number(last, "step");
    add("steps", step, fmt::format("{:.0f}", step), fmt::format("{:.0f} tokens", number(last, "tokens")));
    add("training loss", loss, fmt::format("{:.4f}", loss),
        fmt::format("{:.4f} at step {:.0f}", number(first, "loss"), number(first, "step")));
    if (!facts.evals.empty()) {
      const double valid = number(facts.evals.back(), "valid_loss");
      add("validation loss", valid, fmt::format("{:.4f}", valid), fmt::format("perplexity {:.2f}", std::exp(valid)));
    }
    add("tokens/s", speed, rounded_text(speed), "of the last logged step");
  }
  if (!numbers.numbers.empty()) section.blocks.emplace_back(std::move(numbers));
  if (!facts.lines.empty()) section.blocks.emplace_back(BulletList{facts.lines});
  return section;
}

// ---- timelines
// ---------------------------------------------------------------------------------------------------------------------

}  // namespace

Timeline step_timeline(const std::string& title, const std::vector<StepProgram>& programs,
                       const std::vector<std::vector<StepSpan>>& spans, std::size_t most_spans) {
  const std::array<Timeline::Kind, kNumSpanKinds> kinds = span_kinds();
  Timeline timeline{title, {kinds.begin(), kinds.end()}, {}};
  bool cut = false;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    TimelineRow row{fmt::format("stage {}", rank), {}};
    std::array<double, 2> free{};  // by lane: spans of one do not overlap
    for (std::size_t at = 0; at < spans[rank].size() && !cut; ++at) {
      const Instruction& i = programs[rank].instructions[at];
      const std::optional<SpanKind> kind = span_kind(i, static_cast<int>(programs.size()));
      if (!kind) continue;
      const TimelineLane lane = lane_of(*kind);
      double& lane_free = free[static_cast<std::size_t>(lane)];
      const StepSpan& span = spans[rank][at];
      const double begin = std::max(span.start, lane_free), end = std::max(span.end, begin),
                   working = std::min(end, begin + span.waited);
      const auto add = [&](double from, double to, SpanKind what) {
        if (to > from)
          row.spans.push_back({from, to, lane, static_cast<std::int32_t>(what), short_name(i),
                               i.micro_batch >= 0 ? i.micro_batch : TimelineSpan::kNoNumber});
      };
      add(begin, working, SpanKind::kWaiting);
      add(working, end, *kind);
      lane_free = end;
      cut = row.spans.size() >= most_spans;
    }
    if (cut) timeline.title = fmt::format("{}: its first {} instructions of a stage", title, most_spans);
    cut = false;
    timeline.rows.push_back(std::move(row));
  }
  leave_out_unused(timeline);
  return timeline;
}

ReportPage run_page(const RunPageFacts& facts) {
  ReportPage page{facts.title, facts.subtitle, {}};
  ReportSection steps{"A step", {}};
  for (const Timeline& timeline : facts.timelines) steps.blocks.emplace_back(timeline);
  for (ReportSection section :
       {summary(facts), curves(facts), std::move(steps), memory_section(facts), comparison_section(facts.comparison)}) {
    if (!section.blocks.empty()) page.sections.push_back(std::move(section));
  }
  return page;
}

}  // namespace trident
