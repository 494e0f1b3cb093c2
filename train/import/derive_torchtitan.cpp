#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "train/import/facts.h"

namespace trident {
namespace {

// The dense models of torchtitan 0.2.2 that are no preset here.
struct TitanModel {
  std::string_view name, flavor;
  std::int64_t vocabulary, hidden, layers, heads, kv_heads, ffn;
  bool tied = false;
};
constexpr TitanModel kTitanModels[] = {
    {"llama3", "debugmodel", 2048, 256, 6, 16, 16, 768},        {"qwen3", "debugmodel", 2048, 256, 8, 16, 8, 3072, true},
    {"qwen3", "0.6B", 151936, 1024, 28, 16, 8, 3072, true},     {"qwen3", "1.7B", 151936, 2048, 28, 16, 8, 6144, true},
    {"qwen3", "4B", 151936, 2560, 36, 32, 8, 9728, true},       {"qwen3", "8B", 151936, 4096, 36, 32, 8, 12288},
    {"qwen3", "14B", 151936, 5120, 40, 40, 8, 17408},           {"qwen3", "32B", 151936, 5120, 64, 64, 8, 25600},
};
constexpr std::pair<std::string_view, std::string_view> kTitanPresets[] = {
    {"8B", "llama3.1-8b"}, {"70B", "llama3.1-70b"}, {"405B", "llama3.1-405b"}};  // of llama3

void set_titan_shape(Facts& facts, const TitanModel& model, const Fact* name, const Fact* flavor) {
  const auto set = [&](std::string_view key, JsonValue value) {
    facts.set(fmt::format("model.{}", key), computed(std::move(value), {name, flavor}));
  };
  const bool llama = model.name == "llama3";
  set("model_type", llama ? "llama" : "qwen3");
  set("vocab_size", model.vocabulary);
  set("hidden_size", model.hidden);
  set("intermediate_size", model.ffn);
  set("num_hidden_layers", model.layers);
  set("num_attention_heads", model.heads);
  set("num_key_value_heads", model.kv_heads);
  if (!llama) set("head_dim", 128);
  set("max_position_embeddings", llama ? 131072 : 40960);
  set("rms_norm_eps", llama ? 1e-5 : 1e-6);
  set("rope_theta", llama ? 500000.0 : 1000000.0);
  if (llama)
    set("rope_scaling", JsonValue::Object{{"rope_type", "llama3"},
                                          {"factor", 8.0},
                                          {"low_freq_factor", 1.0},
                                          {"high_freq_factor", 4.0},
                                          {"original_max_position_embeddings", 8192}});
  set("tie_word_embeddings", model.tied);
}

void derive_titan_model(Facts& facts) {
  const Fact *const name = facts.find("@titan.name"), *const flavor = facts.find("@titan.flavor");
  if (name == nullptr || flavor == nullptr) return;
  if (name->is_default && flavor->is_default) return;  // the debug model is nobody's wish
  const std::string family = facts.text("@titan.name").value(), whole = facts.text("@titan.flavor").value();
  std::string_view kind = whole;
  for (const std::string_view attention : {"_flex_attn", "_varlen_attn", "_flex", "_varlen"})
    if (kind.ends_with(attention)) {
      kind.remove_suffix(attention.size());
      facts.set("data.reset_attention_mask", computed(true, {flavor}));
      break;
    }
  for (const auto& [titan, preset] : kTitanPresets)
    if (family == "llama3" && kind == titan) return facts.set("model.preset", computed(preset, {name, flavor}));
  for (const TitanModel& model : kTitanModels)
    if (family == model.name && kind == model.flavor) return set_titan_shape(facts, model, name, flavor);
  facts.remark(*flavor, fmt::format("no dense model {} {} is known: give it with --set model.hf_config=FOLDER", family, whole));
}

// Micro-batches: without a pipeline the local batch is one; with one it is cut into those that the pipeline passes on.
void derive_titan_batch(Facts& facts, std::int64_t stages) {
  const Fact *const local = facts.find("@titan.local"), *const global = facts.find("@titan.global"),
                    *const micro = facts.find("@titan.pipeline_micro");
  if (local == nullptr) return;
  const std::int64_t size = *facts.integer("@titan.local"),
                     part = stages > 1 ? facts.integer("@titan.pipeline_micro").value_or(1) : size;
  if (part < 1 || size % part != 0)
    throw ConfigError(fmt::format("{}: {} sequences are not divisible by micro-batches of {}; change one of them",
                                  computed({}, {local, micro}).origin, size, part));
  const Fact* const cut = stages > 1 ? micro : nullptr;
  facts.set("batch.micro", computed(part, {local, cut}));
  if (global != nullptr && facts.integer("@titan.global").value() > 0) return facts.take("batch.global", *global);
  facts.set("@accumulation", computed(size / part, {cut == nullptr ? nullptr : local, cut, global}));
}

void derive_titan_pipeline(Facts& facts, std::int64_t stages) {
  const Fact *const schedule = facts.find("parallel.schedule"), *const degree = facts.find("parallel.pipeline");
  if (schedule == nullptr) return;
  if (stages <= 1) {
    if (!schedule->is_default) facts.remark(*schedule, "it says nothing without a pipeline");
    return facts.erase("parallel.schedule");
  }
  const std::string kind = facts.text("parallel.schedule").value();
  if (kind == "1f1b" || kind == "gpipe" || kind == "csv") return;
  const Fact* const layers = facts.find("@titan.layers_per_stage");
  const std::optional<std::int64_t> all = facts.integer("model.num_hidden_layers");
  if (layers == nullptr || !all) {
    if (layers != nullptr)
      facts.remark(*layers, "parallel.virtual_stages is layers over this and the pipeline's ranks; 2 is taken");
    return facts.set("parallel.virtual_stages", computed(2, {schedule, degree}));
  }
  // torchtitan counts the embedding and the head as a layer each.
  const double chunks =
      std::ceil(static_cast<double>(*all + 2) / static_cast<double>(facts.positive("@titan.layers_per_stage").value()));
  facts.set("parallel.virtual_stages",
            computed(std::max<std::int64_t>(1, whole_number(chunks, {layers}) / stages), {layers, degree}));
}

// torchtitan's one schedule: warm-up, a stretch of the highest rate, a decay; without decay_ratio the stretch is empty.
void derive_titan_schedule(Facts& facts) {
  const Fact *const kind = facts.find("@titan.decay_type"), *const ratio = facts.find("@titan.decay_ratio"),
             *const warmup = facts.find("lr_schedule.warmup_steps"), *total = facts.find("@titan.total_steps");
  if (total == nullptr) total = facts.find("run.steps");
  else facts.set("lr_schedule.decay_steps", *total);
  if (kind == nullptr || total == nullptr) return;
  const std::string decay = facts.text("@titan.decay_type").value();
  const double steps = facts.number(facts.find("@titan.total_steps") == nullptr ? "run.steps" : "@titan.total_steps").value(),
               climb = facts.number("lr_schedule.warmup_steps").value_or(0), before = std::min(steps, climb);
  if (climb > steps)
    facts.set("lr_schedule.warmup_steps", computed(whole_number(before, {warmup, total}), {warmup, total}));
  if (ratio == nullptr && decay != "sqrt") return facts.set("lr_schedule.type", computed(decay, {kind}));
  const double length =
      ratio == nullptr ? steps - before : std::min(std::nearbyint(steps * *facts.number("@titan.decay_ratio")), steps - before);
  facts.set("lr_schedule.type", computed("wsd", {ratio, kind}));
  facts.set("lr_schedule.wsd_decay_type", computed(decay == "sqrt" ? "minus_sqrt" : decay, {kind}));
  facts.set("lr_schedule.wsd_decay_steps",
            computed(std::max<std::int64_t>(1, whole_number(length, {ratio, total})), {ratio, kind, total}));
}

bool is_on(const Facts& facts, std::string_view name) {
  const Fact* const fact = facts.find(name);
  return fact != nullptr && fact->value == JsonValue(true);
}

// Sets facts that count only where a switch of their section is on.
void derive_titan_switches(Facts& facts) {
  if (const Fact* const saves = facts.find("@titan.saves"); saves != nullptr && !facts.is_given("checkpoint.every")) {
    if (const Fact* const every = facts.find("@save_steps"); is_on(facts, "@titan.saves") && every != nullptr)
      facts.set("checkpoint.every", computed(every->value, {saves, every}));
    else facts.set("checkpoint.every", computed(0, {saves}));
  }
  facts.erase("@save_steps");
  if (const Fact* const validates = facts.find("@titan.validates"); !is_on(facts, "@titan.validates")) {
    facts.erase("@eval_steps");
    facts.erase("eval.steps");
    if (validates != nullptr) facts.set("eval.every", computed(0, {validates}));
  }
  if (is_on(facts, "@titan.profiles")) {
    const std::int64_t every = facts.integer("@titan.profile_every").value_or(10),
                       active = facts.integer("@titan.profile_steps").value_or(1);
    facts.set("log.trace_steps",
              computed(JsonValue::Array{std::max<std::int64_t>(1, every - active + 1), every},
                       {facts.find("@titan.profiles"), facts.find("@titan.profile_every"), facts.find("@titan.profile_steps")}));
  }
  if (const Fact* const fp8 = facts.find("@titan.fp8")) {
    const Fact* const recipe = facts.find("@titan.fp8_recipe");
    facts.set("precision.fp8", computed(recipe == nullptr ? fp8->value : recipe->value, {fp8, recipe}));
  }
  if (const Fact* const folder = facts.find("@titan.folder"))
    if (const Fact* const dump = facts.find("run.dir"); is_on(facts, "@titan.saves") && dump != nullptr)
      facts.set("checkpoint.dir",
                computed(fmt::format("{}/{}", *facts.text("run.dir"), *facts.text("@titan.folder")), {dump, folder}));
  const Fact *const in_hf = facts.find("@titan.load_in_hf"), *const path = facts.find("@titan.load_path");
  if (is_on(facts, "@titan.load_in_hf")) {
    if (const Fact* const from = path != nullptr ? path : facts.find("@titan.assets"))
      facts.set("model.init_from", computed(from->value, {in_hf, from}));
  } else if (path != nullptr) {
    facts.remark(*path, "a torch checkpoint is not read: write it as a Hugging Face folder there and give that as model.init_from");
  }
}

}  // namespace

void derive_torchtitan(Facts& facts) {
  const std::int64_t stages = facts.integer("parallel.pipeline").value_or(1);
  derive_titan_model(facts);
  derive_titan_batch(facts, stages);
  derive_titan_pipeline(facts, stages);
  derive_titan_schedule(facts);
  derive_titan_switches(facts);
  const Fact *const reshard = facts.find("@titan.reshard"), *const shard = facts.find("@shard");
  if (shard != nullptr && shard->value == JsonValue(1)) facts.set("parallel.zero", computed("ddp", {shard}));
  else if (reshard != nullptr && !facts.is_given("parallel.zero"))
    facts.set("parallel.zero",
              computed(stages > 1 ? "shard_grad_op" : "zero3", {reshard, stages > 1 ? facts.find("parallel.pipeline") : nullptr}));
  if (const Fact* const tensor = facts.find("parallel.tensor"); tensor != nullptr && *facts.integer("parallel.tensor") > 1)
    facts.set("parallel.sequence_parallel", computed(true, {tensor}));
  if (const Fact* const offload = facts.find("offload.parameters"))
    for (const char* const other : {"offload.optimizer", "offload.gradients"}) facts.set(other, *offload);
}

}  // namespace trident
