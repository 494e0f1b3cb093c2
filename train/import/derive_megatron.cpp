// The model block and what else several flags of Megatron-LM say together. Facts that only its table has:
//   @position_embedding       "learned_absolute" (unless given) or "rope"
//   @normalization            "LayerNorm" (unless given) or "RMSNorm"
//   @bias_linear              false: no linear layer has a bias; else all have one
//   @swiglu, @qk_layernorm, @qkv_bias, @grouped_queries, @rope_scaling  true
//   @window                   "W,0": tokens that are seen before a token, and after it
//   @rope_linear_factor, @rope_llama3_factor                            of model.rope_scaling
//   @layers_per_virtual_stage, @first_stage_layers, @last_stage_layers  of parallel.virtual_stages and parallel.layers
//   @distributed_optimizer, @megatron_fsdp, @torch_fsdp                 of parallel.zero
//   @fp8, @fp8_recipe         of precision.fp8
//   @attention_dropout        0, where it is given
//   @warmup_fraction          of the length of the decay
//   @wsd_decay_samples, @lion_beta1, @lion_beta2, @tokenizer_type, @padded_vocabulary, @train_data_path, @documents_apart,
//   @finetune, @profile, @profile_start, @profile_end
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "core/check.h"
#include "train/foreign/foreign_key.h"
#include "train/import/facts.h"

namespace trident {
namespace {

using MaybeFact = std::optional<Fact>;

MaybeFact pull_fact(Facts& facts, std::string_view name) {
  const Fact* const found = facts.find(name);
  MaybeFact fact = found == nullptr ? std::nullopt : MaybeFact(*found);
  facts.erase(name);
  return fact;
}

const Fact* pointer(const MaybeFact& fact) { return fact ? &*fact : nullptr; }
bool is_flag_on(const MaybeFact& fact) { return fact && fact->value == JsonValue(true); }

// A fact that is text or numbers, as text: whoever types flags may have typed them, too.
std::string flag_text(const JsonValue& value) {
  if (!value.is_array()) return value.is_string() ? value.as_string() : to_json_text(value);
  std::string text;
  for (const JsonValue& item : value.items()) text.append(text.empty() ? "" : " ").append(flag_text(item));
  return text;
}

// Sets a fact that several flags say together.
void set_from(Facts& facts, std::string_view name, JsonValue value, std::initializer_list<const Fact*> from) {
  facts.set(name, computed(std::move(value), from));
}

void set_megatron_default(Facts& facts, std::string_view name, JsonValue value, std::string_view why) {
  if (facts.find(name) != nullptr) return;
  facts.set(name, {std::move(value), fmt::format("{}{}", default_origin(ForeignSystem::kMegatron), why), true});
}

struct ModelFlags {
  MaybeFact position, normalization, swiglu, biases, qkv_bias, qk_norm, grouped, window;

