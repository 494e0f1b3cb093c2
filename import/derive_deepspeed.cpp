#include <optional>
#include <string_view>

#include "import/facts.h"

namespace trident {
namespace {

void take_default(Facts& facts, std::string_view name, JsonValue value, ForeignSystem system = ForeignSystem::kDeepSpeed) {
  facts.take(name, of_default(system, std::move(value)));
}

// DeepSpeed trains with its default of a number that its file leaves out: Trainer fills in those that are "auto", with its own
// default, `of_trainer` where that is another number.
void take_left_out(Facts& facts, std::string_view name, JsonValue value, std::initializer_list<std::string_view> ours,
                   const std::optional<JsonValue>& of_trainer = {}) {
  if (facts.find("@json") == nullptr) return;
  const bool is_auto = facts.find(fmt::format("@json:{}", name)) != nullptr;
  for (const std::string_view one : ours) {
    if (is_auto && facts.find(one) != nullptr && facts.find(one)->origin != default_origin(ForeignSystem::kDeepSpeed)) return;
    if (facts.is_given(one))
      facts.remark(one, "DeepSpeed's default counts, as its file leaves this number out: write it there, or \"auto\" for Trainer");
    facts.erase(one);
  }
  take_default(facts, name, is_auto ? of_trainer.value_or(value) : value,
               is_auto ? ForeignSystem::kHuggingFace : ForeignSystem::kDeepSpeed);
}

void derive_accelerate_processes(Facts& facts) {
  if (facts.find("@distributed_type") == nullptr) return;
  const Fact type = *facts.find("@distributed_type");
  const std::string name = facts.text("@distributed_type");
  if (const Fact* const ranks = facts.find("@ranks"); name == "NO" && (ranks == nullptr || !ranks->origin.starts_with("--ranks"))) {
    facts.remark("@ranks", "distributed_type NO starts one process");
    for (const std::string_view one : {"@nodes", "@ranks_per_node"}) facts.erase(one);
    facts.set("@ranks", 1, {"@distributed_type"});
  }
  if (name == "DEEPSPEED") take_default(facts, "optimizer.grad_clip", 1.0);
  if (name == "MEGATRON_LM") {
    take_default(facts, "recompute.policy", "full", ForeignSystem::kAccelerate);
    take_default(facts, "optimizer.grad_clip", 1.0, ForeignSystem::kAccelerate);
  }
  facts.take("parallel.zero", {name == "FSDP" ? "zero3" : name == "DEEPSPEED" ? "zero2" : "ddp", type.origin, Weight::kFallback});
}

void derive_precision(Facts& facts) {
  // Trainer refuses what DeepSpeed's file turns off. A torch_autocast, which comes after, has its format beside those.
  for (const char* const format : {"bf16", "fp16"})
    if (const Fact *const off = facts.find(fmt::format("@no_{}", format)), *const said = facts.find("precision.compute");
        off != nullptr && said != nullptr && said->value == JsonValue(format))
      throw ConfigError(fmt::format("{}: {} says otherwise; write true or \"auto\" there", off->origin, said->origin));
  facts.keep_beside("@autocast", {"@autocast_dtype"}, "torch_autocast.enabled");
  if (const Fact* const dtype = facts.find("@autocast_dtype")) {
    const std::string name = facts.word("@autocast_dtype");
    const bool is_half = name.ends_with("16") || name == "half";
    facts.take("precision.compute", {!is_half ? "fp32" : name.find('b') != name.npos ? "bf16" : "fp16", dtype->origin});
  }
  // The program sets its own format where the file says "no".
  if (facts.find("precision.compute") == nullptr && facts.find("@mixed_precision") != nullptr)
    facts.set("precision.compute", "fp32", {"@mixed_precision"});
  if (const Fact* const fp8 = facts.find("precision.fp8"))
    facts.take("precision.compute", {"bf16", fp8->origin, Weight::kFallback});
  if (const std::optional<Fact> flag = facts.find("@json") == nullptr ? std::nullopt : facts.pull("precision.loss_scale"))
    facts.remark(*flag, "DeepSpeed's file counts in its place, and finds the scale while training where it says none");
  if (facts.is("precision.compute", "fp16") && facts.find("@loss_scale") != nullptr)
    facts.take("precision.loss_scale", *facts.find("@loss_scale"));
  else
    facts.remark("@loss_scale", "without fp16 the loss is not scaled");
}

void derive_optimizer(Facts& facts) {
  if (const Fact* const type = facts.find("@deepspeed_optimizer")) {
    facts.take("optimizer.type", *type);
    take_left_out(facts, "optimizer.lr", 1e-3, {"optimizer.lr"}, 5e-5);
    take_left_out(facts, "optimizer.betas", JsonValue::Array{0.9, 0.999}, {"optimizer.betas", "@beta1", "@beta2"});
    if (facts.is("optimizer.type", "adamw")) take_left_out(facts, "optimizer.eps", 1e-8, {"optimizer.eps"});
    take_left_out(facts, "optimizer.weight_decay", 0, {"optimizer.weight_decay"});
  }
  if (const Fact* const schedule = facts.find("@deepspeed_scheduler")) {
    facts.take("lr_schedule.type", *schedule);
    const Fact* const lr = facts.find("optimizer.lr");  // an "auto" of warmup_max_lr is the lr of a command
    const std::string from = lr == nullptr ? "optimizer.params.lr" : lr->origin;
    if (!facts.is("lr_schedule.type", "cosine") && from.find("optimizer.params.lr") != std::string::npos &&
        from.find("warmup_max_lr") == std::string::npos)
      facts.remark("@deepspeed_scheduler", "without warmup_max_lr it climbs to 0.001, here to optimizer.lr");
    take_left_out(facts, "lr_schedule.warmup_steps", 1000, {"lr_schedule.warmup_steps", "@warmup_ratio"}, 0);
    if (facts.is("lr_schedule.type", "cosine")) take_default(facts, "@min_lr_ratio", 1e-4);
  }
  take_left_out(facts, "optimizer.grad_clip", 1.0, {"optimizer.grad_clip"});
}

}  // namespace

void derive_deepspeed(Facts& facts) {
  derive_accelerate_processes(facts);
  derive_precision(facts);
  derive_optimizer(facts);
  // Nothing is accumulated where at most one of the three sizes is given.
  const bool has_global = facts.is_given("batch.global"), has_micro = facts.is_given("batch.micro");
  if (facts.find("@accumulation") == nullptr && has_global != has_micro)
    facts.set("@accumulation", has_global ? computed(1, {facts.find("batch.global")}) : of_default(ForeignSystem::kDeepSpeed, 1));
  if (facts.find("log.every") == nullptr && facts.find("@logging_steps") == nullptr && facts.find("@steps_per_print") != nullptr)
    facts.set("log.every", *facts.find("@steps_per_print"));
  else
    facts.remark("@steps_per_print", "the program's own arguments say log.every");
}

}  // namespace trident
