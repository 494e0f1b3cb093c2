#include "train/launch/plan_on_processors.h"

#include <cstddef>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "train/forecast/plan_trace.h"

namespace trident {

std::optional<CpuRates> find_processors(std::string_view name_or_path) {
  if (name_or_path == "cpu") return shipped_cpu_rates();
  const std::string path(name_or_path);
  if (path.find('/') == std::string::npos && !path.ends_with(".json")) return std::nullopt;
  const JsonValue json = read_json_file(path);
  if (!is_cpu_profile(json)) return std::nullopt;
  return cpu_rates_from_json(json, path);
}

ProcessorsAnswer plan_on_processors(const TrainConfig& config, const CpuRates& rates, const ClusterQuestion& question,
                                    CudaBackend& cuda) {
  if (!question.html.empty()) throw ConfigError("--html: pages are made of clusters of cards; leave it out with processors");
  if (config.device == AskedDevice::kCuda)
    throw ConfigError("device = cuda: --cluster names processors; set device to \"cpu\", or name a cluster of cards");
  TrainConfig on_cpu = config;
  on_cpu.device = AskedDevice::kCpu;
  ProcessorsAnswer answer{plan_run(on_cpu, question.gpus, cuda), rates, {}};
  answer.forecast = forecast_on_processors_here(answer.planned.plan, rates);
  if (!question.trace.empty()) write_plan_trace(question.trace, answer.planned.plan, answer.forecast.forecast);
  return answer;
}

std::string to_text(const ProcessorsAnswer& answer, PlanDetail detail) {
  const RunPlan& plan = answer.planned.plan;
  const CpuForecast& f = answer.forecast;
  const StepPrice& price = f.forecast.price;
  std::string text = to_text(answer.planned.report, plan, detail);
  text += fmt::format("\non {} of {} ({}), {} of {}: a step of {:.1f} ms, {:.0f} tokens/s\n", counted(answer.rates.cores, "core"),
                      answer.rates.processor, answer.rates.name, counted(plan.world_size(), "rank"),
                      counted(plan.threads_per_rank, "thread"), 1e3 * f.step_seconds,
                      static_cast<double>(plan.tokens_per_step()) / f.step_seconds);
  if (f.shares_cores)
    text +=
        fmt::format("ranks share cores: {:.1f} ms of CPU time over {}\n", 1e3 * f.cpu_seconds, counted(answer.rates.cores, "core"));
  text += "the busiest rank, with cores of its own, ms:";
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    if (const double seconds = price.ranks[price.busiest()].seconds[part]; seconds > 0)
      text += fmt::format(" {} {:.1f}", to_string(static_cast<TimePart>(part)), 1e3 * seconds);
  text += fmt::format("\nthe process holds {:.0f} MB, {:.0f} MB of them arenas\n", 1e-6 * f.resident_bytes, 1e-6 * f.arena_bytes);
  return text;
}

JsonValue to_json(const ProcessorsAnswer& answer, PlanDetail detail) {
  const RunPlan& plan = answer.planned.plan;
  const CpuForecast& f = answer.forecast;
  const StepPrice& price = f.forecast.price;
  JsonValue json = to_json(answer.planned.report, plan, detail), cluster, step, parts;
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    parts.set(to_string(static_cast<TimePart>(part)), price.ranks[price.busiest()].seconds[part]);
  step.set("seconds", f.step_seconds);
  step.set("cpu_seconds", f.cpu_seconds);
  step.set("shares_cores", f.shares_cores);
  step.set("parts", std::move(parts));
  step.set("bubble_over_ideal", price.bubble_over_ideal);
  cluster.set("name", answer.rates.name);
  cluster.set("processor", answer.rates.processor);
  cluster.set("cores", answer.rates.cores);
  cluster.set("ranks", plan.world_size());
  cluster.set("threads_per_rank", plan.threads_per_rank);
  cluster.set("step", std::move(step));
  cluster.set("tokens_per_second", static_cast<double>(plan.tokens_per_step()) / f.step_seconds);
  cluster.set("arena_bytes", f.arena_bytes);
  cluster.set("resident_bytes", f.resident_bytes);
  json.set("cluster", std::move(cluster));
  return json;
}

}  // namespace trident
