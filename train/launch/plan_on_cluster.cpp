#include "train/launch/plan_on_cluster.h"

#include <cstdint>

#include "core/check.h"
#include "core/file_io.h"
#include "plan/price_book.h"
#include "train/forecast/plan_page.h"
#include "train/forecast/plan_trace.h"
#include "train/launch/prepare_run.h"

namespace trident {

ClusterAnswer plan_on_cluster(const TrainConfig& config, const ClusterQuestion& question) {
  const Cluster cluster = find_cluster(shipped_price_book(), question.cluster);
  const int replica = ranks_of_a_replica(config.parallel);
  const std::int64_t gpus = question.gpus > 0 ? question.gpus : ranks_of(config.parallel);
  if (gpus > 1 << 24) throw ConfigError(fmt::format("parallel: {} ranks; at most {} are planned", gpus, 1 << 24));
  check_cluster_size(cluster, static_cast<int>(gpus), replica);
  ClusterAnswer answer{{}, report_on(hardware_of(cluster), config, question.gpus, question.tokens)};
  const ClusterPlan& plan = answer.priced.plan;
  answer.report = {plan.forecast.stages, Workspaces::kBound};
  if (!question.html.empty()) {
    AtomicFile file(question.html);
    file.append(to_html(page_of(answer.priced)));
    file.commit();
  }
  if (!question.trace.empty()) write_plan_trace(question.trace, plan.plan, plan.forecast);
  return answer;
}

std::string to_text(const ClusterAnswer& answer, PlanDetail detail, PlanForm form) {
  const RunPlan& plan = answer.priced.plan.plan;
  if (form == PlanForm::kCsv) return to_csv(answer.priced);
  if (form == PlanForm::kText) return to_text(answer.report, plan, detail) + to_text(answer.priced);
  JsonValue json = to_json(answer.report, plan, detail);
  json.set("cluster", to_json(answer.priced));
  return to_json_text(json) + '\n';
}

}  // namespace trident
