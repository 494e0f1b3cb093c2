#include "planner/published/case_answers.h"

#include <array>

#include "planner/published/memory_cases.h"
#include "planner/published/run_answers.h"
#include "planner/published/schedule_cases.h"
#include "planner/published/traffic_cases.h"

namespace trident {
namespace {

struct KindRow {
  std::string_view kind;
  std::string_view fields;  // the member with the question
  CaseQuantities (*answer)(CaseFields&);
};
constexpr std::array<KindRow, 15> kKinds{{
    {"parameter-count", "config", count_parameters},
    {"model-states", "config", model_states},
    {"checkpoint-size", "config", checkpoint_size},
    {"activation-per-layer", "config", layer_activations},
    {"activation-first-stage", "config", first_stage_activations},
    {"total-first-stage", "config", first_stage_total},
    {"activation-ratio", "config", activation_ratios},
    {"activation-extra", "config", activation_extras},
    {"total-most-loaded-rank", "config", most_loaded_rank},
    {"in-flight-microbatches", "config", in_flight},
    {"in-flight-chunks", "config", in_flight},
    {"activation-relative", "config", relative_activations},
    {"bubble-rate", "input", bubble_rate},
    {"closed-form", "input", schedule_times},
    {"comm-volume", "input", traffic},
}};

const KindRow& row_of(const CaseRow& row) {
  if (row.kind.empty()) throw UnsupportedCase("kind is missing");
  for (const KindRow& known : kKinds)
    if (known.kind == row.kind) return known;
  throw UnsupportedCase("kind = " + in_quotes(row.kind) + ": no such kind of case is known");
}

}  // namespace

JsonValue answer_case(const CaseRow& row, const PublishedBook& book) {
  JsonValue::Object answer{{"id", row.id}};
  try {
    if (!row.refused.empty()) throw UnsupportedCase(row.refused);
    if (row.kind.empty() && row.fields.find("model") && row.fields.find("parallel")) {
      for (JsonMember& quantity : answer_run(row, book)) answer.push_back(std::move(quantity));
      return JsonValue(std::move(answer));
    }
    const KindRow& kind = row_of(row);
    CaseFields fields(row, kind.fields);
    for (JsonMember& quantity : kind.answer(fields)) answer.push_back(std::move(quantity));
    answer.push_back({"assumed", JsonValue(fields.assumed())});
  } catch (const ConfigError& error) {
    answer.push_back({"unsupported", error.what()});
  }
  return JsonValue(std::move(answer));
}

}  // namespace trident
