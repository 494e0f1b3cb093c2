// This computes what follows from several arguments of Trainer, TRL and the programs around them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "import/facts.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

using enum ForeignSystem;

enum class Stage : std::uint8_t { kTrainer, kPretrain, kSft, kDpo };

bool has_adapter(const Facts& facts) { return facts.find("adapter.type") != nullptr && !facts.is("adapter.type", {}); }

std::string_view stage_fact(const Facts& facts) { return facts.find("@stage") != nullptr ? "@stage" : "@program"; }

constexpr std::array<std::string_view, 11> kOtherMethods = {"reward", "rm",  "grpo", "kto",   "orpo",        "rloo",
                                                            "ppo",    "gkd", "cpo",  "simpo", "distillation"};

// " (loss.type orpo: not built yet; use loss.type dpo, ...)"
std::string instead_of(std::string_view method) {
  for (const ReservedValue& reserved : find_option("loss.type")->reserved_values)
    if (reserved.value == method) return fmt::format(" (loss.type {}: {})", method, reserved.remedy);
  return "";
}

// Refuses a method, one of `others`, whose name is among the words of `names`.
void refuse_other_methods(std::span<const std::string_view> others, std::string_view names, std::string_view origin) {
  const std::vector<std::string> words = words_in(lower(names), "_-. ");
  if (std::ranges::find(words, "dpo") != words.end()) return;
  for (const std::string_view other : others)
    if (std::ranges::find(words, other) != words.end())
      throw ConfigError(
          fmt::format("{}: no training by {} here; take supervised fine-tuning (sft), pre-training or dpo{}", origin, other,
                      instead_of(other)));
}

// The stage that @stage names (ms-swift, axolotl, LLaMA-Factory), or a word in the name of the program ("run_sft.py", "trl dpo").
Stage stage_of(const Facts& facts) {
  const Fact* const said = facts.find(stage_fact(facts));
  const bool is_chat = facts.find("@deepspeed_chat") != nullptr;
  if (said == nullptr) {
    // ORPO and others have a beta, too, though not a reward model: where no program says which it is, the last parts of the names
    // of the file and of what it writes do.
    const auto last_part = [](std::string_view path) {
      const std::vector<std::string> parts = words_in(path, "/");
      return parts.empty() ? "" : parts.back();
    };
    for (const std::string_view name : {"loss.beta", "loss.variant"})
      if (facts.is_given(name)) {
        const std::string& origin = facts.find(name)->origin;
        refuse_other_methods(std::span(kOtherMethods).subspan(1),
                             last_part(origin.substr(0, origin.find(':'))) + ' ' + last_part(facts.text("run.dir")), origin);
        return Stage::kDpo;
      }
    return is_chat || facts.is_given("batch.sequence") || facts.is_given("@packing") ? Stage::kSft : Stage::kTrainer;
  }
  const std::string path = facts.word(stage_fact(facts));
  const std::vector<std::string> words = words_in(path.substr(path.find_last_of("/ ") + 1), "_-.");
  const auto has = [&](std::string_view word) { return std::ranges::find(words, word) != words.end(); };
  refuse_other_methods(kOtherMethods, path.substr(path.find_last_of("/ ") + 1), said->origin);
  if (has("dpo") || has("ipo") || has("rlhf")) return Stage::kDpo;
  // DeepSpeed-Chat's main.py of each step is in a folder of its name.
  if (is_chat && (facts.is_given("loss.beta") || (said->origin + path).find("dpo_finetuning") != path.npos)) return Stage::kDpo;
  return has("sft") ? Stage::kSft : has("pt") ? Stage::kPretrain : is_chat ? Stage::kSft : Stage::kTrainer;
}

