#include <string_view>

#include "train/foreign/foreign_key.h"
#include "train/import/facts.h"

namespace trident {
namespace {

// For what another fact says by the way.
void give_beside(Facts& facts, std::string_view name, JsonValue value, const Fact& because) {
  if (!facts.is_given(name)) facts.set(name, {std::move(value), because.origin, because.is_default});
}

void take_deepspeed_default(Facts& facts, std::string_view name, JsonValue value) {
  facts.take(name, {std::move(value), std::string(default_origin(ForeignSystem::kDeepSpeed)), true});
}

// DeepSpeed trains with its default of a number that its file leaves out: Trainer fills in those that are "auto".
void take_left_out(Facts& facts, std::string_view name, JsonValue value, std::initializer_list<std::string_view> ours) {
  if (facts.find("@json") == nullptr) return;
  const bool is_auto = facts.find(fmt::format("@json:{}", name)) != nullptr;
  for (const std::string_view one : ours) {
    const Fact* const said = facts.find(one);
    if (said != nullptr && is_auto) return;
    if (said != nullptr && !said->is_default)
      facts.remark(*said, "DeepSpeed's file leaves this number out, so that DeepSpeed's default counts; \"auto\" would take yours");
    facts.erase(one);
  }
  take_deepspeed_default(facts, name, std::move(value));
}

void derive_accelerate_processes(Facts& facts) {
  const std::string type = facts.text("@distributed_type").value_or("");
  if (type.empty()) return;
  const Fact& because = *facts.find("@distributed_type");
  if (const Fact* const ranks = facts.find("@ranks"); type == "NO" && (ranks == nullptr || !ranks->origin.starts_with("--ranks"))) {
    if (ranks != nullptr) facts.remark(*ranks, "distributed_type NO starts one process");
    facts.set("@ranks", {1, because.origin});
    for (const std::string_view name : {"@nodes", "@ranks_per_node"}) facts.erase(name);
  }
  if (type == "FSDP" && facts.is_given("offload.parameters"))
    for (const std::string_view name : {"offload.optimizer", "offload.gradients"})
      give_beside(facts, name, "host", *facts.find("offload.parameters"));
  if (type == "DEEPSPEED") take_deepspeed_default(facts, "optimizer.grad_clip", 1.0);
  if (type == "MEGATRON_LM") {
    facts.take("recompute.policy", {"full", std::string(default_origin(ForeignSystem::kAccelerate)), true});
    facts.take("optimizer.grad_clip", {1.0, std::string(default_origin(ForeignSystem::kAccelerate)), true});
  }
  give_beside(facts, "parallel.zero", type == "FSDP" ? "zero3" : type == "DEEPSPEED" ? "zero2" : "ddp", because);
}

void derive_deepspeed_precision(Facts& facts) {
  const Fact* const dtype = facts.find("@autocast_dtype");
  if (dtype != nullptr && facts.find("@autocast") != nullptr) {
    const std::string name = facts.text("@autocast_dtype").value_or("");
    const bool is_half = name.ends_with("16") || name == "half";
    facts.take("precision.compute", {!is_half ? "fp32" : name.find('b') != name.npos ? "bf16" : "fp16", dtype->origin});
  }
  // The Trainer sets its own format where the file says "no".
  if (const Fact* const none = facts.find("@mixed_precision"); none != nullptr && facts.find("precision.compute") == nullptr)
    facts.set("precision.compute", {"fp32", none->origin});
  if (facts.is_given("precision.fp8")) give_beside(facts, "precision.compute", "bf16", *facts.find("precision.fp8"));
  if (const Fact* const scale = facts.find("@loss_scale")) {
    if (facts.text("precision.compute") == "fp16")
      facts.take("precision.loss_scale", *scale);
    else
      facts.remark(*scale, "without fp16 the loss is not scaled");
  }
}

// Nothing is accumulated where at most one of the three sizes is given.
void derive_deepspeed_batch(Facts& facts) {
  const bool has_global = facts.is_given("batch.global"), has_micro = facts.is_given("batch.micro");
  if (facts.find("@accumulation") != nullptr) return;
  if (has_global && !has_micro) facts.set("@accumulation", computed(1, {facts.find("batch.global")}));
  if (!has_global && has_micro) take_deepspeed_default(facts, "@accumulation", 1);
}

void derive_deepspeed_optimizer(Facts& facts) {
  if (const Fact* const type = facts.find("@deepspeed_optimizer")) {
    facts.take("optimizer.type", *type);
    take_left_out(facts, "optimizer.lr", 1e-3, {"optimizer.lr"});
    take_left_out(facts, "optimizer.betas", JsonValue::Array{0.9, 0.999}, {"optimizer.betas", "@beta1", "@beta2"});
    if (facts.text("optimizer.type") == "adamw") take_left_out(facts, "optimizer.eps", 1e-8, {"optimizer.eps"});
    take_left_out(facts, "optimizer.weight_decay", 0, {"optimizer.weight_decay"});
  }
  if (const Fact* const schedule = facts.find("@deepspeed_scheduler")) {
    facts.take("lr_schedule.type", *schedule);
    take_left_out(facts, "lr_schedule.warmup_steps", 1000, {"lr_schedule.warmup_steps", "@warmup_ratio"});
    if (facts.text("lr_schedule.type") == "cosine") take_deepspeed_default(facts, "@min_lr_ratio", 1e-4);
  }
}

}  // namespace

void derive_deepspeed(Facts& facts) {
  if (const Fact* const hybrid = facts.find("@hybrid_zero2")) {
    give_beside(facts, "parallel.shard_group", "node", *hybrid);
    give_beside(facts, "parallel.zero", "shard_grad_op", *hybrid);
  }
  derive_accelerate_processes(facts);
  derive_deepspeed_precision(facts);
  derive_deepspeed_optimizer(facts);
  take_left_out(facts, "optimizer.grad_clip", 1.0, {"optimizer.grad_clip"});
  derive_deepspeed_batch(facts);
  if (const Fact* const every = facts.find("@steps_per_print")) {
    if (facts.find("log.every") == nullptr && facts.find("@logging_steps") == nullptr)
      facts.set("log.every", *every);
    else
      facts.remark(*every, "the program's own arguments say log.every");
  }
  for (const std::string_view name : {"@distributed_type", "@mixed_precision", "@autocast", "@autocast_dtype", "@loss_scale",
                                      "@hybrid_zero2", "@deepspeed_optimizer", "@deepspeed_scheduler", "@steps_per_print"})
    facts.erase(name);
}

}  // namespace trident
