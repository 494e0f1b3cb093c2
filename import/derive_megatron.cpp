// The model block and what else several flags of Megatron-LM say together.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "import/facts.h"

namespace trident {
namespace {

constexpr std::array<std::string_view, 8> kShape{"@position_embedding", "@normalization", "@swiglu",          "@bias_linear",
                                                 "@qkv_bias",           "@qk_layernorm",  "@grouped_queries", "@window"};

void fill(Facts& facts, std::string_view name, JsonValue value, std::string_view why) {
  facts.take(name, of_default(ForeignSystem::kMegatron, std::move(value), why));
}

// The flags that say which family a model is of.
struct Shape {
  explicit Shape(const Facts& facts)
      : rotary(facts.is("@position_embedding", "rope")),
        rms(facts.is("@normalization", "RMSNorm")),
        swiglu(facts.is_on("@swiglu")),
        biases(!facts.is("@bias_linear", false)),
        qkv_bias(facts.is_on("@qkv_bias")),
        qk_norm(facts.is_on("@qk_layernorm")),
        grouped(facts.is_on("@grouped_queries")),
        window(facts.find("@window") != nullptr) {
    for (const std::string_view name : kShape)
      if (const Fact* const fact = facts.find(name)) flags = computed({}, {&flags, fact});
  }
  bool rotary, rms, swiglu, biases, qkv_bias, qk_norm, grouped, window;
  Fact flags{{}, "", Weight::kDefault};
};

std::string_view model_type_of(const Shape& it, const Fact& layers) {
  if (!it.rotary && !it.rms && !it.swiglu && it.biases && !it.qk_norm && !it.grouped && !it.window) return "gpt2";
  if (it.rotary && it.rms && it.swiglu) {
    if (it.biases && !it.qk_norm && !it.window) return "llama";
    if (!it.biases && !(it.qkv_bias && it.qk_norm))
      return it.qkv_bias ? "qwen2" : it.qk_norm ? "qwen3" : it.window ? "mistral" : "llama";
  }
  const auto only = [](bool given, std::string_view flag) { return given ? fmt::format(", {}", flag) : std::string(); };
  throw ConfigError(fmt::format(
      "{}: no model here has --position-embedding-type {}, --normalization {}, {}{}{}{}{}{} together; gpt2 has learned_absolute, "
      "LayerNorm, GELU and all biases; llama, qwen2 (--add-qkv-bias), qwen3 (--qk-layernorm) and mistral (--window-size) have "
      "rope, RMSNorm, --swiglu and --disable-bias-linear; correct the flags",
      it.flags.origin.empty() ? layers.origin : it.flags.origin, it.rotary ? "rope" : "learned_absolute",
      it.rms ? "RMSNorm" : "LayerNorm", it.swiglu ? "--swiglu" : "GELU", it.biases ? ", all biases" : ", --disable-bias-linear",
      only(it.qkv_bias, "--add-qkv-bias"), only(it.qk_norm, "--qk-layernorm"), only(it.grouped, "--group-query-attention"),
      only(it.window, "--window-size")));
}

void refuse_without(const Facts& facts, std::initializer_list<std::string_view> names, std::string_view flag) {
  for (const std::string_view name : names)
    if (facts.is_given(name))
      throw ConfigError(fmt::format("{}: has no effect without {}; leave it out, or give both", facts.find(name)->origin, flag));
}

void set_window(Facts& facts, std::string_view type) {
  const Fact window = *facts.find("@window");
  const std::vector<std::string> sides = words_in(window.value, ", ()'\"");
  const auto side = [&](std::size_t i) {
    const std::optional<JsonValue> number = i < sides.size() ? number_in(sides[i]) : std::nullopt;
    if (!number) throw ConfigError(fmt::format("{}: must be two numbers, such as 4095,0; correct it", window.origin));
    return number->as_number();
  };
  if (side(1) != 0 || side(0) < 0 || side(0) != std::floor(side(0)))
    throw ConfigError(fmt::format("{}: a window reaches back alone, whole tokens; give W,0, or leave it out", window.origin));
  facts.set("model.sliding_window", whole_number(side(0) + 1, {&window}), {"@window"});
  if (type == "mistral") return;
  facts.set("model.use_sliding_window", true, {"@window"});
  facts.set("model.max_window_layers", 0, {"@window"});
}

// Keys of Llama and its kin that are not flags by themselves.
void set_llama_keys(Facts& facts, const Shape& shape, std::string_view type) {
  const std::int64_t hidden = *facts.integer("model.hidden_size"), heads = *facts.positive("model.num_attention_heads");
  const std::string_view groups = "model.num_key_value_heads";
  if (shape.grouped)
    facts.set(groups, facts.find(groups) == nullptr ? JsonValue(1) : facts.find(groups)->value, {groups, "@grouped_queries"});
  else
    refuse_without(facts, {groups}, "--group-query-attention"), fill(facts, groups, heads, ": no --group-query-attention");
  fill(facts, "model.intermediate_size", hidden * 8 / 3 / 64 * 64, " of --ffn-hidden-size");
  if (hidden % heads == 0) fill(facts, "model.head_dim", hidden / heads, " of --kv-channels");
  if (facts.is_on("@rope_scaling"))
    facts.set("model.rope_scaling", llama3_rope_scaling(facts.number("@rope_llama3_factor").value_or(8.0)),
              {"@rope_scaling", "@rope_llama3_factor"});
  facts.keep_beside("@rope_scaling", {"@rope_llama3_factor"}, "--use-rope-scaling");
  if (const std::optional<double> linear = facts.number("@rope_linear_factor"))
    facts.take("model.rope_scaling",
               computed(JsonValue::Object{{"rope_type", "linear"}, {"factor", *linear}}, {facts.find("@rope_linear_factor")}));
  if (shape.window) set_window(facts, type);
  if (!shape.biases) return;
  fill(facts, "model.attention_bias", true, ": no --disable-bias-linear");
  fill(facts, "model.mlp_bias", true, ": no --disable-bias-linear");
}

// GPT-2's own names of the keys.
void set_gpt2_keys(Facts& facts) {
  refuse_without(facts,
                 {"model.rope_theta", "model.partial_rotary_factor", "@rope_scaling", "@rope_linear_factor", "@rope_llama3_factor"},
                 "--position-embedding-type rope");
  refuse_without(facts, {"model.num_key_value_heads"}, "--group-query-attention");
  const double hidden = *facts.number("model.hidden_size"),
               heads = static_cast<double>(*facts.positive("model.num_attention_heads"));
  if (facts.number("model.head_dim").value_or(0) * heads != hidden && facts.find("model.head_dim") != nullptr)
    throw ConfigError(
        fmt::format("{}: gpt2's heads have hidden / heads elements; leave it out", facts.find("model.head_dim")->origin));
  facts.erase("model.head_dim");
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"num_hidden_layers", "n_layer"},       {"hidden_size", "n_embd"},
      {"num_attention_heads", "n_head"},      {"intermediate_size", "n_inner"},
      {"rms_norm_eps", "layer_norm_epsilon"}, {"max_position_embeddings", "n_positions"}};
  for (const auto& [general, own] : kNames)
    if (std::optional<Fact> fact = facts.pull(fmt::format("model.{}", general)))
      facts.set(fmt::format("model.{}", own), std::move(*fact));
}

