#include "train/log/metrics.h"

#include <cmath>

#include "core/json_reader.h"

namespace trident {
namespace {

JsonValue optional_number(const std::optional<double>& x) { return x ? JsonValue(*x) : JsonValue{}; }

}  // namespace

double ValidLoss::perplexity() const { return std::exp(loss); }

std::string to_json_line(const StepMetrics& m) {
  const JsonValue::Object comm{{"tp", m.comm_bytes.tp}, {"cp", m.comm_bytes.cp}, {"dp", m.comm_bytes.dp}, {"pp", m.comm_bytes.pp}};
  JsonValue line(JsonValue::Object{{"step", m.step},
                                   {"loss", m.loss},
                                   {"grad_norm", m.grad_norm},
                                   {"lr", m.lr},
                                   {"loss_scale", optional_number(m.loss_scale)},
                                   {"tokens", m.tokens},
                                   {"step_ms", m.step_ms},
                                   {"tokens_per_s", m.tokens_per_s},
                                   {"mfu", optional_number(m.mfu)},
                                   {"peak_bytes", m.peak_bytes},
                                   {"comm_bytes", comm}});
  if (m.masked_flops_share) line.set("mfu_masked", m.mfu ? JsonValue(*m.mfu * *m.masked_flops_share) : JsonValue());
  if (m.loss_tokens) line.set("loss_tokens", *m.loss_tokens);
  if (m.rewards) {
    line.set("rewards_chosen", m.rewards->chosen);
    line.set("rewards_rejected", m.rewards->rejected);
    line.set("accuracy", m.rewards->accuracy);
    line.set("margin", m.rewards->margin());
  }
  return to_json_text(line);
}

std::string to_json_line(const EvalMetrics& m) {
  JsonValue line = JsonValue::Object{{"step", m.step},
                                     {"valid_loss", m.valid.loss},
                                     {"valid_perplexity", m.valid.perplexity()},
                                     {"valid_bits_per_byte", optional_number(m.valid.bits_per_byte)}};
  JsonValue sets;
  for (const auto& [name, valid] : m.sets) {
    sets.set(name, JsonValue::Object{{"loss", valid.loss},
                                     {"perplexity", valid.perplexity()},
                                     {"bits_per_byte", optional_number(valid.bits_per_byte)}});
  }
  if (!m.sets.empty()) line.set("sets", std::move(sets));
  return to_json_text(line);
}

}  // namespace trident
