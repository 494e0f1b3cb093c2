#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/json_by_name.h"
#include "planner/predict/cluster_report.h"
#include "report/table.h"

namespace trident {
namespace {

JsonValue number(double value) { return value; }
JsonValue whole(double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); }

void append(JsonValue::Object& out, JsonValue::Object more) { out.insert(out.end(), more.begin(), more.end()); }

// `out` with "low" and "high" where there is a band.
JsonValue::Object with_band(JsonValue::Object out, const Band& band, JsonValue (*as)(double) = number) {
  if (band) append(out, {{"low", as(band->low)}, {"high", as(band->high)}});
  return out;
}

JsonValue rate_json(const ClusterReport& report, double rate) { return with_band({{"value", rate}}, rate_band(report, rate)); }

JsonValue memory_json(const ClusterForecast& plan) {
  JsonValue::Array ranks;
  for (const RankMemory& memory : plan.memory) {
    JsonValue parts, bands;
    for (const MemoryPart& part : memory.parts) {
      parts.set(to_string(part.kind), part.bytes);
      const Band band = part_band(part);
      bands.set(to_string(part.kind), band ? JsonValue(with_band({}, band, whole)) : JsonValue());
    }
    ranks.push_back(JsonValue::Object{{"stage", memory.stage},
                                      {"rank", memory.rank},
                                      {"bytes", memory.total()},
                                      {"low", memory.total() - memory.all_of(Certainty::kMost)},
                                      {"high", memory.total()},
                                      {"parts", std::move(parts)},
                                      {"bands", std::move(bands)}});
  }
  return ranks;
}

JsonValue step_json(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  JsonValue::Object step = with_band({{"seconds", plan.seconds()}}, seconds_band(report, plan.seconds()));
  append(step, {{"busiest_stage", static_cast<std::int64_t>(plan.busiest)},
                {"parts", json_by_name<TimePart>(plan.parts.seconds)},
                {"bubble_over_ideal", plan.forecast.price.bubble_over_ideal}});
  if (plan.process) append(step, {{"cpu_seconds", plan.process->cpu_seconds}, {"shares_cores", plan.process->shares_cores}});
  return step;
}

JsonValue advice_json(const std::vector<PricedChange>& advice) {
  JsonValue::Array list;
  for (const PricedChange& change : advice)
    list.push_back(JsonValue::Object{{"settings", change.settings},
                                     {"seconds", change.seconds},
                                     {"bytes", change.bytes},
                                     {"fits", change.fits}});
  return list;
}

JsonValue band_json(const ErrorBand& from) {
  return JsonValue::Object{{"low", from.low},
                           {"high", from.high},
                           {"runs", from.runs},
                           {"of", from.hardware.empty() ? "all GPUs" : from.hardware}};
}

JsonValue::Object hardware_json(const ClusterReport& report) {
  const RunPlan& plan = report.plan.plan;
  if (report.hardware.on_gpus())
    return {{"name", report.hardware.name}, {"device", report.hardware.device}, {"gpus", plan.world_size()}};
  const CpuRates& processors = *report.hardware.processors;
  JsonValue::Object out{{"name", processors.name}, {"processor", processors.processor}, {"cores", processors.cores}};
  if (!processors.date.empty()) out.push_back({"date", processors.date});
  out.push_back({"ranks", plan.world_size()});
  out.push_back({"threads_per_rank", plan.threads_per_rank});
  out.push_back({"arena_bytes", whole(report.plan.process->arena_bytes)});
  out.push_back({"staging_bytes", whole(report.plan.process->staging_bytes)});
  out.push_back({"resident_bytes", whole(report.plan.process->resident_bytes)});
  return out;
}

}  // namespace

JsonValue to_json(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  const bool on_gpus = report.hardware.on_gpus();
  const double rate = plan.tokens_per_second();
  JsonValue::Object out = hardware_json(report);
  append(out, {{"fits", plan.fits},
               {"device_bytes", whole(report.hardware.device_bytes)},
               {"needed", with_band({{"value", plan.needed_bytes()}}, needed_band(report), whole)},
               {"memory", memory_json(plan)},
               {"step", step_json(report)},
               {"tokens_per_second", rate_json(report, rate)}});
  if (on_gpus) append(out, {{"tokens_per_second_per_gpu", rate_json(report, rate / plan.plan.world_size())}});
  append(out, {{"mfu", rate_json(report, plan.mfu)},
               {"hfu", rate_json(report, plan.hfu)},
               {"model_flops", plan.model_flops},
               {"recomputed_flops", plan.recomputed_flops},
               {"peak_flops", on_gpus ? report.hardware.peak_flops : plan.peak_flops},
               {"mfu_formula", mfu_formula(report)},
               {"bytes_of_a_rank", json_by_name<Axis>(plan.bytes_sent, whole)},
               {"limit", JsonValue::Object{{"name", to_string(plan.limit.limit)},
                                           {"share", plan.limit.share},
                                           {"why", plan.limit.why}}},
               {"training", with_band({{"tokens", report.cost.tokens},
                                       {"steps", report.cost.steps},
                                       {"days", report.cost.days},
                                       {on_gpus ? "gpu_hours" : "core_hours", report.cost.gpu_hours}},
                                      seconds_band(report, report.cost.gpu_hours))},
               {"advice", advice_json(report.advice)}});
  if (report.hardware.band) append(out, {{"band", band_json(*report.hardware.band)}});
  if (report.hardware.resident_band) append(out, {{"resident_band", band_json(*report.hardware.resident_band)}});
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