// The size of the vocabulary is that of the tokenizer, unless a flag says it; pretrain_gpt.py takes GPT-2's where none is named.
void set_vocabulary(Facts& facts) {
  const bool has_type = facts.find("@tokenizer_type") != nullptr;
  if (!has_type && facts.find("model.vocab_size") == nullptr) fill(facts, "data.tokenizer", "gpt2", " of pretrain_gpt.py");
  if (facts.find("data.tokenizer") == nullptr)
    facts.remark("@tokenizer_type", "data.tokenizer is not said: give --tokenizer-model");
  if (facts.is("data.tokenizer", "gpt2")) fill(facts, "model.vocab_size", 50257, ": GPT-2's tokenizer");
  if (facts.is("@tokenizer_type", "Llama2Tokenizer")) fill(facts, "model.vocab_size", 32000, ": Llama 2's tokenizer");
  if (facts.find("model.vocab_size") != nullptr) return;
  if (const Fact* const padded = facts.find("@padded_vocabulary"))
    facts.set("model.vocab_size", *padded);
  else
    facts.remark(has_type ? "@tokenizer_type" : "data.tokenizer",
                 "model.vocab_size is not said: give --vocab-size, else it is that of model_type");
}

void set_model(Facts& facts) {
  const Shape shape(facts);
  const Fact* some = nullptr;
  for (const std::string_view name : {"model.num_hidden_layers", "model.hidden_size", "model.num_attention_heads"})
    if (some == nullptr) some = facts.find(name);
  if (some == nullptr && !shape.flags.origin.empty()) some = &shape.flags;
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
  const std::string_view type = model_type_of(shape, layers);
  facts.set("model.model_type", computed(type, {shape.flags.origin.empty() ? &layers : &shape.flags}));
  if (facts.find("@attention_dropout") == nullptr)
    facts.set(type == "gpt2" ? "model.attn_pdrop" : "model.attention_dropout",
              {0, "none here, where Megatron-LM's default of --attention-dropout is 0.1", Weight::kDefault});
  fill(facts, "model.tie_word_embeddings", true, ": no --untie-embeddings-and-output-weights");
  set_vocabulary(facts);
  if (type == "gpt2")
    set_gpt2_keys(facts);
  else
    set_llama_keys(facts, shape, type);
}

