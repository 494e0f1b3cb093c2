#include "train/log/prometheus.h"

#include <fmt/core.h>

#include <cmath>
#include <string_view>

namespace trident {
namespace {

std::string escaped(std::string_view label) {
  std::string out;
  for (const char c : label) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

std::string prometheus_text(const RunGauges& g) {
  const std::string label = escaped(g.run);
  std::string text;
  const auto add = [&](std::string_view name, std::string_view help, std::optional<double> value, std::string_view type = "gauge") {
    if (!value) return;
    text += fmt::format("# HELP trident_{0} {1}\n# TYPE trident_{0} {2}\ntrident_{0}{{run=\"{3}\"}} {4}\n", name, help, type, label,
                        number_text(*value));
  };
  const auto of_step = [&](auto StepMetrics::* member) {
    return g.logged ? std::optional(static_cast<double>((*g.logged).*member)) : std::nullopt;
  };
  add("step", "Completed updates at the newest logged step.", of_step(&StepMetrics::step));
  add("steps", "Updates that the run is to make (run.steps).", static_cast<double>(g.steps));
  add("loss", "Training loss of that step's batch, nats per token; of pairs, per pair.", of_step(&StepMetrics::loss));
  add("grad_norm", "Gradient norm before clipping.", of_step(&StepMetrics::grad_norm));
  add("learning_rate", "Learning rate of that step.", of_step(&StepMetrics::lr));
  add("tokens_total", "Tokens trained on so far.", of_step(&StepMetrics::tokens), "counter");
  add("skipped_steps_total", "Batches skipped so far, for non-finite gradients or without a target that counts.",
      of_step(&StepMetrics::skipped), "counter");
  add("tokens_per_second", "Tokens per second in that step, all ranks.", of_step(&StepMetrics::tokens_per_s));
  add("step_seconds", "Wall time of that step.", g.logged ? std::optional(1e-3 * g.logged->step_ms) : std::nullopt);
  add("mfu_ratio", "Model FLOPs over the peak, 0 to 1; attention as far as tokens see, logits of targets that count.",
      g.logged ? g.logged->computed_mfu() : std::nullopt);
  add("eta_seconds", "Predicted time to the last step.", of_step(&StepMetrics::seconds_left));
  add("valid_loss", "Validation loss of the newest evaluation, nats per token; of pairs, per pair.", g.valid_loss);
  add("last_checkpoint_step", "Step of the newest checkpoint.", g.checkpoint);
  add("last_checkpoint_timestamp_seconds", "When this start committed the newest checkpoint, unix time.", g.checkpoint_time);
  add("last_update_timestamp_seconds", "When this file was written, unix time.", g.time);
  return text;
}

}  // namespace trident