  bool is_rotary() const { return position && position->value == JsonValue("rope"); }
  bool is_rms() const { return normalization && normalization->value == JsonValue("RMSNorm"); }
  bool has_biases() const { return !biases || biases->value == JsonValue(true); }
  Fact together(JsonValue value) const {
    return computed(std::move(value), {pointer(position), pointer(normalization), pointer(swiglu), pointer(biases),
                                       pointer(qkv_bias), pointer(qk_norm), pointer(grouped), pointer(window)});
  }
};

ModelFlags pull_model_flags(Facts& facts) {
  return {pull_fact(facts, "@position_embedding"), pull_fact(facts, "@normalization"), pull_fact(facts, "@swiglu"),
          pull_fact(facts, "@bias_linear"),        pull_fact(facts, "@qkv_bias"),      pull_fact(facts, "@qk_layernorm"),
          pull_fact(facts, "@grouped_queries"),    pull_fact(facts, "@window")};
}

// The model_type that these flags make.
std::string_view model_type_of(const ModelFlags& flags, const Fact& layers) {
  const bool rotary = flags.is_rotary(), rms = flags.is_rms(), swiglu = is_flag_on(flags.swiglu), biases = flags.has_biases();
  const bool qkv_bias = is_flag_on(flags.qkv_bias), qk_norm = is_flag_on(flags.qk_norm), window = flags.window.has_value();
  if (!rotary && !rms && !swiglu && biases && !qk_norm && !is_flag_on(flags.grouped) && !window) return "gpt2";
  if (rotary && rms && swiglu) {
    if (biases && !qk_norm && !window) return "llama";
    if (!biases && !(qkv_bias && qk_norm)) return qkv_bias ? "qwen2" : qk_norm ? "qwen3" : window ? "mistral" : "llama";
  }
  const auto only = [](bool given, std::string_view flag) { return given ? fmt::format(", {}", flag) : std::string(); };
  throw ConfigError(fmt::format(
      "{}: no model here has --position-embedding-type {}, --normalization {}, {}{}{}{}{}{} together; gpt2 has learned_absolute, "
      "LayerNorm, GELU and all biases; llama, qwen2 (--add-qkv-bias), qwen3 (--qk-layernorm) and mistral (--window-size) have "
      "rope, RMSNorm, --swiglu and --disable-bias-linear; correct the flags",
      flags.together({}).is_default ? layers.origin : flags.together({}).origin, rotary ? "rope" : "learned_absolute",
      rms ? "RMSNorm" : "LayerNorm", swiglu ? "--swiglu" : "GELU", biases ? ", all biases" : ", --disable-bias-linear",
      only(qkv_bias, "--add-qkv-bias"), only(qk_norm, "--qk-layernorm"), only(is_flag_on(flags.grouped), "--group-query-attention"),
      only(window, "--window-size")));
}

void refuse_without(const Facts& facts, std::initializer_list<std::string_view> names, std::string_view flag) {
  for (const std::string_view name : names)
    if (facts.is_given(name))
      throw ConfigError(fmt::format("{}: has no effect without {}; leave it out, or give both", facts.find(name)->origin, flag));
}

void set_rope_scaling(Facts& facts) {
  const std::optional<double> linear = facts.number("@rope_linear_factor");
  const double factor = facts.number("@rope_llama3_factor").value_or(8.0);
  const MaybeFact scaling = pull_fact(facts, "@rope_scaling"), llama3 = pull_fact(facts, "@rope_llama3_factor"),
                  interpolation = pull_fact(facts, "@rope_linear_factor");
  if (is_flag_on(scaling))
    facts.take("model.rope_scaling", computed(JsonValue::Object{{"rope_type", "llama3"},
                                                                {"factor", factor},
                                                                {"low_freq_factor", 1.0},
                                                                {"high_freq_factor", 4.0},
                                                                {"original_max_position_embeddings", 8192}},
                                              {pointer(scaling), pointer(llama3)}));
  else if (llama3)
    facts.remark(*llama3, "goes with --use-rope-scaling");
  if (linear)
    facts.take("model.rope_scaling",
               computed(JsonValue::Object{{"rope_type", "linear"}, {"factor", *linear}}, {pointer(interpolation)}));
}

void set_window(Facts& facts, const MaybeFact& window, std::string_view type) {
  if (!window) return;
  const std::string text = flag_text(window->value);
  std::array<long, 2> sides{};
  const char* at = text.c_str();
  for (long& side : sides) {
    while (*at != '\0' && *at != '-' && (*at < '0' || *at > '9')) ++at;
    if (*at == '\0') throw ConfigError(fmt::format("{}: must be two numbers, such as 4095,0; correct it", window->origin));
    char* end = nullptr;
    side = std::strtol(at, &end, 10);
    at = end == at ? at + 1 : end;
  }
  if (sides[1] != 0 || sides[0] < 0 || sides[0] > 1'000'000'000)
    throw ConfigError(fmt::format("{}: a window reaches back alone; give W,0, or leave it out", window->origin));
  set_from(facts, "model.sliding_window", std::int64_t{sides[0]} + 1, {&*window});
  if (type == "mistral") return;
  set_from(facts, "model.use_sliding_window", true, {&*window});
  set_from(facts, "model.max_window_layers", 0, {&*window});
}

// Keys of Llama and its kin that are not flags by themselves.
void set_llama_keys(Facts& facts, const ModelFlags& flags, std::string_view type) {
  const std::int64_t hidden = *facts.integer("model.hidden_size"), heads = *facts.integer("model.num_attention_heads");
  if (!is_flag_on(flags.grouped)) refuse_without(facts, {"model.num_key_value_heads"}, "--group-query-attention");
  const MaybeFact groups = pull_fact(facts, "model.num_key_value_heads");
  if (is_flag_on(flags.grouped))
    set_from(facts, "model.num_key_value_heads", groups ? groups->value : 1, {pointer(groups), pointer(flags.grouped)});
  else
    set_megatron_default(facts, "model.num_key_value_heads", heads, ": no --group-query-attention");
  set_megatron_default(facts, "model.intermediate_size", hidden * 8 / 3 / 64 * 64, " of --ffn-hidden-size");
  if (heads > 0 && hidden % heads == 0) set_megatron_default(facts, "model.head_dim", hidden / heads, " of --kv-channels");
  set_rope_scaling(facts);
  set_window(facts, flags.window, type);
  if (!flags.has_biases()) return;
  set_megatron_default(facts, "model.attention_bias", true, ": no --disable-bias-linear");
  set_megatron_default(facts, "model.mlp_bias", true, ": no --disable-bias-linear");
}

// GPT-2's own names of the keys.
void set_gpt2_keys(Facts& facts) {
  refuse_without(facts,
                 {"model.rope_theta", "model.partial_rotary_factor", "@rope_scaling", "@rope_linear_factor", "@rope_llama3_factor"},
                 "--position-embedding-type rope");
  refuse_without(facts, {"model.num_key_value_heads"}, "--group-query-attention");
  const std::int64_t hidden = *facts.integer("model.hidden_size"), heads = *facts.integer("model.num_attention_heads");
  const std::optional<std::int64_t> width = facts.integer("model.head_dim");
  const MaybeFact head_dim = pull_fact(facts, "model.head_dim");
  if (width && (*width < 1 || hidden % *width != 0 || hidden / *width != heads))
    throw ConfigError(fmt::format("{}: gpt2's heads have hidden / heads elements; leave it out", head_dim->origin));
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"num_hidden_layers", "n_layer"},       {"hidden_size", "n_embd"},
      {"num_attention_heads", "n_head"},      {"intermediate_size", "n_inner"},
      {"rms_norm_eps", "layer_norm_epsilon"}, {"max_position_embeddings", "n_positions"}};
  for (const auto& [general, own] : kNames)
    if (MaybeFact fact = pull_fact(facts, fmt::format("model.{}", general)))
      facts.set(fmt::format("model.{}", own), std::move(*fact));
}

// The size of the vocabulary is that of the tokenizer, unless a flag says it; pretrain_gpt.py takes GPT-2's where none is named.
void set_vocabulary(Facts& facts) {
  const MaybeFact type = pull_fact(facts, "@tokenizer_type");
  if (type && facts.find("data.tokenizer") == nullptr) facts.remark(*type, "data.tokenizer is not said: give --tokenizer-model");
  if (!type && facts.find("model.vocab_size") == nullptr)
    set_megatron_default(facts, "data.tokenizer", "gpt2", " of pretrain_gpt.py");
  const Fact* const tokenizer = facts.find("data.tokenizer");
  if (tokenizer != nullptr && tokenizer->value == JsonValue("gpt2"))
    set_megatron_default(facts, "model.vocab_size", 50257, ": GPT-2's tokenizer");
  if (type && type->value == JsonValue("Llama2Tokenizer"))
    set_megatron_default(facts, "model.vocab_size", 32000, ": Llama 2's tokenizer");
  if (const MaybeFact padded = pull_fact(facts, "@padded_vocabulary"); padded && facts.find("model.vocab_size") == nullptr)
    facts.set("model.vocab_size", *padded);
  const MaybeFact source = type ? type : tokenizer == nullptr ? std::nullopt : MaybeFact(*tokenizer);
  if (source && facts.find("model.vocab_size") == nullptr)
    facts.remark(*source, "model.vocab_size is not said: give --vocab-size, else it is that of model_type");
}

void set_model(Facts& facts) {
  const ModelFlags flags = pull_model_flags(facts);
  const Fact* some = nullptr;
  for (const std::string_view name : {"model.num_hidden_layers", "model.hidden_size", "model.num_attention_heads"})
    if (some == nullptr) some = facts.find(name);
  const Fact together = flags.together({});
  if (some == nullptr && !together.origin.empty()) some = &together;
  if (some == nullptr) {  // a part of a script: the model is another's
    for (const std::string_view name : {"model.rms_norm_eps", "model.dropout"})
      if (!facts.is_given(name)) facts.erase(name);
    return;
  }
  for (const auto& [name, flag] : {std::pair{"model.num_hidden_layers", "--num-layers"},
                                   {"model.hidden_size", "--hidden-size"},
                                   {"model.num_attention_heads", "--num-attention-heads"}})
    if (facts.find(name) == nullptr) throw ConfigError(fmt::format("{}: a model needs {}, too; give it", some->origin, flag));
  const Fact layers = *facts.find("model.num_hidden_layers");
  const std::string_view type = model_type_of(flags, layers);
  Fact model_type = flags.together(type);
  facts.set("model.model_type", model_type.is_default ? computed(type, {&layers}) : std::move(model_type));
  if (!pull_fact(facts, "@attention_dropout"))
    facts.remark(layers, "attention probabilities have no dropout here; Megatron-LM's default is 0.1");
  set_megatron_default(facts, "model.tie_word_embeddings", true, ": no --untie-embeddings-and-output-weights");
  set_vocabulary(facts);
  if (type == "gpt2")
    set_gpt2_keys(facts);
  else
    set_llama_keys(facts, flags, type);
}

void set_layers_of_stages(Facts& facts, std::int64_t layers, std::int64_t stages) {
  const std::optional<std::int64_t> first = facts.integer("@first_stage_layers"), last = facts.integer("@last_stage_layers");
  const MaybeFact first_fact = pull_fact(facts, "@first_stage_layers"), last_fact = pull_fact(facts, "@last_stage_layers");
  if (!first && !last) return;
  const Fact both = computed({}, {pointer(first_fact), pointer(last_fact)});
  const std::int64_t inner = stages - (first ? 1 : 0) - (last ? 1 : 0), rest = layers - first.value_or(0) - last.value_or(0);
  if (facts.integer("parallel.virtual_stages").value_or(1) > 1 || inner < 1 || inner > 65536 || rest < inner || rest % inner != 0)
    throw ConfigError(
        fmt::format("{}: the other layers do not divide into the other stages; give parallel.layers, where all "
                    "stages are listed",
                    both.origin));
  JsonValue::Array list(static_cast<std::size_t>(inner), rest / inner);
  if (first) list.insert(list.begin(), *first);
  if (last) list.emplace_back(*last);
  set_from(facts, "parallel.layers", std::move(list), {&both});
}

void set_stages(Facts& facts) {
  const std::int64_t stages = facts.integer("parallel.pipeline").value_or(1);
  const std::string_view name = facts.find("model.n_layer") != nullptr ? "model.n_layer" : "model.num_hidden_layers";
  const std::int64_t layers = facts.integer(name).value_or(0);
  if (const std::optional<std::int64_t> each = facts.integer("@layers_per_virtual_stage")) {
    const MaybeFact fact = pull_fact(facts, "@layers_per_virtual_stage");
    if (stages < 1 || *each < 1 || *each > layers || layers % stages != 0 || layers / stages % *each != 0)
      throw ConfigError(fmt::format("{}: {} layers do not divide into {} stages of chunks of {}; change one of them", fact->origin,
                                    layers, stages, *each));
    facts.take("parallel.virtual_stages", computed(layers / stages / *each, {&*fact}));
  }
  if (facts.integer("parallel.virtual_stages").value_or(1) > 1)
    set_from(facts, "parallel.schedule", "interleaved", {facts.find("parallel.virtual_stages")});
  set_layers_of_stages(facts, layers, stages);
}

void set_layout(Facts& facts) {
  const MaybeFact optimizer = pull_fact(facts, "@distributed_optimizer"), megatron = pull_fact(facts, "@megatron_fsdp"),
                  torch = pull_fact(facts, "@torch_fsdp"), said = pull_fact(facts, "parallel.zero");
  const bool is_sharded = megatron || torch;
  if (said || is_sharded || optimizer)
    set_from(facts, "parallel.zero",
             said         ? said->value
             : is_sharded ? "zero3"
                          : "zero1",
             {pointer(said), pointer(megatron), pointer(torch), pointer(optimizer)});
  else
    set_megatron_default(facts, "parallel.zero", "ddp", ": no --use-distributed-optimizer");
  if (facts.is_given("batch.micro") && !facts.is_given("batch.global")) set_megatron_default(facts, "@accumulation", 1, "");
  if (const Fact* const copies = facts.find("@replicate")) set_from(facts, "@shard", -1, {copies});
  set_stages(facts);
}

void set_warmup(Facts& facts) {
  const std::optional<double> share = facts.share("@warmup_fraction");
  if (!share) return;
  const MaybeFact fraction = pull_fact(facts, "@warmup_fraction");
  // The product of a share such as 0.001 is a little more than the whole number that is meant.
  const auto part_of = [&](std::int64_t whole) {
    return static_cast<std::int64_t>(std::ceil(*share * static_cast<double>(whole) * (1 - 1e-12)));
  };
  for (const auto& [length, to] : {std::pair{"lr_schedule.decay_steps", "lr_schedule.warmup_steps"},
                                   {"run.steps", "lr_schedule.warmup_steps"},
                                   {"@decay_samples", "@warmup_samples"},
                                   {"@train_samples", "@warmup_samples"}})
    if (facts.is_given(length)) return facts.take(to, computed(part_of(*facts.integer(length)), {&*fraction}));
  facts.take("@warmup_ratio", *fraction);
}

void set_updates(Facts& facts) {
  const bool is_lion = facts.find("optimizer.type") != nullptr && facts.find("optimizer.type")->value == JsonValue("lion");
  for (const auto& [own, general] : {std::pair{"@lion_beta1", "@beta1"}, {"@lion_beta2", "@beta2"}}) {
    const MaybeFact beta = pull_fact(facts, own);
    if (beta && is_lion)
      facts.set(general, *beta);
    else if (beta && !beta->is_default)
      facts.remark(*beta, "goes with --optimizer lion");
  }
  set_warmup(facts);
  const std::optional<std::int64_t> samples = facts.integer("@wsd_decay_samples"), batch = facts.integer("batch.global");
  const MaybeFact decay = pull_fact(facts, "@wsd_decay_samples");
  if (!samples) return;
  if (!batch || *batch < 1)
    throw ConfigError(fmt::format("{}: steps are samples over the batch; give --global-batch-size, too", decay->origin));
  set_from(facts, "lr_schedule.wsd_decay_steps", *samples / *batch + (*samples % *batch != 0 ? 1 : 0), {&*decay});
}

// "PREFIX", "PREFIX1 PREFIX2" or "W1 PREFIX1 W2 PREFIX2" as data.train has it.
JsonValue sources_of(const Fact& fact) {
  std::vector<std::string> words;
  const std::string text = flag_text(fact.value);
  for (std::size_t at = text.find_first_not_of(' '); at < text.size(); at = text.find_first_not_of(' ', at)) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  const auto weight = [&](std::size_t i) {
    char* end = nullptr;
    const double number = std::strtod(words[i].c_str(), &end);
    return *end == '\0' ? std::optional(number) : std::nullopt;
  };
  if (words.size() == 1) return words[0];
  JsonValue::Array list;
  if (words.empty() || !weight(0)) {
    for (const std::string& word : words) list.emplace_back(word);
    return list;
  }
  for (std::size_t i = 0; i + 1 < words.size() && weight(i); i += 2)
    list.emplace_back(JsonValue::Object{{"path", words[i + 1]}, {"weight", *weight(i)}});
  if (list.size() * 2 != words.size())
    throw ConfigError(fmt::format("{}: a weight stands before each prefix, or before none; correct it", fact.origin));
  return list;
}

void set_data(Facts& facts) {
  if (facts.is_given("data.train") && !facts.is_given("data.valid"))
    set_megatron_default(facts, "data.split", "969,30,1", " beside --data-path");
  if (MaybeFact all = pull_fact(facts, "@train_data_path")) facts.take("data.train", std::move(*all));
  for (const std::string_view name : {"data.train", "data.valid"})
    if (const MaybeFact fact = pull_fact(facts, name)) set_from(facts, name, sources_of(*fact), {&*fact});
  if (MaybeFact split = pull_fact(facts, "data.split")) {
    std::string shares = flag_text(split->value);
    std::erase_if(shares, [](char c) { return c == ' ' || c == '\'' || c == '"'; });
    split->value = shares;
    facts.set("data.split", std::move(*split));
  }
  const MaybeFact apart = pull_fact(facts, "@documents_apart");
  if (!is_flag_on(apart)) return;
  for (const std::string_view name : {"data.reset_attention_mask", "data.reset_position_ids"}) facts.take(name, *apart);
  set_from(facts, "data.boundaries", "index", {&*apart});
}

void set_run(Facts& facts) {
  set_megatron_default(facts, "precision.compute", "fp32", ": neither --bf16 nor --fp16");
  const MaybeFact fp8 = pull_fact(facts, "@fp8"), recipe = pull_fact(facts, "@fp8_recipe");
  if (fp8)
    set_from(facts, "precision.fp8", recipe ? recipe->value : true, {&*fp8, pointer(recipe)});
  else if (recipe)
    facts.remark(*recipe, "goes with --fp8-format");
  const MaybeFact finetune = pull_fact(facts, "@finetune"), load = pull_fact(facts, "checkpoint.resume");
  const Fact* const dir = facts.find("checkpoint.dir");
  if (load && is_flag_on(finetune))
    facts.take("model.init_from", computed(load->value, {&*load, &*finetune}));
  else if (load)
    set_from(facts, "checkpoint.resume", dir != nullptr && dir->value == load->value ? "auto" : load->value, {&*load});
  const std::int64_t begin = facts.integer("@profile_start").value_or(10), end = facts.integer("@profile_end").value_or(12);
  const MaybeFact profile = pull_fact(facts, "@profile"), first = pull_fact(facts, "@profile_start"),
                  last = pull_fact(facts, "@profile_end");
  if (is_flag_on(profile))
    set_from(facts, "log.trace_steps", JsonValue::Array{begin, end}, {&*profile, pointer(first), pointer(last)});
  for (const MaybeFact& fact : {first, last})
    if (fact && !profile) facts.remark(*fact, "goes with --profile");
}

}  // namespace

void derive_megatron(Facts& facts) {
  set_model(facts);
  set_layout(facts);
  set_updates(facts);
  set_data(facts);
  set_run(facts);
}

}  // namespace trident
