#include "planner/published/memory_cases.h"

#include <cstdint>

#include "model/config/model_config.h"
#include "model/config/model_stats.h"
#include "planner/published/reference_formulas.h"

namespace trident {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kMib = 1024.0 * 1024.0;
constexpr double kBillion = 1e9;

// Widths alone, as closed forms take them: nothing says what a layer is made of.
bool has_only_widths(const CaseFields& config) {
  for (const char* key : {"act", "ffn", "bias", "kv_heads", "norm", "positions", "head_dim"})
    if (config.has(key)) return false;
  return config.has("seq");
}

bool is_layer_norm(CaseFields& config, bool biased) {
  if (!config.has("norm")) return biased;
  const std::string norm = config.text("norm");
  if (norm != "LayerNorm" && norm != "RMSNorm")
    throw UnsupportedCase("config.norm = " + in_quotes(norm) + ": neither LayerNorm nor RMSNorm");
  return norm == "LayerNorm";
}

bool is_swiglu(CaseFields& config, bool fallback) {
  if (!config.has("act")) return fallback;
  const std::string act = config.text("act");
  if (act != "swiglu" && act != "gelu") throw UnsupportedCase("config.act = " + in_quotes(act) + ": neither swiglu nor gelu");
  return act == "swiglu";
}

// Llama's family without `bias`, GPT-2's with it, as far as the row does not say otherwise.
ModelConfig model_of(CaseFields& config) {
  ModelConfig model;
  const bool biased = config.has("bias") && config.flag("bias");
  model.layers = config.count("layers");
  model.hidden = config.count("hidden");
  model.vocab_size = config.count("vocab");
  model.norm = is_layer_norm(config, biased) ? NormKind::kLayerNorm : NormKind::kRmsNorm;
  model.activation = is_swiglu(config, !biased) ? Activation::kSwiGlu : Activation::kGeluTanh;
  model.qkv_bias = biased || (config.has("qkv_bias") && config.flag("qkv_bias"));
  model.output_bias = model.mlp_bias = biased;
  // Without grouped queries the number of heads changes no matrix: one head as wide as the layer will do.
  model.heads = config.has("heads") || config.has("kv_heads") ? config.count("heads") : 1;
  model.kv_heads = config.has("kv_heads") ? config.count("kv_heads") : model.heads;
  if (!config.has("head_dim") && model.hidden % model.heads != 0)
    throw UnsupportedCase(fmt::format("config.heads = {}: does not divide config.hidden = {}", model.heads, model.hidden));
  model.head_dim = config.has("head_dim") ? config.count("head_dim") : model.hidden / model.heads;
  model.ffn = model.activation == Activation::kSwiGlu ? config.count("ffn") : config.count_or("ffn", 4 * model.hidden);
  model.position = config.has("positions") ? PositionKind::kLearned : PositionKind::kRope;
  model.max_positions = config.has("positions") ? config.count("positions") : 1;
  model.tie_embeddings = config.flag_or("tied", biased);
  validate(model, "config");
  return model;
}

GptLayer gpt_layer(CaseFields& config) {
  GptLayer layer;
  layer.sequence = static_cast<double>(config.count("seq"));
  layer.micro_batch = static_cast<double>(config.count_or("micro_batch", 1));
  layer.hidden = static_cast<double>(config.count("hidden"));
  layer.heads = static_cast<double>(config.count("heads"));
  layer.tensor = static_cast<double>(config.count_or("tp", 1));
  return layer;
}

ActivationMode activation_mode(const CaseFields& config) {
  const std::string name = config.text("mode");
  const auto mode = parse_activation_mode(name);
  if (!mode) throw UnsupportedCase("config.mode = " + in_quotes(name) + ": no formula has this name");
  return *mode;
}

struct Depth {
  double layers, pipeline, virtual_stages;
};
Depth depth_of(CaseFields& config) {
  return {static_cast<double>(config.count("layers")), static_cast<double>(config.count_or("pp", 1)),
          static_cast<double>(config.count_or("vpp", 1))};
}

double params_of(const CaseFields& config) {
  return config.has("params") ? config.positive("params") : config.positive("params_b") * kBillion;
}

CaseQuantities deepspeed_states(CaseFields& config) {
  DeepSpeedQuestion question;
  question.stage = static_cast<int>(config.count("zero_stage", 3));
  const std::string mode = config.text("mode");
  const auto says = [&](std::string_view part) { return mode.find(part) != mode.npos; };
  if (question.stage < 2) throw UnsupportedCase("config.zero_stage = 1: the estimators are for 2 and 3");
  if (says("params"))
    question.offload = Offload::kOptimizerAndParameters;
  else if (says("optimizer"))
    question.offload = Offload::kOptimizer;
  else if (!says("no offload"))
    throw UnsupportedCase("config.mode = " + in_quotes(mode) + ": says neither what is offloaded nor \"no offload\"");
  if (question.stage == 2 && question.offload == Offload::kOptimizerAndParameters)
    throw UnsupportedCase("config.mode = " + in_quotes(mode) + ": stage 2 keeps its parameters");
  question.zero_init = says("zero_init");
  question.params = params_of(config);
  question.largest_layer_params = question.stage == 3 ? config.positive("largest_layer_params") : 0;
  question.nodes = static_cast<double>(config.count_or("nodes", 1));
  question.gpus_per_node = static_cast<double>(config.count("gpus_per_node"));
  const DeepSpeedEstimate estimate = deepspeed_estimate(question);
  return {{"gpu_gib", exact_number(estimate.gpu_bytes / kGib)}, {"cpu_gib", exact_number(estimate.cpu_bytes / kGib)}};
}

}  // namespace

