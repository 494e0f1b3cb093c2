#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "model/config/model_presets.h"
#include "import/facts.h"

namespace trident {
namespace {

// The dense models of torchtitan: a preset here, or keys of config.json.
struct TitanModel {
  std::string_view name, flavor, preset;
  std::int64_t vocabulary = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, ffn = 0;
  bool tied = false;
};
constexpr TitanModel kTitanModels[] = {
    {"llama2", "7B", "llama2-7b"},
    {"llama2", "13B", "llama2-13b"},
    {"llama2", "70B", "llama2-70b"},
    {"llama3", "8B", "llama3.1-8b"},
    {"llama3", "70B", "llama3.1-70b"},
    {"llama3", "405B", "llama3.1-405b"},
    {"llama3", "debugmodel", "", 2048, 256, 6, 16, 16, 768},
    {"qwen3", "debugmodel", "", 2048, 256, 8, 16, 8, 3072, true},
    {"qwen3", "0.6B", "", 151936, 1024, 28, 16, 8, 3072, true},
    {"qwen3", "1.7B", "", 151936, 2048, 28, 16, 8, 6144, true},
    {"qwen3", "4B", "", 151936, 2560, 36, 32, 8, 9728, true},
    {"qwen3", "8B", "", 151936, 4096, 36, 32, 8, 12288},
    {"qwen3", "14B", "", 151936, 5120, 40, 40, 8, 17408},
    {"qwen3", "32B", "", 151936, 5120, 64, 64, 8, 25600},
};

JsonValue keys_of(const TitanModel& model) {
  const bool llama = model.name == "llama3";
  JsonValue keys = JsonValue::Object{{"model_type", llama ? "llama" : "qwen3"},
                                     {"vocab_size", model.vocabulary},
                                     {"hidden_size", model.hidden},
                                     {"intermediate_size", model.ffn},
                                     {"num_hidden_layers", model.layers},
                                     {"num_attention_heads", model.heads},
                                     {"num_key_value_heads", model.kv_heads},
                                     {"max_position_embeddings", llama ? 131072 : 40960},
                                     {"rms_norm_eps", llama ? 1e-5 : 1e-6},
                                     {"rope_theta", llama ? 500000.0 : 1000000.0},
                                     {"tie_word_embeddings", model.tied}};
  if (llama)
    keys.set("rope_scaling", llama3_rope_scaling(8.0));
  else
    keys.set("head_dim", 128);
  return keys;
}

void derive_titan_model(Facts& facts) {
  if (!facts.is_given("@titan.name") && !facts.is_given("@titan.flavor")) return;  // the debug model is nobody's wish
  const std::string family = facts.text("@titan.name"), whole = facts.text("@titan.flavor");
  if (facts.text("@titan.spec").find("\"rank\":") != std::string::npos)
    facts.remark("@titan.spec", "it has layers of LoRA, which are not read: give adapter.type, adapter.r and adapter.alpha");
  std::string_view kind = whole;
  for (const std::string_view attention : {"_flex_attn", "_varlen_attn", "_flex", "_varlen"})
    if (kind.ends_with(attention)) {
      kind.remove_suffix(attention.size());
      facts.set("data.reset_attention_mask", true, {"@titan.flavor"});
    }
  for (const TitanModel& model : kTitanModels) {
    if (family != model.name || kind != model.flavor) continue;
    if (!model.preset.empty()) return facts.set("model.preset", model.preset, {"@titan.name", "@titan.flavor"});
    const JsonValue keys = keys_of(model);
    for (const auto& [key, value] : keys.members()) facts.set("model." + key, value, {"@titan.name", "@titan.flavor"});
    return;
  }
  facts.remark("@titan.flavor",
               fmt::format("no dense model {} {} is known: give it with --set model.hf_config=FOLDER", family, whole));
}

// Micro-batches: without a pipeline the local batch is one; with one it is cut into those that the pipeline passes on.
void derive_local_batch(Facts& facts, bool has_pipeline) {
  if (facts.integer("@titan.global").value_or(-1) > 0) facts.take("batch.global", *facts.find("@titan.global"));
  if (has_pipeline && facts.find("@titan.pipeline_count") != nullptr) {
    apply(facts, {"batch.micro", "@titan.local", "@titan.pipeline_count"});
    facts.set("@accumulation", *facts.find("@titan.pipeline_count"));
  } else if (has_pipeline && facts.find("@titan.pipeline_micro") != nullptr) {
    apply(facts, {"@accumulation", "@titan.local", "@titan.pipeline_micro"});
    facts.set("batch.micro", facts.find("@titan.pipeline_micro")->value, {"@titan.local", "@titan.pipeline_micro"});
  } else if (const Fact* const local = facts.find("@titan.local")) {
    facts.set("batch.micro", *local);
    facts.set("@accumulation", 1, {"@titan.global"});
  }
  if (facts.is_given("batch.global")) facts.erase("@accumulation");
}

void derive_pipeline(Facts& facts, std::int64_t stages) {
  if (stages <= 1) {
    if (facts.is_given("parallel.schedule")) facts.remark("parallel.schedule", "it says nothing without a pipeline");
    return facts.erase("parallel.schedule");
  }
  const std::string kind = facts.word("parallel.schedule");
  if (kind == "csv") return;
  const bool is_single = kind.empty() || kind == "1f1b" || kind == "gpipe";
  const std::string preset = facts.text("model.preset");
  std::optional<std::int64_t> all = facts.integer("model.num_hidden_layers");
  if (!preset.empty()) all = parse_json(model_preset_json(preset, ""), preset).find("num_hidden_layers")->as_integer();
  const std::optional<std::int64_t> each = facts.positive("@titan.layers_per_stage");
  if (!all || !each) {
    if (is_single) return;
    facts.remark("@titan.layers_per_stage", "parallel.virtual_stages is layers over this and the pipeline's ranks; 2 is taken");
    return facts.set("parallel.virtual_stages", 2, {"parallel.schedule", "parallel.pipeline"});
  }
  std::int64_t ends = 0;  // what torchtitan counts the embedding and the head as, in layers
  for (const std::string_view end : {"@titan.first_less", "@titan.last_less"})
    ends += facts.integer(end, "an integer from 0", 0).value_or(1);
  const std::int64_t chunks = (*all + ends + *each - 1) / *each, share = chunks / stages;
  if (chunks % stages != 0 || (is_single ? share != 1 : share < 2))
    throw ConfigError(fmt::format("{}: {} layers, embedding and head counted as {}, make {} stages; the {} ranks of the pipeline "
                                  "need {} each; change one of them", facts.find("@titan.layers_per_stage")->origin, ends + *all,
                                  ends, chunks, stages, is_single ? "one" : "the same number, two or more,"));
  if (!is_single) facts.set("parallel.virtual_stages", share, {"@titan.layers_per_stage", "parallel.pipeline"});
}

// torchtitan's one schedule: warm-up, a stretch of the highest rate, a decay; without decay_ratio the stretch is empty.
void derive_titan_course(Facts& facts) {
  const std::string_view total = facts.find("@titan.total_steps") != nullptr ? "@titan.total_steps" : "run.steps";
  if (total != "run.steps") facts.set("lr_schedule.decay_steps", *facts.find(total));
  const std::string decay = facts.word("@titan.decay_type");
  if (decay.empty() || facts.find(total) == nullptr) return;
  const double steps = *facts.number(total), climb = facts.number("lr_schedule.warmup_steps").value_or(0);
  if (climb > steps) facts.set("lr_schedule.warmup_steps", facts.find(total)->value, {"lr_schedule.warmup_steps", total});
  const std::optional<double> ratio = facts.number("@titan.decay_ratio");
  if (!ratio && decay != "sqrt") return facts.set("lr_schedule.type", decay, {"@titan.decay_type"});
  const double rest = std::max(0.0, steps - climb), length = ratio ? std::min(std::nearbyint(steps * *ratio), rest) : rest;
  facts.set("lr_schedule.type", "wsd", {"@titan.decay_ratio", "@titan.decay_type"});
  facts.set("lr_schedule.wsd_decay_type", decay == "sqrt" ? "minus_sqrt" : decay, {"@titan.decay_type"});
  facts.set("lr_schedule.wsd_decay_steps", std::max<std::int64_t>(1, whole_number(length, {facts.find(total)})),
            {"@titan.decay_ratio", "@titan.decay_type", total});
}

// The JSON of a later Config has the block of full recomputation without the word.
void derive_titan_recompute(Facts& facts) {
  if (!facts.is_given("@titan.spec") || facts.is_given("recompute.policy")) return;
  if (const Fact* const budget = facts.find("@titan.budget"))
    throw ConfigError(fmt::format("{}: no compiler weighs memory against time here; trident plan compares policies",
                                  budget->origin));
  facts.set("recompute.policy", "full", {"@titan.spec"});
}

// Facts that count only where a switch of their section is on.
void derive_switches(Facts& facts) {
  const bool saves = facts.is_on("@titan.saves"), in_hf = facts.is_on("@titan.load_in_hf");
  if (const Fact* const every = saves ? facts.find("@save_steps") : nullptr; !facts.is_given("checkpoint.every"))
    facts.set("checkpoint.every", every == nullptr ? JsonValue(0) : every->value,
              {"@titan.saves", every == nullptr ? "@titan.saves" : "@save_steps"});
  facts.erase("@save_steps");
  if (!facts.is_on("@titan.validates")) {
    if (facts.find("@titan.validates") != nullptr) facts.set("eval.every", 0, {"@titan.validates"});
    for (const char* const name : {"@eval_steps", "eval.steps"}) facts.erase(name);
  }
  const std::int64_t every = facts.integer("@titan.profile_every").value_or(10),
                     active = facts.integer("@titan.profile_steps").value_or(1);
  if (facts.is_on("@titan.profiles"))
    facts.set("log.trace_steps", JsonValue::Array{std::max<std::int64_t>(1, every - active + 1), every},
              {"@titan.profiles", "@titan.profile_every", "@titan.profile_steps"});
  if (saves && facts.find("@titan.folder") != nullptr && facts.find("run.dir") != nullptr)
    facts.set("checkpoint.dir", fmt::format("{}/{}", facts.text("run.dir"), facts.text("@titan.folder")),
              {"run.dir", "@titan.folder"});
  const std::string_view weights = facts.find("@titan.load_path") != nullptr ? "@titan.load_path" : "@titan.assets";
  if (in_hf && facts.find(weights) != nullptr)
    facts.set("model.init_from", facts.find(weights)->value, {"@titan.load_in_hf", weights});
  else if (!in_hf)
    facts.remark("@titan.load_path",
                 "a torch checkpoint is not read: write it as a Hugging Face folder there and give that as model.init_from");
}

}  // namespace

void derive_torchtitan(Facts& facts) {
  const std::int64_t stages = facts.integer("parallel.pipeline").value_or(1);
  derive_titan_model(facts);
  derive_local_batch(facts, stages > 1);
  derive_pipeline(facts, stages);
  derive_titan_course(facts);
  derive_titan_recompute(facts);
  derive_switches(facts);
  take_fp8(facts);
  if (const Fact* const reshard = facts.find("@titan.reshard")) {
    Fact zero = stages > 1 ? computed("shard_grad_op", {reshard, facts.find("parallel.pipeline")}) : computed("zero3", {reshard});
    zero.weight = std::min(zero.weight, Weight::kImplied);
    facts.take("parallel.zero", std::move(zero));
  }
}

}  // namespace trident
