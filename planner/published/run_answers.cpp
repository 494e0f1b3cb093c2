#include "planner/published/run_answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "planner/published/layout_pricing.h"
#include "planner/published/stack_memory.h"
#include "planner/published/training_row.h"

namespace trident {

namespace {

JsonValue whole_bytes(double bytes) { return JsonValue(static_cast<std::int64_t>(std::llround(bytes))); }

ClusterLinks links_of(const TrainingRow& row, const GpuRates& gpu) {
  ClusterLinks links{std::max(row.gpus_per_node, gpu.nvlink_domain), gpu.nvlink, gpu.network};
  if (row.network_bytes_per_s > 0) links.network.bytes_per_s = row.network_bytes_per_s / row.gpus_per_node;
  return links;
}

bool has_kernel(const GpuRates& gpu, std::string_view attention) {
  return std::any_of(gpu.attention.begin(), gpu.attention.end(),
                     [&](const AttentionRates& rates) { return rates.kernel == attention; });
}

// The kernel of a row that names none: its stack's, another of the GPU where that has no such one, at last separate kernels.
std::string kernel_by_default(const GpuRates& gpu, const TrainingStack& stack) {
  if (find_score_kernels(stack.when_not_said.attention)) return stack.when_not_said.attention;
  for (const std::string_view kernel :
       {std::string_view(stack.when_not_said.attention), std::string_view("flash2"), std::string_view("flash1")})
    if (has_kernel(gpu, kernel)) return std::string(kernel);
  return "unfused";
}

// The attention kernel that ran (one that the GPU's profile does not know is left for pricing to refuse).
void settle_attention(const GpuRates& gpu, const TrainingStack& stack, RowReading& reading) {
  TrainingRow& run = reading.row;
  if (reading.open.attention) run.attention = kernel_by_default(gpu, stack);
  const bool known = has_kernel(gpu, run.attention) || find_score_kernels(run.attention);
  // A row that recomputes says itself whether scores were kept.
  const int year = run.recompute == Recompute::kNone ? run.year : 0;
  const std::string ran(attention_that_ran(stack, run.attention, run.plain_block, year));
  const bool corrected = known && ran != run.attention;
  if (corrected) run.attention = ran;
  if (corrected || reading.open.attention) reading.assumed.push_back({"stack.attention", run.attention});
}

// Lists what a row leaves to its stack, but for recomputation that memory asks for.
void settle_by_stack(const GpuRates& gpu, const TrainingStack& stack, RowReading& reading) {
  TrainingRow& run = reading.row;
  const StackDefaults& defaults = stack.when_not_said;
  if (reading.open.sequence_parallel) {
    run.sequence_parallel = stack.sequence_parallel && run.tp > 1;
    reading.assumed.push_back({"parallel.sp", run.sequence_parallel});
  }
  if (reading.open.zero) {
    run.zero = defaults.zero.stage;
    run.zero_by_number = defaults.zero.by_number;
    reading.assumed.push_back(
        {"parallel.zero", run.zero == 1 && !run.zero_by_number ? JsonValue("dist-opt") : JsonValue(run.zero)});
  }
  if (reading.open.fused_norm) {
    run.fused_norm = defaults.fused_norm;
    reading.assumed.push_back({"stack.fused_rms_norm", run.fused_norm});
  }
  if (reading.open.recompute) run.recompute = defaults.recompute;
  settle_attention(gpu, stack, reading);
}

// A GPU with as much memory as the text about the cluster says, where its name says another number.
GpuRates gpu_of(const GpuRates& named, RowReading& reading) {
  const double said = reading.row.memory_gb, usual = memory_of(named.name);
  GpuRates gpu = named;
  if (said == 0 || usual == 0 || said == usual) return gpu;
  gpu.device_bytes = named.device_bytes * said / usual;
  reading.assumed.push_back({"cluster.gpu", fmt::format("with {} GB, as cluster.interconnect says", said)});
  return gpu;
}

// The lightest recomputation with which a run fits that does not say what it recomputes: as its stack does by default, otherwise
// what lies between that and all blocks in full, with as few of those as will do. Where the stack offloads to a host that is near,
// blocks keep their inputs without being computed again. Nothing fits: the default.
void fill_recompute(const PricingInput& in, RowReading& reading) {
  TrainingRow& run = reading.row;  // which `in` sees
  StageSplit split = split_stages(in);
  const auto fits = [&] { return price_memory(in, split).fits; };
  std::string filled(to_string(run.recompute));
  const Recompute usual = run.recompute;
  bool fitting = fits();
  if (!fitting && usual == Recompute::kNone && find_score_kernels(run.attention)) {  // no scores are kept, little is done again
    run.recompute = Recompute::kSelective;
    split = split_stages(in);
    fitting = fits();
    if (fitting)
      filled = "selective, as none does not fit";
    else
      run.recompute = usual, split = split_stages(in);
  }
  if (!fitting && usual != Recompute::kFull) {
    const int blocks = (run.layers + run.pp - 1) / run.pp;  // of a rank; those of its virtual stages recompute alike
    const bool offloads = in.stack.when_not_said.offloads && in.gpu.nvlink_domain > 0;  // such GPUs reach their host over NVLink
    double& share = offloads ? run.offloaded_share : run.full_share;
    const auto fits_with = [&](int full) {
      share = static_cast<double>(full) / blocks;
      return fits();
    };
    int too_few = 0, enough = blocks;
    fitting = fits_with(blocks);
    while (fitting && enough - too_few > 1) {
      const int half = too_few + (enough - too_few) / 2;
      (fits_with(half) ? enough : too_few) = half;
    }
    share = fitting ? static_cast<double>(enough) / blocks : 0;
    if (fitting && offloads)
      filled = fmt::format("{}, and {} of {} blocks of a rank offloaded, as all do not fit", to_string(usual), enough, blocks);
    else if (fitting && enough == blocks)
      filled = fmt::format("full, as {} does not fit", to_string(usual));
    else if (fitting)
      filled = fmt::format("full in {} of {} blocks of a rank, as {} does not fit", enough, blocks, to_string(usual));
  }
  reading.assumed.push_back({"recompute", filled});
}

std::string names_of(const PublishedBook& book) {
  std::string names;
  for (const GpuRates& gpu : book.hardware) names += (names.empty() ? "" : ", ") + gpu.name;
  return names;
}

// Returns what a family's name ("H100") or one in other letters may have meant; "" without any.
std::string names_with(const PublishedBook& book, std::string_view said) {
  std::string names;
  for (const GpuRates& gpu : book.hardware)
    if (in_small_letters(gpu.name).starts_with(in_small_letters(said))) names += (names.empty() ? "" : " or ") + gpu.name;
  return names.empty() ? names : fmt::format(", did you mean {}?", names);
}

std::string stacks_of(const PublishedBook& book) {
  std::set<std::string> first;  // stacks of several years share a name
  for (const TrainingStack& stack : book.stacks) first.insert(stack.frameworks.front());
  return fmt::format("{}", fmt::join(first, ", "));
}

JsonValue::Object time_parts(const RowPrice& price) {
  return {{"compute", price.compute_s},    {"recompute", price.recompute_s}, {"bubble", price.bubble_s},
          {"tensor_parallel", price.tp_s}, {"data_parallel", price.dp_s},    {"optimizer", price.optimizer_s},
          {"launch", price.launch_s},      {"fixed", price.fixed_s}};
}

JsonValue::Object memory_parts(const MemoryPrice& memory) {
  const double outside = memory.device - memory.peak_allocated;
  return {{"parameters", whole_bytes(memory.parameters)},   {"gathered_parameters", whole_bytes(memory.gathered)},
          {"gradients", whole_bytes(memory.gradients)},     {"optimizer", whole_bytes(memory.optimizer)},
          {"activations", whole_bytes(memory.activations)}, {"logits", whole_bytes(memory.logits)},
          {"workspace", whole_bytes(memory.workspace)},     {"outside_allocated", whole_bytes(outside)}};
}

}  // namespace

JsonValue::Object answer_run(const CaseRow& row, const PublishedBook& book) {
  RowReading reading = read_training_row(row.fields);
  const TrainingRow& run = reading.row;
  const GpuRates* named = find_profile(book.hardware, run.gpu);
  if (!named)
    throw UnsupportedCase(fmt::format("cluster.gpu = {}: no profile of it{}; there are {}", in_quotes(run.gpu),
                                      names_with(book, run.gpu), names_of(book)));
  const TrainingStack* stack = find_stack(book.stacks, run.framework, run.year);
  if (!stack)
    throw UnsupportedCase(
        fmt::format("stack.framework = {}: no such stack is known; there are {}", in_quotes(run.framework), stacks_of(book)));
  const GpuRates gpu = gpu_of(*named, reading);
  settle_by_stack(gpu, *stack, reading);
  const PricingInput in{run, gpu, *stack, links_of(run, gpu)};
  if (const std::string why = why_not_priced(in); !why.empty()) throw UnsupportedCase(why);
  if (reading.open.recompute) fill_recompute(in, reading);
  const StageSplit split = split_stages(in);
  const RowPrice price = price_row(in, split);
  const MemoryPrice memory = price_memory(in, split);
  if (!std::isfinite(price.step_s) || !(memory.device < 1e18)) throw UnsupportedCase("the sizes are beyond what can be priced");

  JsonValue::Object answer;
  answer.push_back({"step_time_s", price.step_s});
  answer.push_back({"tokens_per_s_per_gpu", run.global_batch * run.sequence / (price.step_s * run.gpus)});
  answer.push_back({"time_parts_s", time_parts(price)});
  answer.push_back({"peak_allocated_bytes", whole_bytes(memory.peak_allocated)});
  answer.push_back(
      {"peak_memory_bytes", whole_bytes(stack->when_not_said.reports_device_memory ? memory.device : memory.peak_allocated)});
  answer.push_back({"device_bytes", whole_bytes(memory.device)});
  answer.push_back({"least_device_bytes", whole_bytes(memory.least_device)});
  answer.push_back({"capacity_bytes", whole_bytes(gpu.device_bytes)});
  answer.push_back({"fits", memory.fits});
  answer.push_back({"memory_parts", memory_parts(memory)});
  answer.push_back({"pipeline_rank", memory.pipeline_rank});
  JsonValue::Object assumed;
  for (const AssumedValue& value : reading.assumed) assumed.push_back({value.path, value.value});
  if (!split.assumed.empty()) assumed.push_back({"parallel.layers", split.assumed});
  answer.push_back({"assumed", assumed});
  if (!reading.not_read.empty()) {
    JsonValue::Array paths;
    for (const std::string& path : reading.not_read) paths.emplace_back(path);
    answer.push_back({"not_read", JsonValue(std::move(paths))});
  }
  return answer;
}

}  // namespace trident