CaseQuantities count_parameters(CaseFields& config) {
  if (has_only_widths(config)) {
    const auto width = [&](const char* key) { return static_cast<double>(config.count(key)); };
    return {{"params", exact_number(closed_form_parameters(width("layers"), width("hidden"), width("vocab"), width("seq")))}};
  }
  return {{"params", JsonValue(num_parameters(model_of(config)))}};
}

CaseQuantities model_states(CaseFields& config) {
  if (config.has("gpus_per_node")) return deepspeed_states(config);
  const double params = params_of(config), data = static_cast<double>(config.count_or("dp", 1));
  StateBytes per_parameter;
  if (config.has("convention")) {
    const std::string name = config.text("convention");
    const auto known = parse_state_convention(name);
    if (!known) throw UnsupportedCase("config.convention = " + in_quotes(name) + ": no such convention is known");
    per_parameter = *known;
  } else {
    const double stage = config.amount("zero_stage");
    if (stage != 0 && stage != 1 && stage != 2 && stage != 3)
      throw UnsupportedCase(fmt::format("config.zero_stage = {}: must be 0, 1, 2 or 3", stage));
    const double param_bytes = config.amount_or("param_bytes", 2), grad_bytes = config.amount_or("grad_bytes", 2);
    per_parameter = zero_state_bytes(static_cast<int>(stage), param_bytes, grad_bytes, config.amount_or("optim_bytes", 12));
  }
  const double bytes = state_bytes(per_parameter, params, data);
  return {{"bytes", exact_number(bytes)}, {"gb", exact_number(bytes / 1e9)}};
}

CaseQuantities checkpoint_size(CaseFields& config) {
  const double bytes = kCheckpointBytesPerParameter * params_of(config);
  return {{"bytes", exact_number(bytes)}, {"tb", exact_number(bytes / 1e12)}};
}

CaseQuantities layer_activations(CaseFields& config) {
  return {{"bytes", exact_number(layer_activation_bytes(activation_mode(config), gpt_layer(config)))}};
}

CaseQuantities first_stage_activations(CaseFields& config) {
  const GptLayer layer = gpt_layer(config);
  const auto [layers, pipeline, virtual_stages] = depth_of(config);
  const double bytes = first_stage_activation_bytes(activation_mode(config), layer, layers, pipeline, virtual_stages);
  return {{"bytes", exact_number(bytes)}, {"gib", exact_number(bytes / kGib)}};
}

