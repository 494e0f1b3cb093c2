#include "infer/eval/eval_report.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "core/counted.h"
#include "core/number_text.h"

namespace trident {
namespace {

void add(JsonValue& json, const LossSum& sum, bool knows_bytes) {
  json.set("loss", sum.loss());
  json.set("ppl", sum.perplexity());
  json.set("mean_token_accuracy", sum.token_accuracy());
  const std::optional<double> bits = knows_bytes ? sum.bits_per_byte() : std::nullopt;
  json.set("bits_per_byte", bits);
  json.set("tokens", sum.tokens);
  json.set("bytes", knows_bytes ? JsonValue(sum.bytes) : JsonValue());
}

JsonValue::Array documents_of(const SetReport& set, bool knows_bytes) {
  JsonValue::Array documents;
  for (const LossSum& sum : set.documents) {
    JsonValue item;
    item.set("document", static_cast<std::int64_t>(documents.size()));
    add(item, sum, knows_bytes);
    documents.push_back(std::move(item));
  }
  return documents;
}

LossSum sum_of(const EvalReport& report) {
  LossSum all;
  for (const SetReport& set : report.sets) all += set.sum;
  return all;
}

std::string line_of(const LossSum& sum, bool knows_bytes) {
  if (sum.tokens == 0) return "no token to predict";
  const std::optional<double> bits = knows_bytes ? sum.bits_per_byte() : std::nullopt;
  return fmt::format("loss {:.6f}  ppl {:.4f}  token accuracy {:.4f}{}  {}", sum.loss(), sum.perplexity(), sum.token_accuracy(),
                     bits ? fmt::format("  bits per byte {:.5f}", *bits) : "",
                     sum.tokens == 1 ? "1 token" : with_commas(sum.tokens) + " tokens");
}

JsonValue::Array answers_of(const ChoicesReport& choices) {
  JsonValue::Array answers;
  for (const QuestionReport& question : choices.each)
    answers.push_back(JsonValue::Object{{"log_likelihoods", question.log_likelihoods},
                                        {"chosen", question.chosen},
                                        {"chosen_norm", question.chosen_normalised}});
  return answers;
}

double share(std::int64_t right, const ChoicesReport& choices) {
  return static_cast<double>(right) / static_cast<double>(choices.questions);
}

}  // namespace

double LossSum::loss() const { return nats / static_cast<double>(tokens); }
double LossSum::perplexity() const { return std::exp(loss()); }
double LossSum::token_accuracy() const { return static_cast<double>(correct) / static_cast<double>(tokens); }
std::optional<double> LossSum::bits_per_byte() const {
  if (bytes == 0) return std::nullopt;
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

JsonValue to_json(const EvalReport& report) {
  JsonValue json;
  json.set("model", report.model);
  json.set("step", report.updates);
  if (!report.sets.empty()) add(json, sum_of(report), report.knows_bytes);
  if (report.sets.size() > 1) {
    JsonValue sets;
    for (const SetReport& set : report.sets) {
      JsonValue item;
      add(item, set.sum, report.knows_bytes);
      if (!set.documents.empty()) item.set("documents", documents_of(set, report.knows_bytes));
      sets.set(set.name, std::move(item));
    }
    json.set("sets", std::move(sets));
  } else if (!report.sets.empty() && !report.sets.front().documents.empty()) {
    json.set("documents", documents_of(report.sets.front(), report.knows_bytes));
  }
  if (!report.token_nats.empty()) json.set("token_losses", report.token_nats);
  if (report.choices) {
    const ChoicesReport& choices = *report.choices;
    json.set("acc", share(choices.right, choices));
    json.set("acc_norm", choices.right_normalised ? JsonValue(share(*choices.right_normalised, choices)) : JsonValue());
    json.set("questions", choices.questions);
    if (!choices.each.empty()) json.set("answers", answers_of(choices));
  }
  return json;
}

std::string to_text(const EvalReport& report) {
  std::string text = report.model + (report.updates ? fmt::format(", step {}", *report.updates) : "");
  if (!report.sets.empty())
    text += fmt::format(", windows of {}{}", counted(report.sequence, "token"),
                        report.stride < report.sequence ? fmt::format(", {} apart", report.stride) : "");
  text += '\n';
  for (const SetReport& set : report.sets) {
    text += fmt::format("{:<16} {}\n", set.name, line_of(set.sum, report.knows_bytes));
    for (std::size_t d = 0; d < set.documents.size(); ++d)
      text += fmt::format("  document {:<7} {}\n", d, line_of(set.documents[d], report.knows_bytes));
  }
  if (report.sets.size() > 1) text += fmt::format("{:<16} {}\n", "all", line_of(sum_of(report), report.knows_bytes));
  for (std::size_t i = 0; i < report.token_nats.size(); ++i)
    text += fmt::format("  token {:<10} {}\n", i + 1,
                        std::isnan(report.token_nats[i]) ? "does not count" : fmt::format("{:.6f}", report.token_nats[i]));
  if (!report.choices) return text;
  const ChoicesReport& choices = *report.choices;
  for (std::size_t q = 0; q < choices.each.size(); ++q) {
    text += fmt::format("  question {:<7} choice {} ", q, choices.each[q].chosen);
    for (const double likelihood : choices.each[q].log_likelihoods) text += fmt::format(" {:.6f}", likelihood);
    text += '\n';
  }
  text += fmt::format("{:<16} acc {:.4f}{}  {}\n", "choices", share(choices.right, choices),
                      choices.right_normalised ? fmt::format("  acc_norm {:.4f}", share(*choices.right_normalised, choices)) : "",
                      counted(choices.questions, "question"));
  return text;
}

}  // namespace trident