void take_trl_defaults(Facts& facts, Stage stage) {
  const bool is_dpo = stage == Stage::kDpo, is_gpt2 = facts.word("@model").find("gpt2") != std::string::npos;
  const auto take = [&](std::string_view whose, std::string_view name, JsonValue value) {
    facts.take(name, {std::move(value), fmt::format("{}'s default", whose), Weight::kDefault});
  };
  const std::string_view config = is_dpo ? "DPOConfig" : "SFTConfig";
  take(config, "optimizer.lr", is_dpo ? 1e-6 : 2e-5);
  take(config, "batch.sequence", 1024);
  take(config, "@logging_steps", 10);
  take(config, "recompute.policy", "full");
  take(config, "precision.compute", "bf16");
  if (is_dpo && facts.find("@keeps_dropout") == nullptr) take(config, "model.dropout", 0);
  if (!has_adapter(facts)) return;
  take("ModelConfig", "adapter.r", 16);
  take("ModelConfig", "adapter.alpha", 32);
  take("ModelConfig", "adapter.dropout", 0.05);
  take("PEFT", "adapter.target_modules", is_gpt2 ? JsonValue::Array{"c_attn"} : JsonValue::Array{"q_proj", "v_proj"});
}

// Arguments of adapters and of quantization say nothing without an adapter and a format. A program such as train_lora.py has no
// argument that asks for one.
void derive_adapter(Facts& facts) {
  const std::string program = facts.word("@program");
  const std::vector<std::string> name = words_in(program.substr(program.rfind('/') + 1), "_-.");
  if (facts.find("adapter.type") == nullptr && std::ranges::any_of(name, [](const auto& part) { return part.ends_with("lora"); })) {
    facts.set("adapter.type", "lora", {"@program"});
    facts.take("adapter.target_modules", {JsonValue::Array{"q_proj", "v_proj"}, "PEFT's default", Weight::kDefault});
  }
  if (facts.is_on("@all_linear")) facts.set("adapter.target_modules", JsonValue::Array{"all-linear"}, {"@all_linear"});
  if (!has_adapter(facts))
    facts.erase_block("adapter.");
  else if (facts.find("@use_dora") != nullptr)
    facts.set("adapter.type", "dora", {"@use_dora"});
  if (facts.find("model.quantize.type") == nullptr) facts.erase_block("model.quantize.");
}

// Trainer's inverse_sqrt without a warm-up has a time scale that is not there, and its cosine may rise again or end half-way.
void check_schedule(const Facts& facts) {
  const double once = facts.find("@restarts") != nullptr ? 1 : 0.5;
  if (const auto cycles = facts.not_negative("@num_cycles"); cycles && *cycles != once)
    throw ConfigError(fmt::format("{}: the rate falls once here, from the highest to the lowest; write {}",
                                  facts.find("@num_cycles")->origin, once));
  if (facts.is("lr_schedule.type", "inverse_sqrt") && facts.find("lr_schedule.warmup_steps") == nullptr &&
      facts.find("@warmup_ratio") == nullptr)
    throw ConfigError(fmt::format("{}: without a warm-up its time scale is 10,000 steps there; give warmup_steps, which is it here",
                                  facts.find("lr_schedule.type")->origin));
}

// DPO of TRL, and of the programs on top of it, turns off the dropout of adapters as it does the model's.
void derive_dropout_of_preferences(Facts& facts) {
  const Fact* const dropout = facts.find("adapter.dropout");
  if (dropout == nullptr || facts.is("adapter.dropout", 0) || facts.find("@keeps_dropout") != nullptr) return;
  facts.remark(*dropout, "DPO turns dropout off there, too (disable_dropout)");
  facts.set("adapter.dropout", dropout->is_default() ? Fact{0, "DPO's disable_dropout", Weight::kDefault} : computed(0, {dropout}));
}

