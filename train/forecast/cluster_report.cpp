#include "train/forecast/cluster_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>

#include "core/counted.h"

namespace trident {
namespace {

constexpr std::size_t kMostStages = 8;

double gb(std::int64_t bytes) { return 1e-9 * static_cast<double>(bytes); }

// Columns for the parts that any of the stages has.
std::string memory_table(const ClusterPlan& plan) {
  const std::vector<std::size_t> stages = some_stages(plan, kMostStages, plan.fullest);
  std::string text = fmt::format("  {:<24}", "stage");
  for (const std::size_t stage : stages) text += fmt::format(" {:>8}", stage);
  text += '\n';
  for (const MemoryPart& part : plan.most().parts) {
    const auto of = [&](std::size_t stage) { return plan.memory[stage].of(part.name); };
    if (std::all_of(stages.begin(), stages.end(), [&](std::size_t stage) { return of(stage) == 0; })) continue;
    text += fmt::format("  {:<24}", part.name);
    for (const std::size_t stage : stages) text += fmt::format(" {:>8.3f}", gb(of(stage)));
    text += '\n';
  }
  text += fmt::format("  {:<24}", "all");
  for (const std::size_t stage : stages) text += fmt::format(" {:>8.3f}", gb(plan.memory[stage].total()));
  return text + '\n';
}

std::string time_table(const ClusterPlan& plan) {
  std::string text;
  for (std::size_t part = 0; part < kNumTimeParts; ++part) {
    const double seconds = plan.parts.seconds[part];
    text += fmt::format("  {:<10} {:>12} {:>6.1f} %\n", to_string(static_cast<TimePart>(part)), duration_text(seconds),
                        100 * seconds / plan.seconds());
  }
  return text;
}

std::string advice_text(const ClusterReport& report) {
  const ClusterPlan& now = report.plan;
  if (report.advice.empty())
    return now.fits ? "nothing that was tried makes it faster\n" : "nothing that was tried needs less memory\n";
  const bool helps = now.fits || report.advice.front().fits;
  std::string text = now.fits ? "faster would be\n"
                     : helps  ? "it would fit with\n"
                              : "nearest to fitting, though it does not, is\n";
  for (const PricedChange& change : report.advice)
    text += fmt::format("  {}: a step of {} ({:+.1f} %), {:.1f} GB\n", settings_text(change), duration_text(change.seconds),
                        100 * (change.seconds / now.seconds() - 1), gb(change.bytes));
  return text;
}

JsonValue with_range(double value, const NumberRange& range) {
  JsonValue out;
  out.set("value", value);
  out.set("low", range.low);
  out.set("high", range.high);
  return out;
}

// Of what is inverse to seconds.
NumberRange rate_range(const ClusterReport& report, double rate) {
  return {rate / report.hardware.band.high, rate / report.hardware.band.low};
}

JsonValue memory_json(const ClusterPlan& plan) {
  JsonValue::Array ranks;
  for (const RankMemory& memory : plan.memory) {
    JsonValue rank, parts;
    for (const MemoryPart& part : memory.parts) parts.set(part.name, part.bytes);
    const NumberRange range = bytes_range(memory);
    rank.set("stage", memory.stage);
    rank.set("rank", memory.rank);
    rank.set("bytes", memory.total());
    rank.set("low", range.low);
    rank.set("high", range.high);
    rank.set("parts", std::move(parts));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

JsonValue step_json(const ClusterReport& report) {
  const ClusterPlan& plan = report.plan;
  const NumberRange range = seconds_range(report, plan.seconds());
  JsonValue step, parts;
  step.set("seconds", plan.seconds());
  step.set("low", range.low);
  step.set("high", range.high);
  step.set("busiest_stage", static_cast<std::int64_t>(plan.busiest));
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    parts.set(to_string(static_cast<TimePart>(part)), plan.parts.seconds[part]);
  step.set("parts", std::move(parts));
  step.set("bubble_over_ideal", plan.forecast.price.bubble_over_ideal);
  return step;
}

JsonValue training_json(const ClusterReport& report) {
  const NumberRange range = seconds_range(report, report.cost.gpu_hours);
  JsonValue training;
  training.set("tokens", report.cost.tokens);
  training.set("steps", report.cost.steps);
  training.set("days", report.cost.days);
  training.set("gpu_hours", report.cost.gpu_hours);
  training.set("low", range.low);
  training.set("high", range.high);
  return training;
}

JsonValue advice_json(const std::vector<PricedChange>& advice) {
  JsonValue::Array list;
  for (const PricedChange& change : advice) {
    JsonValue::Array settings;
    for (const std::string& setting : change.settings) settings.emplace_back(setting);
    JsonValue it;
    it.set("settings", JsonValue(std::move(settings)));
    it.set("seconds", change.seconds);
    it.set("bytes", change.bytes);
    it.set("fits", change.fits);
    list.push_back(std::move(it));
  }
  return list;
}

}  // namespace

ClusterReport report_on(const PlanHardware& hardware, const TrainConfig& config, int gpus, double tokens) {
  ClusterReport report{hardware, plan_on(hardware, config, gpus), {}, {}};
  const RunPlan& plan = report.plan.plan;
  report.cost = training_cost(
      report.plan, tokens > 0 ? tokens : static_cast<double>(config.run.steps) * static_cast<double>(plan.tokens_per_step()));
  report.advice = advice_of(report.plan, priced_changes(hardware, report.plan));
  return report;
}

NumberRange seconds_range(const ClusterReport& report, double seconds) {
  return {report.hardware.band.low * seconds, report.hardware.band.high * seconds};
}

NumberRange bytes_range(const RankMemory& memory) {
  const auto all = static_cast<double>(memory.total());
  return {all - static_cast<double>(memory.of("workspaces")), all};
}

std::string grouped(double value) {
  if (value < 1000) return fmt::format("{:.4g}", value);
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  std::string text = fmt::format("{:.0f}", std::round(value / unit) * unit);
  for (auto at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

std::string count_text(double value) {
  for (const auto& [unit, name] : {std::pair(1e12, "trillion"), std::pair(1e9, "billion"), std::pair(1e6, "million")})
    if (value >= unit) return fmt::format("{:.4g} {}", value / unit, name);
  return fmt::format("{:.0f}", value);
}

std::string duration_text(double seconds) {
  if (seconds >= 2 * 86400) return fmt::format("{:.1f} days", seconds / 86400);
  if (seconds >= 2 * 3600) return fmt::format("{:.1f} hours", seconds / 3600);
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3 || seconds == 0) return fmt::format("{:.3f} ms", 1e3 * seconds);
  return fmt::format("{:.3f} us", 1e6 * seconds);
}

std::string settings_text(const PricedChange& change) {
  std::string text;
  for (const std::string& setting : change.settings) text += fmt::format("{}--set {}", text.empty() ? "" : " ", setting);
  return text;
}

std::string hardware_line(const ClusterReport& report) {
  return fmt::format("{}: {} x {}", report.hardware.name, report.plan.plan.world_size(), report.hardware.device);
}

std::string band_line(const ClusterReport& report) {
  const ErrorBand& band = report.hardware.band;
  return fmt::format(
      "bands of times: of {} published {} runs on {}, by other programs, eight of ten took {:.2f} to {:.2f} times what "
      "is predicted for them (docs/planner-accuracy.md); no run of this program is among them. Of memory: without and "
      "with all of the workspaces",
      band.runs, band.precision, band.hardware.empty() ? "GPUs of several kinds, none of them this one" : "this GPU", band.low,
      band.high);
}

std::vector<std::size_t> some_stages(const ClusterPlan& plan, std::size_t most, std::size_t wanted) {
  const std::size_t n = plan.memory.size();
  std::set<std::size_t> some;
  if (n <= most) most = n;
  for (std::size_t i = 0; i < most; ++i) some.insert(most == 1 ? wanted : i * (n - 1) / (most - 1));
  if (some.insert(wanted).second) {  // for one that is neither of the ends
    const auto next = std::next(some.begin());
    some.erase(*next == wanted ? std::next(next) : next);
  }
  return {some.begin(), some.end()};
}

std::string to_text(const ClusterReport& report) {
  const ClusterPlan& plan = report.plan;
  const int gpus = plan.plan.world_size();
  std::string text = fmt::format("\non {}\n\nGB of the device of one rank:\n{}", hardware_line(report), memory_table(plan));
  text += fmt::format("a rank of stage {} needs most, {:.1f} to {:.1f} of {:.1f} GB: {}\n\n", plan.most().stage,
                      1e-9 * bytes_range(plan.most()).low, gb(plan.most().total()), 1e-9 * report.hardware.device_bytes,
                      plan.fits ? "it fits" : "it does not fit");
  const NumberRange seconds = seconds_range(report, plan.seconds());
  text += fmt::format("a step takes {} ({} to {}); of it a rank of stage {}, which waits least:\n{}", duration_text(plan.seconds()),
                      duration_text(seconds.low), duration_text(seconds.high), plan.busiest, time_table(plan));
  const NumberRange rate = rate_range(report, plan.tokens_per_second());
  text += fmt::format("{} tokens/s ({} to {}), {} a GPU\n", grouped(plan.tokens_per_second()), grouped(rate.low),
                      grouped(rate.high), grouped(plan.tokens_per_second() / gpus));
  const NumberRange mfu = rate_range(report, plan.mfu), hfu = rate_range(report, plan.hfu);
  text += fmt::format("MFU {:.1f} % ({:.1f} to {:.1f}): {}: {:.4g} / ({:.4g} s x {} x {:.4g})\n", 100 * plan.mfu, 100 * mfu.low,
                      100 * mfu.high, kMfuFormula, plan.model_flops, plan.seconds(), gpus, report.hardware.peak_flops);
  text += fmt::format("HFU {:.1f} % ({:.1f} to {:.1f}): with the {:.4g} FLOPs of forwards that are done again\n", 100 * plan.hfu,
                      100 * hfu.low, 100 * hfu.high, plan.recomputed_flops);
  text += fmt::format("first limit: {}: {}\n", to_string(plan.limit.limit), plan.limit.why);
  const NumberRange hours = seconds_range(report, report.cost.gpu_hours);
  text += fmt::format("{} tokens take {}, {}, {} GPU-hours ({} to {})\n\n", count_text(report.cost.tokens),
                      counted(std::llround(std::ceil(report.cost.steps)), "step"), duration_text(86400 * report.cost.days),
                      grouped(report.cost.gpu_hours), grouped(hours.low), grouped(hours.high));
  return text + advice_text(report) + '\n' + band_line(report) + '\n';
}

JsonValue to_json(const ClusterReport& report) {
  const ClusterPlan& plan = report.plan;
  const double rate = plan.tokens_per_second(), gpus = plan.plan.world_size();
  JsonValue out, axes, limit, band;
  out.set("name", report.hardware.name);
  out.set("device", report.hardware.device);
  out.set("gpus", plan.plan.world_size());
  out.set("fits", plan.fits);
  out.set("device_bytes", report.hardware.device_bytes);
  out.set("memory", memory_json(plan));
  out.set("step", step_json(report));
  out.set("tokens_per_second", with_range(rate, rate_range(report, rate)));
  out.set("tokens_per_second_per_gpu", with_range(rate / gpus, rate_range(report, rate / gpus)));
  out.set("mfu", with_range(plan.mfu, rate_range(report, plan.mfu)));
  out.set("hfu", with_range(plan.hfu, rate_range(report, plan.hfu)));
  out.set("model_flops", plan.model_flops);
  out.set("recomputed_flops", plan.recomputed_flops);
  out.set("peak_flops", report.hardware.peak_flops);
  out.set("mfu_formula", kMfuFormula);
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) axes.set(to_string(static_cast<Axis>(axis)), plan.bytes_sent[axis]);
  out.set("bytes_of_a_rank", std::move(axes));
  limit.set("name", to_string(plan.limit.limit));
  limit.set("why", plan.limit.why);
  out.set("limit", std::move(limit));
  out.set("training", training_json(report));
  out.set("advice", advice_json(report.advice));
  band.set("low", report.hardware.band.low);
  band.set("high", report.hardware.band.high);
  band.set("runs", report.hardware.band.runs);
  band.set("of", report.hardware.band.hardware.empty() ? "all GPUs" : report.hardware.band.hardware);
  out.set("band", std::move(band));
  return out;
}

std::string to_csv(const ClusterReport& report) {
  const ClusterPlan& plan = report.plan;
  std::string text = "quantity,part,stage,unit,value,low,high\n";
  const auto line = [&text](std::string_view quantity, std::string_view part, std::string_view stage, std::string_view unit,
                            double value) { text += fmt::format("{},{},{},{},{},,\n", quantity, part, stage, unit, value); };
  const auto ranged = [&text](std::string_view quantity, std::string_view stage, std::string_view unit, double value,
                              const NumberRange& range) {
    text += fmt::format("{},,{},{},{},{},{}\n", quantity, stage, unit, value, range.low, range.high);
  };
  for (const RankMemory& memory : plan.memory) {
    const std::string stage = std::to_string(memory.stage);
    for (const MemoryPart& part : memory.parts) line("memory", part.name, stage, "bytes", static_cast<double>(part.bytes));
    ranged("memory", stage, "bytes", static_cast<double>(memory.total()), bytes_range(memory));
  }
  for (std::size_t stage = 0; stage < plan.forecast.price.ranks.size(); ++stage) {
    for (std::size_t part = 0; part < kNumTimeParts; ++part)
      line("step", to_string(static_cast<TimePart>(part)), std::to_string(stage), "seconds",
           plan.forecast.price.ranks[stage].seconds[part]);
  }
  ranged("step", "", "seconds", plan.seconds(), seconds_range(report, plan.seconds()));
  ranged("throughput", "", "tokens/s", plan.tokens_per_second(), rate_range(report, plan.tokens_per_second()));
  ranged("mfu", "", "1", plan.mfu, rate_range(report, plan.mfu));
  ranged("hfu", "", "1", plan.hfu, rate_range(report, plan.hfu));
  for (std::size_t axis = 0; axis < kNumAxes; ++axis)
    line("sent by a rank", to_string(static_cast<Axis>(axis)), "", "bytes", plan.bytes_sent[axis]);
  line("training", "", "", "tokens", report.cost.tokens);
  ranged("training", "", "GPU-hours", report.cost.gpu_hours, seconds_range(report, report.cost.gpu_hours));
  return text;
}

}  // namespace trident
