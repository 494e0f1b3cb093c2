#include "planner/published/stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/check.h"
#include "planner/price/sourced_object.h"

namespace trident {

namespace {

RowTraffic read_traffic(SourcedObject object) {
  const RowTraffic traffic{object.number("forward", 0, 1000), object.number("backward", 0, 1000)};
  object.finish();
  return traffic;
}

void read_host(SourcedObject object, TrainingStack& stack) {
  stack.issue_s = object.number("issue_us", 0, 1e4) * 1e-6;
  stack.block_kernels_forward = object.number("block_kernels_forward", 0, 1e4);
  stack.block_kernels_backward = object.number("block_kernels_backward", 0, 1e4);
  stack.plain_norm_kernels = object.number("plain_norm_kernels", 0, 1e4);
  stack.checkpoint_s = object.number("checkpoint_us", 0, 1e5) * 1e-6;
  stack.micro_batch_s = object.number("micro_batch_ms", 0, 1e4) * 1e-3;
  stack.step_s = object.number("step_ms", 0, 1e5) * 1e-3;
  object.finish();
}

void read_rows(SourcedObject object, TrainingStack& stack) {
  stack.norm = read_traffic(object.object("norm"));
  stack.plain_norm = read_traffic(object.object("plain_norm"));
  stack.activation = read_traffic(object.object("activation"));
  stack.gated = read_traffic(object.object("gated"));
  stack.residual = read_traffic(object.object("residual"));
  stack.copies = read_traffic(object.object("copies"));
  stack.rope = read_traffic(object.object("rope"));
  stack.logits = read_traffic(object.object("logits"));
  object.finish();
}

void read_memory(SourcedObject object, TrainingStack& stack) {
  stack.saved_gated_bytes = object.number("gated_bytes", 0, 100);
  stack.saved_plain_norm_bytes = object.number("plain_norm_bytes", 0, 100);
  stack.logit_bytes = object.number("logit_bytes", 0, 100);
  stack.dearest_logit_bytes = object.number("dearest_logit_bytes", 0, 100);
  stack.dropout = object.flag("dropout");
  stack.bias = object.flag("bias");
  stack.gradient_bytes_fp16 = object.number("gradient_bytes_fp16", 2, 8);
  stack.gradient_bytes_bf16 = object.number("gradient_bytes_bf16", 2, 8);
  stack.gradient_bytes_zero = object.number("gradient_bytes_zero", 2, 8);
  stack.allocator_slack = object.number("allocator_slack", 0, 1);
  object.finish();
}

void read_traffic_between(SourcedObject object, TrainingStack& stack) {
  stack.wire_bytes = object.number("wire_bytes", 0, 4);
  stack.overlap_reduce = object.flag("overlap_reduce");
  stack.overlap_gather = object.flag("overlap_gather");
  stack.stages_keep_gathered = object.flag("stages_keep_gathered");
  stack.sharded_network_share = object.number("sharded_network_share", 0.001, 1);
  stack.gather_ahead = object.flag("gather_ahead");
  stack.sequence_parallel = object.flag("sequence_parallel");
  stack.split_messages = object.flag("split_messages");
  stack.overlap_messages = object.flag("overlap_messages");
  stack.hidden_tp_forward = object.number("hidden_tp_forward", 0, 1);
  stack.hidden_tp_backward = object.number("hidden_tp_backward", 0, 1);
  object.finish();
}

void read_defaults(SourcedObject object, std::string_view where, StackDefaults& defaults) {
  const auto refuse = [&](std::string_view key, std::string_view wanted) {
    throw ConfigError(fmt::format("{}.when_not_said.{}: is not known; write {}", where, key, wanted));
  };
  const std::optional<Recompute> recompute = recompute_of(object.sourced_text("recompute"));
  if (!recompute) refuse("recompute", "none, selective, selective per-op or full");
  defaults.recompute = *recompute;
  const std::optional<ZeroWords> zero = zero_of(object.sourced_text("zero"));
  if (!zero) refuse("zero", "none, dist-opt, zero-1, zero-2 or FSDP");
  defaults.zero = *zero;
  defaults.attention = object.sourced_text("attention");
  defaults.fused_norm = object.flag("fused_rms_norm");
  defaults.offloads = object.flag("offloads");
  const std::string memory = object.sourced_text("reported_memory");
  if (memory != "allocated" && memory != "device") refuse("reported_memory", "allocated or device");
  defaults.reports_device_memory = memory == "device";
  object.finish();
}

// Bytes by the operations of Megatron-LM's core attention. Fused: QK^T written (2), one kernel scales, masks and normalises
// (2 + 2), dropout reads, writes and keeps a mask (5), the product with V reads (2). Separate: scale (4), mask (5), conversion to
// fp32 (6), softmax (8), conversion back (6) in place of the one kernel. Backward likewise, with the gradients read beside.
constexpr ScoreKernels kScoreKernels[] = {
    {"megatron_fused_softmax", {13, 21}, 8, 5, 4},
    {"unfused", {38, 46}, 13, 9, 8},
};

}  // namespace

TrainingStack stack_from_json(const JsonValue& value, std::string_view where) {
  SourcedObject object(value, std::string(where));
  TrainingStack stack;
  stack.name = object.text("name");
  stack.frameworks = object.texts("frameworks");
  if (stack.frameworks.empty())
    throw ConfigError(fmt::format("{}.frameworks: is empty; write the names that tables have for it", where));
  stack.first_year = object.whole_number("first_year", 0, 9999);
  stack.last_year = object.whole_number("last_year", 0, 9999);
  stack.gpt_scores_until = object.whole_number("gpt_scores_until", 0, 9999);
  read_host(object.object("host"), stack);
  read_rows(object.object("rows"), stack);
  read_memory(object.object("memory"), stack);
  read_traffic_between(object.object("communication"), stack);
  stack.optimizer_traffic = object.number("optimizer_traffic", 0, 1000);
  stack.gradient_traffic = object.number("gradient_traffic", 0, 1000);
  stack.narrow_inputs = object.flag("narrow_inputs");
  stack.fused_scores = object.flag("fused_scores");
  read_defaults(object.object("when_not_said"), where, stack.when_not_said);
  object.finish();
  return stack;
}

const TrainingStack* find_stack(const std::vector<TrainingStack>& stacks, std::string_view framework_in_table, int year) {
  std::string framework(framework_in_table);
  for (char& c : framework)
    c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
  const TrainingStack* latest = nullptr;
  for (const TrainingStack& stack : stacks) {
    if (std::find(stack.frameworks.begin(), stack.frameworks.end(), framework) == stack.frameworks.end()) continue;
    if (year >= stack.first_year && year <= stack.last_year) return &stack;
    if (!latest || stack.last_year > latest->last_year) latest = &stack;
  }
  return latest;
}

std::string_view attention_that_ran(const TrainingStack& stack, std::string_view named, bool plain_block, int year) {
  const bool by_default = plain_block && year > 0 && year <= stack.gpt_scores_until;
  if (by_default && !find_score_kernels(named)) return kScoreKernels[0].name;
  return stack.fused_scores && named == kScoreKernels[1].name ? kScoreKernels[0].name : named;
}

const ScoreKernels* find_score_kernels(std::string_view attention) {
  for (const ScoreKernels& kernels : kScoreKernels)
    if (kernels.name == attention) return &kernels;
  return nullptr;
}

}  // namespace trident
