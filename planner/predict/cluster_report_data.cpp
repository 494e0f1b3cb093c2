#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "planner/predict/cluster_report.h"

namespace trident {
namespace {

JsonValue whole_bytes(double bytes) { return JsonValue(static_cast<std::int64_t>(std::llround(bytes))); }

void set_band(JsonValue& out, const Band& band) {
  if (!band) return;
  out.set("low", band->low);
  out.set("high", band->high);
}

JsonValue with_band(double value, const Band& band) {
  JsonValue out;
  out.set("value", value);
  set_band(out, band);
  return out;
}

JsonValue bytes_with_band(std::int64_t value, const Band& band) {
  JsonValue out;
  out.set("value", value);
  if (band) {
    out.set("low", whole_bytes(band->low));
    out.set("high", whole_bytes(band->high));
  }
  return out;
}

JsonValue memory_json(const ClusterForecast& plan) {
  JsonValue::Array ranks;
  for (const RankMemory& memory : plan.memory) {
    JsonValue rank, parts, bands;
    for (const MemoryPart& part : memory.parts) {
      parts.set(to_string(part.kind), part.bytes);
      JsonValue band;
      if (const Band it = part_band(part)) {
        band.set("low", whole_bytes(it->low));
        band.set("high", whole_bytes(it->high));
      }
      bands.set(to_string(part.kind), std::move(band));
    }
    rank.set("stage", memory.stage);
    rank.set("rank", memory.rank);
    rank.set("bytes", memory.total());
    rank.set("low", memory.total() - memory.all_of(Certainty::kMost));
    rank.set("high", memory.total());
    rank.set("parts", std::move(parts));
    rank.set("bands", std::move(bands));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

JsonValue step_json(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  JsonValue step, parts;
  step.set("seconds", plan.seconds());
  set_band(step, seconds_band(report, plan.seconds()));
  step.set("busiest_stage", static_cast<std::int64_t>(plan.busiest));
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    parts.set(to_string(static_cast<TimePart>(part)), plan.parts.seconds[part]);
  step.set("parts", std::move(parts));
  step.set("bubble_over_ideal", plan.forecast.price.bubble_over_ideal);
  if (plan.process) {
    step.set("cpu_seconds", plan.process->cpu_seconds);
    step.set("shares_cores", plan.process->shares_cores);
  }
  return step;
}

JsonValue training_json(const ClusterReport& report) {
  JsonValue training;
  training.set("tokens", report.cost.tokens);
  training.set("steps", report.cost.steps);
  training.set("days", report.cost.days);
  training.set(report.hardware.on_gpus() ? "gpu_hours" : "core_hours", report.cost.gpu_hours);
  set_band(training, seconds_band(report, report.cost.gpu_hours));
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

JsonValue band_json(const ErrorBand& from) {
  JsonValue band;
  band.set("low", from.low);
  band.set("high", from.high);
  band.set("runs", from.runs);
  band.set("of", from.hardware.empty() ? "all GPUs" : from.hardware);
  return band;
}

void set_hardware(JsonValue& out, const ClusterReport& report) {
  const RunPlan& plan = report.plan.plan;
  if (report.hardware.on_gpus()) {
    out.set("name", report.hardware.name);
    out.set("device", report.hardware.device);
    out.set("gpus", plan.world_size());
    return;
  }
  out.set("name", report.hardware.processors->name);
  out.set("processor", report.hardware.processors->processor);
  out.set("cores", report.hardware.processors->cores);
  out.set("ranks", plan.world_size());
  out.set("threads_per_rank", plan.threads_per_rank);
  out.set("arena_bytes", whole_bytes(report.plan.process->arena_bytes));
  out.set("resident_bytes", whole_bytes(report.plan.process->resident_bytes));
}

}  // namespace

JsonValue to_json(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  const double rate = plan.tokens_per_second(), ranks = plan.plan.world_size();
  JsonValue out, axes, limit;
  set_hardware(out, report);
  out.set("fits", plan.fits);
  out.set("device_bytes", whole_bytes(report.hardware.device_bytes));
  out.set("needed", bytes_with_band(plan.needed_bytes(), needed_band(report)));
  out.set("memory", memory_json(plan));
  out.set("step", step_json(report));
  out.set("tokens_per_second", with_band(rate, rate_band(report, rate)));
  if (report.hardware.on_gpus()) out.set("tokens_per_second_per_gpu", with_band(rate / ranks, rate_band(report, rate / ranks)));
  out.set("mfu", with_band(plan.mfu, rate_band(report, plan.mfu)));
  out.set("hfu", with_band(plan.hfu, rate_band(report, plan.hfu)));
  out.set("model_flops", plan.model_flops);
  out.set("recomputed_flops", plan.recomputed_flops);
  out.set("peak_flops", report.hardware.on_gpus() ? report.hardware.peak_flops : plan.peak_flops);
  out.set("mfu_formula", mfu_formula(report));
  for (std::size_t axis = 0; axis < kNumAxes; ++axis)
    axes.set(to_string(static_cast<Axis>(axis)), whole_bytes(plan.bytes_sent[axis]));
  out.set("bytes_of_a_rank", std::move(axes));
  limit.set("name", to_string(plan.limit.limit));
  limit.set("share", plan.limit.share);
  limit.set("why", plan.limit.why);
  out.set("limit", std::move(limit));
  out.set("training", training_json(report));
  out.set("advice", advice_json(report.advice));
  if (report.hardware.band) out.set("band", band_json(*report.hardware.band));
  if (report.hardware.resident_band) out.set("resident_band", band_json(*report.hardware.resident_band));
  return out;
}

std::string to_csv(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  std::string text = "quantity,part,stage,unit,value,low,high\n";
  const auto line = [&text](std::string_view quantity, std::string_view part, std::string_view stage, std::string_view unit,
                            double value, const Band& band) {
    text += fmt::format("{},{},{},{},{}", quantity, part, stage, unit, value);
    text += band ? fmt::format(",{},{}\n", band->low, band->high) : ",,\n";
  };
  for (const RankMemory& memory : plan.memory) {
    const std::string stage = std::to_string(memory.stage);
    for (const MemoryPart& part : memory.parts)
      line("memory", to_string(part.kind), stage, "bytes", static_cast<double>(part.bytes), part_band(part));
    const auto all = static_cast<double>(memory.total());
    line("memory", "", stage, "bytes", all, NumberRange{all - static_cast<double>(memory.all_of(Certainty::kMost)), all});
  }
  line("memory needed", "", "", "bytes", static_cast<double>(plan.needed_bytes()), needed_band(report));
  line("memory there", "", "", "bytes", report.hardware.device_bytes, {});
  line("fits", "", "", "1", plan.fits ? 1 : 0, {});
  line("first limit", to_string(plan.limit.limit), "", "1", plan.limit.share, {});
  const bool shared = plan.process && plan.process->shares_cores;
  for (std::size_t stage = 0; stage < plan.forecast.price.ranks.size(); ++stage) {
    for (std::size_t part = 0; part < kNumTimeParts; ++part)
      line(shared ? "step with cores of its own" : "step", to_string(static_cast<TimePart>(part)), std::to_string(stage),
           "seconds", plan.forecast.price.ranks[stage].seconds[part], {});
  }
  line("step", "", "", "seconds", plan.seconds(), seconds_band(report, plan.seconds()));
  line("throughput", "", "", "tokens/s", plan.tokens_per_second(), rate_band(report, plan.tokens_per_second()));
  line("mfu", "", "", "1", plan.mfu, rate_band(report, plan.mfu));
  line("hfu", "", "", "1", plan.hfu, rate_band(report, plan.hfu));
  for (std::size_t axis = 0; axis < kNumAxes; ++axis)
    line("sent by a rank", to_string(static_cast<Axis>(axis)), "", "bytes", plan.bytes_sent[axis], {});
  line("training", "", "", "tokens", report.cost.tokens, {});
  line("training", "", "", report.hardware.on_gpus() ? "GPU-hours" : "core-hours", report.cost.gpu_hours,
       seconds_band(report, report.cost.gpu_hours));
  return text;
}

}  // namespace trident
