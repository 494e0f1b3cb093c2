// Does as Trainer, TRL and the programs around them compute from several arguments, and TRL's own defaults. Facts of their tables
// alone:
//   @program, @stage                    whose defaults count; what trains: "sft", "pt", "dpo", "ipo"
//   @scheduler                          "constant", which has no warm-up there
//   @fsdp, @deepspeed                   words of fsdp, names of presets
//   @use_dora, @bf16_off, @checkpointing_off
//   @packing, @packing_strategy         "packed", "one" or "stream"; how
//   @dtype                              of the weights, which precision.compute follows where nothing says it
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "train/foreign/foreign_key.h"
#include "train/import/facts.h"

namespace trident {
namespace {

enum class Stage : std::uint8_t { kTrainer, kPretrain, kSft, kDpo };

// The fact as a word in small letters; YAML's no is false. "": nobody says so.
std::string word_of(const Fact* fact) {
  if (fact == nullptr || fact->value.is_null()) return "";
  std::string word = fact->value.is_string() ? fact->value.as_string() : to_json_text(fact->value);
  std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return word == "false" ? "no" : word;
}

// A value follows from the fact `source`: given where that is given, by its place.
void follow(Facts& facts, std::string_view name, JsonValue value, const Fact& source) {
  facts.take(name, {std::move(value), source.origin, source.is_default});
}

// A default of a program that builds on Trainer, in the place of Trainer's own.
void fill(Facts& facts, std::string_view name, JsonValue value, std::string_view origin) {
  const Fact* const now = facts.find(name);
  if (now == nullptr || (now->is_default && now->origin == default_origin(ForeignSystem::kHuggingFace)))
    facts.set(name, {std::move(value), std::string(origin), true});
}

bool has_defaults_of(const Facts& facts, ForeignSystem system) {
  return std::ranges::any_of(facts.all(), [&](const auto& fact) { return fact.second.origin == default_origin(system); });
}

bool has_adapter(const Facts& facts) {
  const Fact* const type = facts.find("adapter.type");
  return type != nullptr && !type->value.is_null();
}

// The stage that @stage names (ms-swift, axolotl, LLaMA-Factory), or a word in the name of the program ("run_sft.py", "trl dpo").
Stage stage_of(const Facts& facts) {
  const Fact* said = facts.find("@stage");
  if (said == nullptr) said = facts.find("@program");
  if (said == nullptr) {
    if (facts.is_given("loss.beta") || facts.is_given("loss.variant")) return Stage::kDpo;
    return facts.is_given("batch.sequence") || facts.is_given("@packing") ? Stage::kSft : Stage::kTrainer;
  }
  const std::string path = word_of(said);
  const std::string name = fmt::format("_{}_", path.substr(path.find_last_of("/ ") + 1));
  const auto has = [&](std::string_view word) {
    const std::size_t at = name.find(word);
    return at != name.npos && std::string_view("_-.").find(name[at - 1]) != std::string_view::npos &&
           std::string_view("_-.").find(name[at + word.size()]) != std::string_view::npos;
  };
  for (const std::string_view other : {"grpo", "kto", "orpo", "rloo", "ppo", "reward", "gkd", "cpo", "simpo", "distillation"})
    if (has(other))
      throw ConfigError(
          fmt::format("{}: no training by {} here; take supervised fine-tuning (sft), pre-training or dpo", said->origin, other));
  if (has("dpo") || has("ipo") || has("rlhf")) return Stage::kDpo;
  return has("sft") ? Stage::kSft : has("pt") ? Stage::kPretrain : Stage::kTrainer;
}

void fill_trl_defaults(Facts& facts, Stage stage) {
  const std::string_view origin = stage == Stage::kDpo ? "DPOConfig's default" : "SFTConfig's default";
  fill(facts, "optimizer.lr", stage == Stage::kDpo ? 1e-6 : 2e-5, origin);
  fill(facts, "batch.sequence", 1024, origin);
  fill(facts, "@logging_steps", 10, origin);
  if (facts.find("@checkpointing_off") == nullptr) fill(facts, "recompute.policy", "full", origin);
  if (facts.find("@bf16_off") == nullptr) fill(facts, "precision.compute", "bf16", origin);
  if (stage == Stage::kDpo) fill(facts, "model.dropout", 0, origin);
  if (!has_adapter(facts)) return;
  fill(facts, "adapter.r", 16, "ModelConfig's default");
  fill(facts, "adapter.alpha", 32, "ModelConfig's default");
  fill(facts, "adapter.dropout", 0.05, "ModelConfig's default");
  const bool is_gpt2 = word_of(facts.find("@model")).find("gpt2") != std::string::npos;
  fill(facts, "adapter.target_modules", is_gpt2 ? JsonValue::Array{"c_attn"} : JsonValue::Array{"q_proj", "v_proj"},
       "PEFT's default");
}

// Defaults of ms-swift and LLaMA-Factory that depend on other arguments.
void fill_computed_defaults(Facts& facts) {
  const std::string_view swift = default_origin(ForeignSystem::kSwift), factory = default_origin(ForeignSystem::kLlamaFactory);
  const Fact* const lr = facts.find("optimizer.lr");
  if (lr != nullptr && lr->origin == swift && !has_adapter(facts)) facts.set("optimizer.lr", {1e-5, std::string(swift), true});
  if (has_defaults_of(facts, ForeignSystem::kSwift) && !facts.is_given("@accumulation") && !facts.is_given("batch.global")) {
    const double at_once = static_cast<double>(facts.positive("batch.micro").value_or(1)) *
                           static_cast<double>(facts.positive("@ranks").value_or(1));
    facts.set("@accumulation", {whole_number(std::ceil(16 / at_once), {}), std::string(swift), true});
  }
  if (has_adapter(facts) && has_defaults_of(facts, ForeignSystem::kLlamaFactory) && facts.find("adapter.alpha") == nullptr)
    facts.set("adapter.alpha", {2.0 * facts.number("adapter.r").value_or(8), std::string(factory), true});
}

void erase_block(Facts& facts, std::string_view prefix) {
  std::vector<std::string> unused;
  for (const auto& [name, fact] : facts.all())
    if (name.starts_with(prefix)) unused.push_back(name);
  for (const std::string& name : unused) facts.erase(name);
}

// Arguments of adapters and of quantization say nothing without an adapter and a format.
void derive_adapter(Facts& facts) {
  const Fact* const dora = facts.find("@use_dora");
  if (!has_adapter(facts))
    erase_block(facts, "adapter.");
  else if (dora != nullptr)
    facts.set("adapter.type", {"dora", dora->origin, false});
  if (facts.find("model.quantize.type") == nullptr) erase_block(facts, "model.quantize.");
}

void derive_precision(Facts& facts) {
  const Fact* const dtype = facts.find("@dtype");
  if (dtype != nullptr && facts.find("precision.compute") == nullptr) {
    const std::string word = word_of(dtype);
    const bool is_bf16 = word.find("bf") != word.npos, is_fp16 = word.find("16") != word.npos;
    follow(facts, "precision.compute", is_bf16 ? "bf16" : is_fp16 ? "fp16" : "fp32", *dtype);
  }
  fill(facts, "precision.compute", "fp32", default_origin(ForeignSystem::kHuggingFace));
}

// Trainer's constant has no warm-up, and its inverse_sqrt without one has a time scale that is not there.
void derive_trainer_schedule(Facts& facts) {
  if (const Fact* const constant = facts.find("@scheduler")) {
    follow(facts, "lr_schedule.type", "constant", *constant);
    for (const char* name : {"lr_schedule.warmup_steps", "@warmup_ratio"}) facts.erase(name);
  }
  if (facts.is_given("lr_schedule.warmup_steps") && !facts.is_given("@warmup_ratio")) facts.erase("@warmup_ratio");
  const Fact* const type = facts.find("lr_schedule.type");
  if (word_of(type) == "inverse_sqrt" && facts.find("lr_schedule.warmup_steps") == nullptr &&
      facts.find("@warmup_ratio") == nullptr)
    throw ConfigError(fmt::format("{}: without a warm-up its time scale is 10,000 steps there; give warmup_steps, which is it here",
                                  type->origin));
}

// "full_shard auto_wrap offload" of fsdp, fsdp2 and the presets of deepspeed that ms-swift has.
void derive_trainer_sharding(Facts& facts) {
  if (const Fact* const fsdp = facts.find("@fsdp")) {
    const std::string words = word_of(fsdp);
    const auto has = [&](std::string_view word) { return words.find(word) != words.npos; };
    const std::string_view zero = has("no_shard") ? "ddp" : has("shard_grad_op") ? "shard_grad_op" : "zero3";
    if (words != "" && words != "no" && words != "[]" && !facts.is_given("parallel.zero"))
      follow(facts, "parallel.zero", zero, *fsdp);
    if (has("hybrid_shard")) follow(facts, "parallel.shard_group", "node", *fsdp);
    if (has("offload")) follow(facts, "offload.parameters", "host", *fsdp);
    if (has("fsdp2") && facts.find("@checkpointing_off") == nullptr) follow(facts, "recompute.policy", "full", *fsdp);
  }
  if (const Fact* const preset = facts.find("@deepspeed")) {
    const std::string name = word_of(preset);
    follow(facts, "parallel.zero", name.starts_with("zero0") ? "ddp" : name.substr(0, 5), *preset);
    if (name.ends_with("_offload")) follow(facts, "offload.optimizer", "host", *preset);
    if (name == "zero3_offload") follow(facts, "offload.parameters", "host", *preset);
  }
  fill(facts, "parallel.zero", "ddp", default_origin(ForeignSystem::kHuggingFace));
  const Fact* const off = facts.find("@checkpointing_off");
  const Fact* const policy = facts.find("recompute.policy");
  if (off != nullptr && (policy == nullptr || policy->is_default))
    facts.set("recompute.policy", {"none", off->origin, off->is_default});
}

// Whether a sample is a document, or whatever batch.sequence tokens come next.
void derive_samples(Facts& facts, Stage stage) {
  const Fact* const strategy = facts.find("@packing_strategy");
  const std::string how = word_of(strategy);
  const Fact* const packing = how == "neat" ? strategy : facts.find("@packing");
  const std::string pack = word_of(packing);
  const bool is_cut = pack == "stream" || (pack == "packed" && (how == "wrapped" || how == "fixed"));
  if (packing != nullptr) {
    follow(facts, "data.samples", is_cut ? "stream" : "packed", *packing);
    if (!is_cut && pack != "one") facts.set("@pack", *packing);
  } else if (stage == Stage::kSft || stage == Stage::kDpo)
    fill(facts, "data.samples", "packed", "a conversation is a sample");
}

// Which targets count, where @dataset is conversations. TRL's trainers count all tokens, the programs on top of it the answers'.
void derive_loss(Facts& facts, Stage stage, bool is_trl) {
  if (stage == Stage::kDpo) facts.set("@loss", {"preference", ""});
  else if (stage == Stage::kSft) facts.take("@loss", {is_trl ? "all" : "assistant", "", true});
  else facts.erase("@loss");
}

}  // namespace

void derive_hugging_face(Facts& facts) {
  const Stage stage = stage_of(facts);
  const bool is_trl = facts.find("@stage") == nullptr && !has_defaults_of(facts, ForeignSystem::kSwift);
  if (is_trl && (stage == Stage::kSft || stage == Stage::kDpo)) fill_trl_defaults(facts, stage);
  fill_computed_defaults(facts);
  derive_adapter(facts);
  derive_trainer_sharding(facts);
  derive_precision(facts);
  derive_trainer_schedule(facts);
  derive_samples(facts, stage);
  derive_loss(facts, stage, is_trl);
  if (stage == Stage::kDpo) {
    const Fact* const said = facts.find(facts.find("@stage") == nullptr ? "@program" : "@stage");
    facts.take("loss.type", {"dpo", said == nullptr ? "loss.beta is one of dpo" : said->origin, said == nullptr});
    if (word_of(said) == "ipo") follow(facts, "loss.variant", "ipo", *said);
  }
  for (const char* name : {"@program", "@stage", "@scheduler", "@fsdp", "@deepspeed", "@use_dora", "@bf16_off",
                           "@checkpointing_off", "@packing", "@packing_strategy", "@dtype"})
    facts.erase(name);
}

}  // namespace trident
