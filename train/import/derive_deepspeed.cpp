#include <array>
#include <string_view>

#include "train/import/facts.h"

namespace trident {
namespace {

constexpr std::string_view kDefault = "DeepSpeed's default";

// For what another fact says by the way.
void give(Facts& facts, std::string_view name, JsonValue value, const Fact& because) {
  if (!facts.is_given(name)) facts.set(name, {std::move(value), because.origin, because.is_default});
}

void take_default(Facts& facts, std::string_view name, JsonValue value) {
  facts.take(name, {std::move(value), std::string(kDefault), true});
}

void derive_processes(Facts& facts) {
  const std::string type = facts.text("@distributed_type").value_or("");
  if (type.empty()) return;
  const Fact& because = *facts.find("@distributed_type");
  if (type == "NO") {
    facts.set("@ranks", {1, because.origin});
    for (const std::string_view name : {"@nodes", "@ranks_per_node"}) facts.erase(name);
  }
  if (type == "FSDP" && facts.is_given("offload.parameters"))
    for (const std::string_view name : {"offload.optimizer", "offload.gradients"})
      give(facts, name, "host", *facts.find("offload.parameters"));
  give(facts, "parallel.zero", type == "FSDP" ? "zero3" : type == "DEEPSPEED" ? "zero2" : "ddp", because);
}

// Accelerate's degrees are 1 where they are left out; all of them 1 says nothing.
void derive_degrees(Facts& facts) {
  const Fact* const replicate = facts.find("@replicate");
  const Fact* const shard = facts.find("@shard");
  if (replicate == nullptr && shard == nullptr) return;
  const Fact because = shard != nullptr ? *shard : *replicate;
  const std::int64_t copies = facts.integer("@replicate").value_or(1), shares = facts.integer("@shard").value_or(1);
  if (copies > 1 && shares > 1) return;
  if (copies > 1) give(facts, "parallel.zero", "ddp", because);
  const bool says_nothing =
      copies * shares * facts.integer("parallel.tensor").value_or(1) * facts.integer("parallel.context").value_or(1) == 1;
  if (!says_nothing) facts.take("parallel.data", {copies * shares, because.origin});
  for (const std::string_view name : {"@replicate", "@shard"}) facts.erase(name);
}

void derive_precision(Facts& facts) {
  const Fact* const dtype = facts.find("@autocast_dtype");
  if (dtype != nullptr && facts.find("@autocast") != nullptr) {
    const std::string name = facts.text("@autocast_dtype").value_or("");
    const bool is_half = name.ends_with("16") || name == "half";
    facts.take("precision.compute", {!is_half ? "fp32" : name.find('b') != name.npos ? "bf16" : "fp16", dtype->origin});
  }
  // The Trainer sets its own format where the file says "no".
  if (const Fact* const none = facts.find("@mixed_precision"); none != nullptr && facts.find("precision.compute") == nullptr)
    facts.set("precision.compute", {"fp32", none->origin});
  if (facts.is_given("precision.fp8")) give(facts, "precision.compute", "bf16", *facts.find("precision.fp8"));
  if (const Fact* const scale = facts.find("@loss_scale"); scale != nullptr && facts.text("precision.compute") == "fp16")
    facts.take("precision.loss_scale", *scale);
}

void derive_optimizer(Facts& facts) {
  if (const Fact* const type = facts.find("@deepspeed_optimizer")) {
    facts.take("optimizer.type", *type);
    take_default(facts, "optimizer.lr", 1e-3);
    if (facts.find("@beta1") == nullptr && facts.find("@beta2") == nullptr)
      take_default(facts, "optimizer.betas", JsonValue::Array{0.9, 0.999});
    if (facts.text("optimizer.type") == "adamw") take_default(facts, "optimizer.eps", 1e-8);
    take_default(facts, "optimizer.weight_decay", 0);
  }
  if (const Fact* const schedule = facts.find("@deepspeed_scheduler")) {
    facts.take("lr_schedule.type", *schedule);
    if (facts.find("@warmup_ratio") == nullptr) take_default(facts, "lr_schedule.warmup_steps", 1000);
    if (facts.text("lr_schedule.type") == "cosine") take_default(facts, "@min_lr_ratio", 1e-4);
  }
}

}  // namespace

void derive_deepspeed(Facts& facts) {
  if (const Fact* const hybrid = facts.find("@hybrid_zero2")) {
    give(facts, "parallel.shard_group", "node", *hybrid);
    give(facts, "parallel.zero", "shard_grad_op", *hybrid);
  }
  derive_degrees(facts);
  derive_processes(facts);
  derive_precision(facts);
  derive_optimizer(facts);
  // DeepSpeed and Accelerate accumulate nothing where of the three sizes at most one is given.
  if (facts.is_given("batch.global") != facts.is_given("batch.micro")) take_default(facts, "@accumulation", 1);
  if (const Fact* const every = facts.find("@steps_per_print");
      every != nullptr && facts.find("log.every") == nullptr && facts.find("@logging_steps") == nullptr)
    facts.set("log.every", *every);
  for (const std::string_view name : {"@distributed_type", "@mixed_precision", "@autocast", "@autocast_dtype", "@loss_scale",
                                      "@hybrid_zero2", "@deepspeed_optimizer", "@deepspeed_scheduler", "@steps_per_print"})
    facts.erase(name);
}

}  // namespace trident