CaseQuantities first_stage_total(CaseFields& config) {
  const GptLayer layer = gpt_layer(config);
  const auto [layers, pipeline, virtual_stages] = depth_of(config);
  const auto gib = [&, L = layers, p = pipeline, v = virtual_stages](ActivationMode mode) {
    return exact_number(first_stage_activation_bytes(mode, layer, L, p, v) / kGib);
  };
  return {{"params_optimizer_gib", exact_number(gpt_state_bytes(layers, layer.hidden, layer.tensor, pipeline) / kGib)},
          {"activations_tp_no_recompute_gib", gib(ActivationMode::kTensor)},
          {"activations_sp_selective_gib", gib(ActivationMode::kSequenceSelective)}};
}

CaseQuantities activation_ratios(CaseFields& config) {
  const GptLayer layer = gpt_layer(config);
  const double baseline = layer_activation_bytes(ActivationMode::kTensor, layer);
  const auto percent = [&](ActivationMode mode) { return exact_number(100 * layer_activation_bytes(mode, layer) / baseline); };
  return {{"percent", JsonValue(JsonValue::Object{{"sequence_parallel", percent(ActivationMode::kSequence)},
                                                  {"selective_recompute", percent(ActivationMode::kTensorSelective)},
                                                  {"both", percent(ActivationMode::kSequenceSelective)},
                                                  {"full_recompute", percent(ActivationMode::kFull)}})}};
}

CaseQuantities activation_extras(CaseFields& config) {
  const auto amount = [&](const char* key) { return static_cast<double>(config.count(key)); };
  if (config.has("in_flight")) {  // outputs of a stage that need not be kept once they are sent
    const double bytes = 2 * amount("seq") * amount("micro_batch") * amount("hidden") * amount("in_flight");
    return {{"bytes", exact_number(bytes)}, {"gib", exact_number(bytes / kGib)}};
  }
  const double tensor = static_cast<double>(config.count_or("tp", 1));
  const auto logits = [&](double bytes) {
    return exact_number(logits_bytes(amount("seq"), amount("micro_batch"), amount("vocab"), tensor, bytes));
  };
  return {{"bf16_bytes", logits(2)}, {"fp32_bytes", logits(4)}};
}

CaseQuantities most_loaded_rank(CaseFields& config) {
  const auto amount = [&](const char* key) { return static_cast<double>(config.count(key)); };
  const auto amount_or = [&](const char* key, std::int64_t fallback) {
    return static_cast<double>(config.count_or(key, fallback));
  };
  MegatronQuestion question;
  question.layers = amount("layers");
  question.hidden = amount("hidden");
  question.heads = amount("heads");
  question.kv_heads = config.has("kv_heads") ? amount("kv_heads") : question.heads;
  question.ffn = amount("ffn");
  const bool padded = config.has("padded_vocab");
  if (!padded || config.has("vocab")) question.padded_vocab = amount("vocab");  // checked where another counts, too
  if (padded) question.padded_vocab = amount("padded_vocab");
  question.sequence = amount("seq");
  question.swiglu = is_swiglu(config, false);
  question.layer_norm = is_layer_norm(config, !question.swiglu);
  question.tied = config.flag_or("tied", false);
  question.tensor = amount_or("tp", 1);
  question.pipeline = amount_or("pp", 1);
  question.data = amount_or("dp", 1);
  if (config.has("vpp")) question.virtual_stages = amount("vpp");
  question.micro_batch = amount_or("micro_batch", 1);
  question.micro_batches =
      config.has("micro_batches") || question.pipeline == 1 ? amount_or("micro_batches", 1) : amount("micro_batches");
  question.distributed_optimizer = config.flag_or("dist_opt", false);
  question.sequence_parallel = config.flag_or("sequence_parallel", false);
  const MegatronEstimate estimate = megatron_estimate(question);
  return {{"weight_optimizer_bytes", exact_number(estimate.weight_optimizer_bytes)},
          {"activation_bytes", exact_number(estimate.activation_bytes)},
          {"total_mib", exact_number((estimate.weight_optimizer_bytes + estimate.activation_bytes) / kMib)}};
}

}  // namespace trident
