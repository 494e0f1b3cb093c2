#include "train/log/metrics.h"

#include <fmt/core.h>

#include <cmath>

#include "core/clock.h"
#include "core/json_by_name.h"

namespace trident {
namespace {

void add(JsonValue& json, const std::string& before, const std::optional<double>& token_accuracy,
         const std::optional<PairRewards>& rewards) {
  if (token_accuracy) json.set(before + "mean_token_accuracy", *token_accuracy);
  if (!rewards) return;
  json.set(before + "rewards_chosen", rewards->chosen);
  json.set(before + "rewards_rejected", rewards->rejected);
  json.set(before + "accuracy", rewards->accuracy);
  json.set(before + "margin", rewards->margin());
}

void add(JsonValue& json, const std::string& before, const ValidLoss& valid) {
  json.set(before + "loss", valid.loss);
  json.set(before + "perplexity", valid.rewards ? JsonValue() : JsonValue(valid.perplexity()));
  json.set(before + "bits_per_byte", valid.bits_per_byte);
  add(json, before, valid.token_accuracy, valid.rewards);
}

}  // namespace

double ValidLoss::perplexity() const { return std::exp(loss); }

std::string to_json_line(const StepMetrics& m) {
  JsonValue line(JsonValue::Object{{"step", m.step},
                                   {"loss", m.loss},
                                   {"grad_norm", m.grad_norm},
                                   {"lr", m.lr},
                                   {"loss_scale", m.loss_scale},
                                   {"tokens", m.tokens},
                                   {"step_ms", m.step_ms},
                                   {"tokens_per_s", m.tokens_per_s},
                                   {"mfu", m.mfu},
                                   {"peak_bytes", m.peak_bytes},
                                   {"comm_bytes", json_by_name<Axis>(m.comm_bytes)}});
  if (m.masked_flops_share) line.set("mfu_masked", m.computed_mfu());
  if (m.loss_tokens) line.set("loss_tokens", *m.loss_tokens);
  add(line, "", m.token_accuracy, m.rewards);
  return to_json_text(line);
}

std::string to_json_line(const EvalMetrics& m) {
  JsonValue line = JsonValue::Object{{"step", m.step}};
  add(line, "valid_", m.valid);
  JsonValue sets;
  for (const auto& [name, valid] : m.sets) {
    JsonValue set;
    add(set, "", valid);
    sets.set(name, std::move(set));
  }
  if (!m.sets.empty()) line.set("sets", std::move(sets));
  return to_json_text(line);
}

namespace {

std::optional<ValidLoss> valid_loss_in(const JsonValue& json, const std::string& before) {
  const std::optional<double> loss = json.number_at(before + "loss"), chosen = json.number_at(before + "rewards_chosen");
  if (!loss) return std::nullopt;
  ValidLoss valid{*loss, json.number_at(before + "bits_per_byte"), json.number_at(before + "mean_token_accuracy")};
  if (chosen)
    valid.rewards = {*chosen, json.number_at(before + "rewards_rejected").value_or(0),
                     json.number_at(before + "accuracy").value_or(0)};
  return valid;
}

}  // namespace

std::optional<EvalMetrics> eval_metrics_from(const JsonValue& line) {
  const std::optional<ValidLoss> valid = valid_loss_in(line, "valid_");
  const std::optional<double> step = line.number_at("step");
  if (!valid || !step) return std::nullopt;
  EvalMetrics metrics{std::llround(*step), *valid, {}};
  for (const JsonMember& set : line.members_at("sets"))
    if (const std::optional<ValidLoss> of_set = valid_loss_in(set.value, "")) metrics.sets.push_back({set.key, *of_set});
  return metrics;
}

void MetricsWriter::write_line(std::string object) {
  object.pop_back();
  file_.append(fmt::format("{},\"time\":{:.3f},\"elapsed_s\":{:.3f}}}\n", object, unix_seconds(), monotonic_seconds() - start_));
}

}  // namespace trident