// Writes a share without an exponent and without zeros at its end.
std::string decimal(double share) {
  std::string text = fmt::format("{:.12f}", share);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// Documents set aside for validation are a share of all, or so many. axolotl and ms-swift evaluate nothing without any, and
// ms-swift as often as it saves where no argument says how often.
void derive_validation(Facts& facts, const std::set<ForeignSystem>& systems) {
  const double share = facts.not_negative("@valid_share").value_or(0);
  if (share >= 1)
    facts.remark("@valid_share", "so many documents there: data.split takes their share, such as 99,1");
  else if (share > 0)
    facts.set("data.split", fmt::format("{},{}", decimal(100 - 100 * share), decimal(100 * share)), {"@valid_share"});
  if (!systems.contains(kSwift) && !systems.contains(kAxolotl)) return;
  for (const auto& [strategy, steps] : {std::pair{"@save_strategy", "@save_steps"}, {"@eval_strategy", "@eval_steps"}})
    if (systems.contains(kAxolotl) && facts.is_given(steps)) facts.set(strategy, "steps", {steps});
  if (share == 0 && facts.find("@valid_data") == nullptr) {
    facts.remark("@eval_steps", "there is nothing to evaluate on");
    for (const char* const name : {"eval.every", "@eval_steps"}) facts.erase(name);
    facts.set("@eval_strategy", of_default(kHuggingFace, "no", ": there is nothing to evaluate on"));
  } else if (systems.contains(kSwift) && !facts.is_given("@eval_strategy") && !facts.is("checkpoint.every", "end")) {
    facts.set("@eval_strategy", facts.find("@save_strategy") == nullptr ? "steps" : facts.find("@save_strategy")->value,
              {"@save_strategy", "@valid_share"});
    if (facts.find("@eval_steps") == nullptr) facts.set("@eval_steps", *facts.find("@save_steps"));
  }
}

// Whether a sample is a document, or whatever batch.sequence tokens come next.
void derive_samples(Facts& facts, Stage stage) {
  const std::string how = facts.word("@packing_strategy");
  const std::string_view packing = how == "neat" ? "@packing_strategy" : "@packing";
  const std::string pack = facts.word(packing);
  const bool is_cut = pack == "stream" || (pack == "packed" && (how == "wrapped" || how == "fixed"));
  if (!pack.empty())
    facts.set("data.samples", is_cut ? "stream" : "packed", {packing});
  else if (stage == Stage::kSft || stage == Stage::kDpo)
    facts.take("data.samples",
               {"packed", fmt::format("a {} is a sample", stage == Stage::kDpo ? "pair" : "conversation"), Weight::kDefault});
  if (!pack.empty() && pack != "one" && !is_cut) facts.set("@pack", true, {packing});
}

}  // namespace

void check_stage(const Facts& facts) { stage_of(facts); }

void take_stage_defaults(Facts& facts, const std::set<ForeignSystem>& systems) {
  if (systems.contains(kSwift) && systems.contains(kMegatron))  // megatron sft
    for (const auto& [name, value] : {std::pair<std::string_view, JsonValue>{"adapter.type", {}},
                                      {"parallel.zero", "zero1"},
                                      {"batch.global", 16},
                                      {"recompute.policy", "selective"},
                                      {"log.every", 5}})
      facts.take(name, of_default(kSwift, value));
  if (systems.contains(kSwift) && facts.is("adapter.type", {})) facts.take("optimizer.lr", of_default(kSwift, 1e-5));
  if (systems.contains(kSwift) || systems.contains(kAxolotl) || systems.contains(kLlamaFactory)) return;
  const Stage stage = stage_of(facts);
  if (stage != Stage::kSft && stage != Stage::kDpo) return;
  using Default = std::pair<std::string_view, JsonValue>;
  if (facts.find("@deepspeed_chat") != nullptr)
    for (const auto& [name, value] :
         {Default{"batch.micro", 16}, {"batch.sequence", 512}, {"optimizer.lr", 1e-3}, {"@beta2", 0.95}, {"run.epochs", 1},
          {"lr_schedule.type", "cosine"}, {"run.seed", 1234}, {"precision.compute", "fp16"}, {"recompute.policy", "none"},
          {"adapter.alpha", 1}, {"adapter.dropout", 0}, {"log.every", 10}, {"checkpoint.every", "end"}, {"eval.every", "epoch"}})
      facts.take(name, {value, "DeepSpeed-Chat's default", Weight::kDefault});
  take_trl_defaults(facts, stage);
  // As a default it is completion where the data have a prompt and a completion: how_to_prepare looks into them.
  facts.take("@loss", {"all", "", facts.find("@deepspeed_chat") != nullptr ? Weight::kFallback : Weight::kDefault});
}

