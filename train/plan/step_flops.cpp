#include "train/plan/step_flops.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "core/counted.h"
#include "model/config/model_stats.h"
#include "model/gpt.h"
#include "train/plan/core_share.h"

namespace trident {
namespace {

// By unit, what its backward computes as a share of its forward: the input gradients, and of the matrices' products those of the
// parts that train.
std::vector<double> backward_shares(const RunPlan& plan) {
  const BatchConfig& batch = plan.config.batch;
  const std::vector<double> all = unit_costs(plan.model, batch);
  std::vector<double> shares(all.size(), 2.0);
  if (plan.model.tuning == nullptr) return shares;
  bool below = true;
  for (std::size_t u = 0; u < shares.size(); ++u) {
    double elements = 0, trained = 0;
    for (const ParamSpec& spec : plan.units[u].specs)
      for (const PartSpec& part : spec.parts) {
        if (part.trainable) below = false;
        if (part.tensor_shape.rank() < 2) continue;
        const auto n = static_cast<double>(part.rows * part.tensor_shape[1]);
        elements += n;
        if (spec.trainable) trained += n;  // the product is of the whole parameter
      }
    const auto layer = static_cast<std::int64_t>(u) - 1;
    const bool block = layer >= 0 && layer < plan.model.layers;
    const double products =
        block ? block_flops_per_token(plan.model, layer, 0) / block_flops_per_token(plan.model, layer, batch.sequence) : 1.0;
    shares[u] = below ? 0.0 : 2.0 - products * (elements > 0 ? 1.0 - trained / elements : 0.0);
  }
  return shares;
}

}  // namespace

ParameterCounts count_parameters(const RunPlan& plan) {
  ParameterCounts counts;
  for (const UnitLayout& unit : plan.units)
    for (const ParamSpec& spec : unit.specs)
      for (const PartSpec& part : spec.parts) {
        if (spec.tie == TiedEnd::kHead) continue;
        const std::int64_t n = part.rows * (part.tensor_shape.rank() == 2 ? part.tensor_shape[1] : 1);
        counts.all += n;
        if (part.trainable) counts.trained += n;
      }
  return counts;
}

std::vector<double> step_costs(const RunPlan& plan) {
  std::vector<double> costs = unit_costs(plan.model, plan.config.batch);
  if (plan.model.tuning == nullptr) return costs;  // a third of which are in proportion
  const std::vector<double> shares = backward_shares(plan);
  for (std::size_t u = 0; u < costs.size(); ++u) costs[u] *= (1.0 + shares[u]) / 3.0;
  return costs;
}

std::string units_text(const RunPlan& plan, std::size_t stage) {
  std::vector<int> blocks;
  bool embedding = false, head = false;
  for (std::size_t s = stage; s < plan.step_spec.units_of_stage.size(); s += plan.step_programs.size()) {
    for (const int unit : plan.step_spec.units_of_stage[s]) {
      if (unit == 0)
        embedding = true;
      else if (unit == head_unit(plan.model))
        head = true;
      else
        blocks.push_back(unit - 1);
    }
  }
  std::string text = embedding ? "embedding" : "";
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!blocks.empty()) add(fmt::format("block{} {}", blocks.size() == 1 ? "" : "s", number_ranges(blocks)));
  if (head) add("head");
  return text;
}

std::string bubble_note(const RunPlan& plan, const StepTimeline& step) {
  const std::size_t stages = step.compute.size();
  if (stages == 1) return "";
  const double bubble = step.bubble_over_ideal(), waits = 100 * bubble / (1 + bubble);
  const double equal = static_cast<double>(stages - 1) / (plan.num_micro_batches * plan.config.parallel.virtual_stages);
  const auto longest = std::ranges::max_element(step.compute);
  const double times = *longest * static_cast<double>(stages) / std::reduce(step.compute.begin(), step.compute.end());
  if (times > 1.25 && 1 + bubble > 1.25 * (1 + equal)) {
    const auto stage = static_cast<std::size_t>(longest - step.compute.begin());
    return fmt::format("pipeline: stage {} ({}) computes {:.1f} times as long as stages do on average, and ranks wait {:.0f} % of "
                       "a step, by FLOPs alone; take fewer stages (parallel.pipeline), or ask trident plan search",
                       stage, units_text(plan, stage), times, waits);
  }
  if (bubble <= 1) return "";
  return fmt::format("pipeline: ranks wait {:.0f} % of a step, by FLOPs alone, with {} on {} stages; take more of them (a smaller "
                     "batch.micro) or fewer stages, or ask trident plan search",
                     waits, counted(plan.num_micro_batches, "micro-batch", "micro-batches"), stages);
}

StepTimeline flops_timeline(const RunPlan& plan) {
  const std::vector<double> costs = unit_costs(plan.model, plan.config.batch);
  std::vector<double> forward(costs.size(), 1.0), backward = backward_shares(plan);
  if (plan.geometry(0).head_chunk > 0 && !plan.config.loss.is_dpo())  // then the head's backward makes the logits, too
    backward.back() += std::exchange(forward.back(), 0.0);
  const StepCosts step_costs{[&](int, std::size_t, const Instruction& i) {
                               if (!i.is_compute()) return 0.0;
                               const auto unit = static_cast<std::size_t>(i.unit);
                               if (i.is_forward()) return costs[unit] * forward[unit];
                               const double inputs = std::min(1.0, backward[unit]);  // half of a split backward: as a forward
                               if (i.kind == InstructionKind::kBackwardInput) return costs[unit] * inputs;
                               const double before = i.kind == InstructionKind::kBackwardWeight ? inputs : 0;
                               return costs[unit] * (backward[unit] - before);
                             },
                             [](int, int) { return 0.0; },
                             plan.step_spec.overlap};
  return simulate(plan.step_programs, step_costs);
}

double RunPlan::trained_share() const {
  if (model.tuning == nullptr) return 1;
  const std::vector<double> all = unit_costs(model, config.batch), computed = step_costs(*this);
  return std::reduce(computed.begin(), computed.end()) / std::reduce(all.begin(), all.end());
}

double RunPlan::head_flops_left_out() const {
  return leaves_rows_out ? (1 - config.data.counted_share) * part_flops_per_token(model, config.batch.sequence).head : 0;
}

double RunPlan::flops_per_token(double keys, double keys_in_window) const {
  const auto of_layers = static_cast<double>(model.layers), windowed = static_cast<double>(windowed_layers());
  const double all = model_flops_per_token(model, config.batch.sequence), rest = model_flops_per_token(model, 0);
  const double seen = ((of_layers - windowed) * keys + windowed * keys_in_window) / of_layers;
  return trained_share() * (rest - head_flops_left_out() + (all - rest) * seen / static_cast<double>(config.batch.sequence));
}

double RunPlan::predicted_flops_per_token() const {
  if (!has_intervals()) return trained_share() * (model_flops_per_token(model, config.batch.sequence) - head_flops_left_out());
  const auto s = static_cast<double>(config.batch.sequence), w = static_cast<double>(window());
  const double keys = config.data.reset_attention_mask ? static_cast<double>(document_interval()) : (s + 1) / 2;
  return flops_per_token(keys, std::min(keys, w * (2 * s - w + 1) / (2 * s)));
}

}  // namespace trident
