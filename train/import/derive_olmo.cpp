#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "train/import/facts.h"

namespace trident {
namespace {

// Moves a fact to the name that its value is of.
void move_fact(Facts& facts, std::string_view from, std::string_view to, JsonValue value) {
  const Fact fact = *facts.find(from);
  facts.set(to, computed(std::move(value), {&fact}));
}

// Which family a model of these norms is of: OLMo's have no parameters, OLMo 2's come after the parts of a block.
void derive_olmo_family(Facts& facts) {
  const Fact *const norm = facts.find("@olmo.norm"), *const affine = facts.find("@olmo.affine"),
                    *const after = facts.find("@olmo.norm_after"), *const qk = facts.find("@olmo.qk_norm");
  const auto is = [](const Fact* fact, const JsonValue& value) { return fact != nullptr && fact->value == value; };
  const bool rms = is(norm, "rms"), has_weights = is(affine, true), moved = is(after, true), of_qk = is(qk, true);
  if (!facts.is_given("@olmo.norm") && !facts.is_given("@olmo.affine")) return;
  const std::string_view type = !rms && !has_weights && !moved && !of_qk ? "olmo"
                                : rms && has_weights && moved && of_qk   ? "olmo2"
                                : rms && has_weights && !moved && !of_qk ? "llama"
                                                                         : "";
  if (type.empty())
    throw ConfigError(
        fmt::format("{}: no family here has these norms; models are OLMo (default, without affine), OLMo 2 (rms, norm_after, "
                    "attention_layer_norm) or Llama (rms)",
                    computed({}, {norm, affine, after, qk}).origin));
  facts.set("model.model_type", computed(type, {norm, affine, after, qk}));
  if (const Fact* const eps = facts.find("@olmo.norm_eps"); eps != nullptr && type != "olmo") facts.set("model.rms_norm_eps", *eps);
  else if (eps != nullptr && *facts.number("@olmo.norm_eps") != 1e-5) facts.remark(*eps, "norms of this family have 1e-5");
}

void derive_olmo_model(Facts& facts) {
  derive_olmo_family(facts);
  const Fact *const hidden = facts.find("model.hidden_size"), *const ratio = facts.find("@olmo.mlp_ratio"),
                    *const exact = facts.find("@olmo.mlp_hidden");
  if (exact != nullptr) facts.set("model.intermediate_size", computed(*facts.integer("@olmo.mlp_hidden") / 2, {exact}));
  else if (hidden != nullptr && ratio != nullptr)
    facts.set("model.intermediate_size",
              computed(whole_number(*facts.number("@olmo.mlp_ratio") * *facts.number("model.hidden_size") / 2, {ratio, hidden}),
                       {ratio, hidden}));
  if (hidden != nullptr && facts.find("@attention_dropout") == nullptr)
    facts.remark(*hidden, "attention probabilities have no dropout here; OLMo's default is 0.1");
  const Fact *const vocabulary = facts.find("@olmo.vocab_size"), *const rows = facts.find("@olmo.embedding_size");
  if (rows != nullptr) facts.set("model.vocab_size", computed(rows->value, {rows, vocabulary}));
  else if (vocabulary != nullptr) facts.set("model.vocab_size", *vocabulary);
  if (const Fact* const length = facts.find("batch.sequence")) facts.set("model.max_position_embeddings", *length);
  if (const Fact* const embedding = facts.find("@olmo.embedding_dropout"))
    if (*facts.number("@olmo.embedding_dropout") != facts.number("model.dropout").value_or(0))
      facts.remark(*embedding, "model.dropout is one probability for residuals and embeddings: that of residuals");
}

void derive_olmo_sharding(Facts& facts) {
  const Fact *const strategy = facts.find("@olmo.strategy"), *const sharding = facts.find("@olmo.sharding");
  if (strategy == nullptr || sharding == nullptr) return;
  if (strategy->value == JsonValue("ddp")) return facts.set("parallel.zero", computed("ddp", {strategy}));
  const std::string kind = facts.text("@olmo.sharding").value();
  const bool hybrid = kind == "HYBRID_SHARD" || kind == "_HYBRID_SHARD_ZERO2";
  const std::string_view zero = kind == "FULL_SHARD" || kind == "HYBRID_SHARD"              ? "zero3"
                                : kind == "SHARD_GRAD_OP" || kind == "_HYBRID_SHARD_ZERO2" ? "shard_grad_op"
                                : kind == "NO_SHARD"                                       ? "ddp"
                                                                                           : "";
  if (zero.empty())
    throw ConfigError(
        fmt::format("{}: there is no such strategy; use FULL_SHARD, SHARD_GRAD_OP, NO_SHARD or HYBRID_SHARD", sharding->origin));
  facts.set("parallel.zero", computed(zero, {strategy, sharding}));
  if (!hybrid) facts.erase("@replicate");
  else if (facts.find("@replicate") != nullptr) facts.set("@shard", computed(-1, {sharding}));
  else facts.set("parallel.shard_group", computed("node", {sharding}));
}

// "2e12T" is tokens, "1ep" epochs, a number steps.
void derive_olmo_length(Facts& facts) {
  if (const Fact* const duration = facts.find("@olmo.duration")) {
    std::string text = duration->value.is_string() ? duration->value.as_string() : to_json_text(duration->value);
    std::erase(text, '_');
    double count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    if (error != std::errc() || !(count > 0 && count < 9e18) || (!unit.empty() && unit != "T" && unit != "ep"))
      throw ConfigError(fmt::format("{}: a length is steps (1000), tokens (2e12T) or epochs (1ep); correct it", duration->origin));
    const JsonValue whole = whole_number(count, {duration});
    if (unit == "T") move_fact(facts, "@olmo.duration", "@train_tokens", whole);
    else if (unit == "ep") move_fact(facts, "@olmo.duration", "run.epochs", whole);
    else move_fact(facts, "@olmo.duration", "run.steps", whole);
  }
  if (const Fact* const limit = facts.find("@olmo.time_limit"))
    facts.set("run.max_minutes", computed(*facts.number("@olmo.time_limit") / 60, {limit}));
}

// Lengths of the schedule in its unit. max_duration is the decay's length unless t_max is.
void derive_olmo_schedule(Facts& facts) {
  const Fact *const warmup = facts.find("@olmo.t_warmup"), *const all = facts.find("@olmo.t_max"),
                    *const units = facts.find("@olmo.units"), *const sequence = facts.find("batch.sequence");
  const bool tokens = units != nullptr && units->value == JsonValue("tokens");
  const std::optional<std::int64_t> length = facts.integer("batch.sequence");
  const auto set = [&](const Fact* fact, std::string_view steps, std::string_view samples) {
    if (fact == nullptr) return;
    if (!fact->value.is_number()) throw ConfigError(fmt::format("{}: must be a number; correct it", fact->origin));
    if (!tokens) facts.set(steps, computed(whole_number(fact->value.as_number(), {fact}), {fact}));
    else if (length) facts.set(samples, computed(fact->value.as_number() / static_cast<double>(*length), {fact, units, sequence}));
    else facts.remark(*fact, "it counts tokens, and no input says batch.sequence");
  };
  if (const Fact* const constant = facts.find("@olmo.constant")) {
    facts.set("lr_schedule.type", computed("constant", {constant}));
    facts.set("lr_schedule.warmup_steps", computed(0, {constant}));
  } else {
    set(warmup, "lr_schedule.warmup_steps", "@warmup_samples");
  }
  set(all, "lr_schedule.decay_steps", "@decay_samples");
  const Fact* const stop = facts.find("@olmo.stop_at");
  if (stop == nullptr) return;
  if (const Fact* const steps = facts.find("run.steps")) {
    if (all == nullptr) facts.set("lr_schedule.decay_steps", *steps);
    facts.set("run.steps", computed(std::min(*facts.integer("@olmo.stop_at"), *facts.integer("run.steps")), {stop, steps}));
  } else {
    facts.remark(*stop, "give --set run.steps and lr_schedule.decay_steps: max_duration does not count steps");
  }
}

}  // namespace

void derive_olmo(Facts& facts) {
  derive_olmo_model(facts);
  derive_olmo_sharding(facts);
  derive_olmo_length(facts);
  derive_olmo_schedule(facts);
}

}  // namespace trident