void derive_hugging_face(Facts& facts, const std::set<ForeignSystem>& systems) {
  const Stage stage = stage_of(facts);
  if (systems.contains(kLlamaFactory) && facts.is_on("@predicts") && !facts.is_on("@trains"))
    throw ConfigError(fmt::format("{}: without do_train nothing is trained; use trident eval", facts.find("@predicts")->origin));
  if (systems.contains(kLlamaFactory)) facts.take("@data_folder", of_default(kLlamaFactory, "data"));
  if (const std::string merged = facts.text("@export_dir"); !merged.empty()) {
    const std::string model = facts.text("@model"), base = model.empty() ? "BASE" : model;
    const std::string from = facts.text("adapter.init_from"), adapter = from.empty() ? "ADAPTER" : from;
    throw ConfigError(fmt::format("{}: with it nothing is trained; use trident convert --from peft {} {} --to hf {}",
                                  facts.find("@export_dir")->origin, base, adapter, merged));
  }
  if (systems.contains(kMegatron)) {
    facts.erase("@accumulation");  // megatron sft counts all ranks' sequences
  } else if (systems.contains(kSwift) && !facts.is_given("@accumulation") && !facts.is_given("batch.global")) {
    derive_ranks(facts);
    for (const std::string_view name : {"batch.micro", "@ranks"})
      if (facts.is_open(name)) facts.set("@accumulation", facts.find(name)->value, {name});
    if (!facts.is_open("@accumulation")) {
      const auto count = [&](std::string_view name) { return static_cast<double>(facts.positive(name).value_or(1)); };
      const double updates = std::ceil(16 / (count("batch.micro") * count("@ranks")));
      facts.set("@accumulation", of_default(kSwift, whole_number(updates, {})));
    }
  }
  derive_adapter(facts);
  if (has_adapter(facts) && systems.contains(kLlamaFactory))
    facts.take("adapter.alpha", of_default(kLlamaFactory, 2.0 * facts.number("adapter.r").value_or(8)));
  if (facts.is_given("adapter.init_from")) facts.erase_block("adapter.", Weight::kDefault);  // the folder says them
  check_schedule(facts);
  if (facts.is("lr_schedule.type", "wsd")) facts.take("lr_schedule.wsd_decay_type", of_default(kHuggingFace, "cosine"));
  // Trainer writes its own warm-up, none where no argument says one, in the place of an "auto" of DeepSpeed's scheduler.
  if (facts.find("@deepspeed_scheduler") != nullptr && facts.find("@warmup_ratio") == nullptr)
    facts.take("lr_schedule.warmup_steps", of_default(kHuggingFace, 0));
  derive_validation(facts, systems);
  derive_samples(facts, stage);
  // The targets that count where @dataset is conversations. TRL's trainers count all tokens, programs on top of it the answers'.
  if (stage == Stage::kDpo)
    facts.set("@loss", {"preference", ""});
  else if (stage == Stage::kSft)
    facts.take("@loss", {"assistant", "", Weight::kDefault});
  else
    facts.erase("@loss");
  if (stage != Stage::kDpo) return;
  derive_dropout_of_preferences(facts);
  const Fact* const said = facts.find(stage_fact(facts));
  facts.take("loss.type", said == nullptr ? Fact{"dpo", "loss.beta is one of dpo", Weight::kDefault} : computed("dpo", {said}));
  if (facts.word(stage_fact(facts)) == "ipo") facts.take("loss.variant", computed("ipo", {said}));
}

}  // namespace trident
