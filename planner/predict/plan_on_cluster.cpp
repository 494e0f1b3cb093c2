#include "planner/predict/plan_on_cluster.h"

#include "core/check.h"
#include "planner/predict/plan_page.h"
#include "planner/predict/plan_timeline.h"
#include "planner/predict/run_prices.h"
#include "planner/price/cluster.h"
#include "planner/price/kept_profile.h"
#include "train/config/rank_count.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

PlanHardware hardware_for(const TrainConfig& config, const ClusterQuestion& question) {
  if (auto processors = find_processors(question.cluster)) return *processors;
  const Cluster cluster = find_cluster(shipped_price_book(), question.cluster);
  const int replica = planned_replica(config.parallel);
  const std::int64_t gpus = question.gpus > 0 ? question.gpus : ranks_of(config.parallel);
  if (gpus > kMostGpus) throw ConfigError(fmt::format("parallel: {} ranks; at most {} are planned", gpus, kMostGpus));
  check_cluster_size(cluster, static_cast<int>(gpus), replica);
  return hardware_of(cluster);
}

std::string to_text(const ClusterReport& report, const DryPlan& stages, PlanDetail detail, std::size_t columns) {
  const RunPlan& plan = report.plan.plan;
  std::string text = verdict_text(report) + '\n' + advice_text(report) + '\n' + heading_text(plan) + '\n';
  text += holds_text(plan) + '\n' + details_text(report, columns) + traffic_text(stages);
  return detail == PlanDetail::kProgram ? text + program_text(plan) : text;
}

}  // namespace

std::optional<PlanHardware> find_processors(std::string_view name_or_path) {
  if (name_or_path == "cpu") return shipped_processors();
  if (name_or_path == kThisMachine) return hardware_of(rates_of_this_machine(cpu_machine_facts(1).core_share.at_once()));
  const std::string path(name_or_path);
  if (path.find('/') == std::string::npos && !path.ends_with(".json")) return std::nullopt;
  const JsonValue json = read_json_file(path);
  if (!is_cpu_profile(json)) return std::nullopt;
  return hardware_of(cpu_rates_from_json(json, path));
}

std::string plan_on_cluster(const TrainConfig& config, const ClusterQuestion& question, PlanDetail detail, PlanForm form) {
  const PlanHardware hardware = hardware_for(config, question);
  const ClusterReport report = report_on(hardware, config, question.gpus, question.tokens);
  const ClusterForecast& plan = report.plan;
  if (question.take_page) question.take_page(page_of(report));
  if (!question.trace.empty()) write_plan_trace(question.trace, plan.plan, plan.forecast);
  if (form == PlanForm::kCsv) return to_csv(report);
  const DryPlan stages{plan.plan, plan.forecast.stages, hardware.on_gpus() ? Certainty::kMost : Certainty::kExact};
  if (form == PlanForm::kText) return to_text(report, stages, detail, question.columns);
  JsonValue json = to_json(stages, detail);
  json.set("cluster", to_json(report));
  return to_json_text(json) + '\n';
}

}  // namespace trident