void set_stages(Facts& facts) {
  const std::string_view layers = facts.find("model.n_layer") != nullptr ? "model.n_layer" : "model.num_hidden_layers";
  if (facts.find("@layers_per_virtual_stage") != nullptr) {
    apply(facts, {"parallel.virtual_stages", layers, "parallel.pipeline? @layers_per_virtual_stage"});
  }
  const bool is_interleaved = facts.integer("parallel.virtual_stages").value_or(1) > 1;
  if (is_interleaved) facts.set("parallel.schedule", "interleaved", {"parallel.virtual_stages"});
  const std::optional<std::int64_t> first = facts.integer("@first_stage_layers"), last = facts.integer("@last_stage_layers");
  if (!first && !last) return;
  const std::int64_t inner = facts.integer("parallel.pipeline").value_or(1) - (first ? 1 : 0) - (last ? 1 : 0),
                     rest = facts.integer(layers).value_or(0) - first.value_or(0) - last.value_or(0);
  if (is_interleaved || inner < 1 || inner > 65536 || rest < inner || rest % inner != 0)
    throw ConfigError(
        fmt::format("{}: the other layers do not divide into the other stages; give parallel.layers, where all stages "
                    "are listed",
                    computed({}, {facts.find("@first_stage_layers"), facts.find("@last_stage_layers")}).origin));
  JsonValue::Array list(static_cast<std::size_t>(inner), rest / inner);
  if (first) list.insert(list.begin(), *first);
  if (last) list.emplace_back(*last);
  facts.set("parallel.layers", std::move(list), {"@first_stage_layers", "@last_stage_layers"});
}

void set_layout(Facts& facts) {
  const std::array<std::string_view, 4> said{"parallel.zero", "@megatron_fsdp", "@torch_fsdp", "@distributed_optimizer"};
  const auto first = std::ranges::find_if(said, [&](std::string_view name) { return facts.find(name) != nullptr; });
  if (first == said.end())
    fill(facts, "parallel.zero", "ddp", ": no --use-distributed-optimizer");
  else
    facts.set("parallel.zero",
              first == said.begin()     ? facts.find(*first)->value
              : first + 1 == said.end() ? "zero1"
                                        : "zero3",
              {said[0], said[1], said[2], said[3]});
  if (facts.is_given("batch.micro") && facts.find("batch.global") == nullptr) fill(facts, "@accumulation", 1, "");
  if (facts.find("@replicate") != nullptr) facts.set("@shard", -1, {"@replicate"});
  set_stages(facts);
}

void set_updates(Facts& facts) {
  if (facts.is("optimizer.type", "lion"))
    for (const auto& [own, general] : {std::pair{"@lion_beta1", "@beta1"}, {"@lion_beta2", "@beta2"}})
      if (const Fact* const beta = facts.find(own)) facts.set(general, *beta);
  if (!facts.is("optimizer.type", "lion")) facts.keep_beside("@lion", {"@lion_beta1", "@lion_beta2"}, "--optimizer lion");
  apply(facts, {"lr_schedule.wsd_decay_steps", "@wsd_decay_samples", "batch.global", Round::kUp});
  if (!facts.share("@warmup_fraction")) return;
  for (const auto& [length, to] : {std::pair{"lr_schedule.decay_steps", "lr_schedule.warmup_steps"},
                                   {"run.steps", "lr_schedule.warmup_steps"},
                                   {"@decay_samples", "@warmup_samples"},
                                   {"@train_samples", "@warmup_samples"}})
    // The product of a share such as 0.001 is a little more than the whole number that is meant.
    if (facts.is_open(length)) {
      return facts.take(to, computed(facts.find(length)->value, {facts.find(length), facts.find("@warmup_fraction")}));
    } else if (facts.is_given(length)) {
      const double part = *facts.number("@warmup_fraction") * *facts.number(length) * (1 - 1e-12);
      return facts.take(to, computed(whole_number(std::ceil(part), {facts.find(length)}), {facts.find("@warmup_fraction")}));
    }
  facts.take("@warmup_ratio", *facts.find("@warmup_fraction"));
}

