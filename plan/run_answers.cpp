#include "plan/run_answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "plan/layout_pricing.h"
#include "plan/stack_memory.h"
#include "plan/training_row.h"

namespace trident {

namespace {

JsonValue whole_bytes(double bytes) { return JsonValue(static_cast<std::int64_t>(std::llround(bytes))); }

ClusterLinks links_of(const TrainingRow& row, const GpuRates& gpu) {
  ClusterLinks links{std::max(row.gpus_per_node, gpu.nvlink_domain), gpu.nvlink, gpu.network};
  if (row.network_bytes_per_s > 0) links.network.bytes_per_s = row.network_bytes_per_s / row.gpus_per_node;
  return links;
}

// What a row leaves to its stack, and the attention kernel that ran (one that the GPU's profile does not know is left for pricing
// to refuse).
void settle_by_stack(const GpuRates& gpu, const TrainingStack& stack, RowReading& reading) {
  TrainingRow& run = reading.row;
  if (reading.sequence_parallel_open) {
    run.sequence_parallel = stack.sequence_parallel;
    reading.assumed.push_back({"parallel.sp", run.sequence_parallel});
  }
  const bool known = std::any_of(gpu.attention.begin(), gpu.attention.end(),
                                 [&](const AttentionRates& rates) { return rates.kernel == run.attention; });
  const std::string_view ran = attention_that_ran(stack, run.attention, run.plain_block, run.year);
  // A row that recomputes says itself what became of scores.
  if (!known || run.recompute != Recompute::kNone || ran == run.attention) return;
  run.attention = ran;
  std::erase_if(reading.assumed, [](const AssumedValue& value) { return value.path == "stack.attention"; });
  reading.assumed.push_back({"stack.attention", run.attention});
}

std::string names_of(const PriceBook& book) {
  std::string names;
  for (const GpuRates& gpu : book.hardware) names += (names.empty() ? "" : ", ") + gpu.name;
  return names;
}

std::string stacks_of(const PriceBook& book) {
  std::set<std::string> first;  // stacks of several years share a name
  for (const TrainingStack& stack : book.stacks) first.insert(stack.frameworks.front());
  return fmt::format("{}", fmt::join(first, ", "));
}

JsonValue::Object time_parts(const RowPrice& price) {
  return {{"compute", price.compute_s},   {"recompute", price.recompute_s}, {"bubble", price.bubble_s},
          {"tensor_parallel", price.tp_s}, {"data_parallel", price.dp_s},    {"optimizer", price.optimizer_s},
          {"launch", price.launch_s},      {"fixed", price.fixed_s}};
}

JsonValue::Object memory_parts(const MemoryPrice& memory) {
  const double outside = memory.device - memory.peak_allocated;
  return {{"parameters", whole_bytes(memory.parameters)},
          {"gathered_parameters", whole_bytes(memory.gathered)},
          {"gradients", whole_bytes(memory.gradients)},
          {"optimizer", whole_bytes(memory.optimizer)},
          {"activations", whole_bytes(memory.activations)},
          {"logits", whole_bytes(memory.logits)},
          {"workspace", whole_bytes(memory.workspace)},
          {"outside_allocated", whole_bytes(outside)}};
}

}  // namespace

JsonValue::Object answer_run(const CaseRow& row, const PriceBook& book) {
  RowReading reading = read_training_row(row.fields);
  if (!reading.unsupported.empty()) throw UnsupportedCase(reading.unsupported);
  const TrainingRow& run = reading.row;
  const GpuRates* gpu = find_profile(book.hardware, run.gpu);
  if (!gpu)
    throw UnsupportedCase(fmt::format("cluster.gpu = {}: no profile of it; there are {}", in_quotes(run.gpu), names_of(book)));
  const TrainingStack* stack = find_stack(book.stacks, run.framework, run.year);
  if (!stack)
    throw UnsupportedCase(
        fmt::format("stack.framework = {}: no such stack is known; there are {}", in_quotes(run.framework), stacks_of(book)));

  settle_by_stack(*gpu, *stack, reading);
  const PricingInput in{run, *gpu, *stack, links_of(run, *gpu)};
  const PricingResult priced = price_row(in);
  if (!priced.unsupported.empty()) throw UnsupportedCase(priced.unsupported);
  const StageSplit split = split_stages(in);
  const MemoryPrice memory = price_memory(in, split);
  if (!std::isfinite(priced.price.step_s) || !(memory.device < 1e18))
    throw UnsupportedCase("the sizes are beyond what can be priced");

  JsonValue::Object answer;
  answer.push_back({"step_time_s", priced.price.step_s});
  answer.push_back({"tokens_per_s_per_gpu", run.global_batch * run.sequence / (priced.price.step_s * run.gpus)});
  answer.push_back({"time_parts_s", time_parts(priced.price)});
  answer.push_back({"peak_allocated_bytes", whole_bytes(memory.peak_allocated)});
  answer.push_back({"peak_memory_bytes", whole_bytes(memory.peak_allocated)});
  answer.push_back({"device_bytes", whole_bytes(memory.device)});
  answer.push_back({"fits", memory.fits});
  answer.push_back({"memory_parts", memory_parts(memory)});
  answer.push_back({"pipeline_rank", memory.pipeline_rank});
  JsonValue::Object assumed;
  for (const AssumedValue& value : reading.assumed) assumed.push_back({value.path, value.value});
  if (!split.assumed.empty()) assumed.push_back({"parallel.layers", split.assumed});
  if (!assumed.empty()) answer.push_back({"assumed", assumed});
  return answer;
}

}  // namespace trident
