#include <algorithm>
#include <cstdint>

#include "core/check.h"
#include "import/facts.h"

namespace trident {
namespace {

// Which family a model of these norms is of: OLMo's have no parameters, OLMo 2's come after the parts of a block.
void derive_family(Facts& facts) {
  if (!facts.is_given("@olmo.norm") && !facts.is_given("@olmo.affine")) return;
  const bool rms = facts.is("@olmo.norm", "rms"), has_weights = facts.is_on("@olmo.affine"),
             moved = facts.is_on("@olmo.norm_after"), of_qk = facts.is_on("@olmo.qk_norm");
  const std::string_view type = !rms && !has_weights && !moved && !of_qk ? "olmo"
                                : rms && has_weights && moved && of_qk   ? "olmo2"
                                : rms && has_weights && !moved && !of_qk ? "llama"
                                                                         : "";
  facts.set("model.model_type", type, {"@olmo.norm", "@olmo.affine", "@olmo.norm_after", "@olmo.qk_norm"});
  if (type.empty())
    throw ConfigError(
        fmt::format("{}: no family here has these norms; models are OLMo (default, without affine), OLMo 2 (rms, norm_after, "
                    "attention_layer_norm) or Llama (rms)",
                    facts.find("model.model_type")->origin));
  if (type != "olmo" && facts.find("@olmo.norm_eps") != nullptr)
    facts.set("model.rms_norm_eps", *facts.find("@olmo.norm_eps"));
  else if (!facts.is("@olmo.norm_eps", 1e-5))
    facts.remark("@olmo.norm_eps", "norms of this family have 1e-5");
}

void derive_olmo_model(Facts& facts) {
  derive_family(facts);
  if (facts.find("@olmo.mlp_hidden") != nullptr)
    apply(facts, {"model.intermediate_size", "@olmo.mlp_hidden", "2"});
  else
    apply(facts, {"model.intermediate_size", "@olmo.mlp_ratio model.hidden_size", "2", Round::kDown});
  if (facts.find("@attention_dropout") == nullptr)
    facts.set("model.attention_dropout", {0, "none here, where OLMo's default is 0.1", Weight::kDefault});
  const std::string_view rows = facts.find("@olmo.embedding_size") != nullptr ? "@olmo.embedding_size" : "@olmo.vocab_size";
  if (const Fact* const fact = facts.find(rows)) facts.set("model.vocab_size", fact->value, {rows, "@olmo.vocab_size"});
  if (const Fact* const length = facts.find("batch.sequence")) facts.set("model.max_position_embeddings", *length);
  if (facts.number("@olmo.embedding_dropout") != facts.number("model.dropout").value_or(0))
    facts.remark("@olmo.embedding_dropout", "model.dropout is one probability for residuals and embeddings: that of residuals");
}

// "2e12T" is tokens, "1ep" epochs, a number steps.
void derive_duration(Facts& facts) {
  const Fact* const duration = facts.find("@olmo.duration");
  if (duration == nullptr) return;
  std::string text = facts.text("@olmo.duration");
  std::erase(text, '_');
  const std::string_view name = text.ends_with('T') ? "@train_tokens" : text.ends_with("ep") ? "run.epochs" : "run.steps";
  const std::optional<JsonValue> count = number_in(text.substr(0, text.size() - (name[0] == '@'         ? 1
                                                                                 : name == "run.epochs" ? 2
                                                                                                        : 0)));
  if (!count || !(count->as_number() > 0))
    throw ConfigError(fmt::format("{}: a length is steps (1000), tokens (2e12T) or epochs (1ep); correct it", duration->origin));
  facts.set(name, whole_number(count->as_number(), {duration}), {"@olmo.duration"});
  if (name == "@train_tokens") apply(facts, {"run.steps", name, "batch.global batch.sequence", Round::kDown});
  facts.erase("@train_tokens");
}

// Lengths of the schedule in its unit. max_duration is the decay's length unless t_max is.
void derive_olmo_course(Facts& facts) {
  for (const auto& [name, steps] :
       {std::pair{"@olmo.t_warmup", "lr_schedule.warmup_steps"}, {"@olmo.t_max", "lr_schedule.decay_steps"}}) {
    if (facts.find(name) == nullptr || facts.find(steps) != nullptr) continue;
    if (facts.is("@olmo.units", "tokens"))
      apply(facts, {steps, name, "batch.sequence batch.global", Round::kUp});
    else
      facts.set(steps, whole_number(*facts.number(name), {facts.find(name)}), {name});
  }
  const std::optional<std::int64_t> stop = facts.integer("@olmo.stop_at"), all = facts.integer("run.steps");
  if (!stop) return;
  if (!all || facts.find("run.epochs") != nullptr)
    return facts.remark("@olmo.stop_at", "give --set run.steps and lr_schedule.decay_steps: max_duration does not count steps");
  if (facts.find("@olmo.t_max") == nullptr) facts.set("lr_schedule.decay_steps", *facts.find("run.steps"));
  facts.set("run.steps", std::min(*stop, *all), {"@olmo.stop_at", "run.steps"});
}

}  // namespace

void derive_olmo(Facts& facts) {
  derive_olmo_model(facts);
  // Replicas are of hybrid shards alone.
  if (facts.find("parallel.shard_group") == nullptr)
    facts.erase_block("@replicate");
  else if (facts.find("@replicate") != nullptr)
    facts.set("@shard", -1, {"@replicate"});
  derive_duration(facts);
  apply(facts, {"run.max_minutes", "@olmo.time_limit", "60", Round::kNot});
  derive_olmo_course(facts);
}

}  // namespace trident