// "PREFIX", "PREFIX1 PREFIX2" or "W1 PREFIX1 W2 PREFIX2" as data.train has it.
JsonValue sources_of(const Fact& fact) {
  if (fact.is_open()) return fact.value;
  const std::vector<std::string> words = words_in(fact.value, " ");
  if (words.size() == 1) return words[0];
  if (words.empty() || !number_in(words[0])) return JsonValue::Array(words.begin(), words.end());
  JsonValue::Array list;
  for (std::size_t i = 0; i + 1 < words.size() && number_in(words[i]); i += 2)
    list.emplace_back(JsonValue::Object{{"path", words[i + 1]}, {"weight", *number_in(words[i])}});
  if (list.size() * 2 != words.size())
    throw ConfigError(fmt::format("{}: a weight stands before each prefix, or before none; correct it", fact.origin));
  return list;
}

void set_data(Facts& facts) {
  if (facts.is_given("data.train") && !facts.is_given("data.valid")) fill(facts, "data.split", "969,30,1", " beside --data-path");
  if (const Fact* const all = facts.find("@train_data_path")) facts.take("data.train", *all);
  for (const std::string_view name : {"data.train", "data.valid"})
    if (const Fact* const fact = facts.find(name)) facts.set(name, sources_of(*fact), {name});
  if (std::optional<Fact> split = facts.pull("data.split")) {
    std::string shares;
    for (const std::string& share : words_in(split->value, ", '\"")) shares += (shares.empty() ? "" : ",") + share;
    facts.set("data.split", {shares, split->origin, split->weight});
    if (const std::vector<std::string> parts = words_in(shares);
        !split->is_open() && !facts.is_given("data.valid") &&
        (parts.size() < 2 || is_same_value(number_in(parts[1]).value_or(1), 0))) {
      facts.remark("eval.every", "--split leaves nothing to evaluate on");
      facts.set("eval.every", 0, {"data.split"});
    }
  }
  const bool has_valid = facts.find("data.split") != nullptr || facts.find("data.valid") != nullptr;
  if (has_valid && facts.find("@eval_strategy") == nullptr) fill(facts, "eval.every", 1000, "");  // megatron sft has its own
  if (!facts.is_on("@documents_apart")) return;
  for (const std::string_view name : {"data.reset_attention_mask", "data.reset_position_ids"})
    facts.take(name, *facts.find("@documents_apart"));
  facts.set("data.boundaries", "index", {"@documents_apart"});
}

void set_run(Facts& facts) {
  if (facts.is_on("@no_evaluation")) facts.set("eval.every", 0, {"@no_evaluation"});
  fill(facts, "precision.compute", "fp32", ": neither --bf16 nor --fp16");
  if (const Fact* const dir = facts.find("checkpoint.dir")) {  // one folder for the run; a base or --set may say another
    Fact beside = *dir;
    beside.weight = Weight::kDefault;
    facts.take("run.dir", beside);
  }
  take_fp8(facts);
  if (const std::optional<Fact> load = facts.pull("checkpoint.resume")) {
    const Fact* const dir = facts.find("checkpoint.dir");
    const bool is_same = dir != nullptr && dir->value == load->value;
    if (facts.is_on("@finetune"))
      facts.take("model.init_from", computed(load->value, {&*load, facts.find("@finetune")}));
    else
      facts.set("checkpoint.resume", {is_same ? JsonValue("auto") : load->value, load->origin, load->weight});
  }
  if (facts.is_on("@profile"))
    facts.set("log.trace_steps",
              JsonValue::Array{facts.integer("@profile_start").value_or(10), facts.integer("@profile_end").value_or(12)},
              {"@profile", "@profile_start", "@profile_end"});
  facts.keep_beside("@profile", {"@profile_start", "@profile_end"}, "--profile");
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
