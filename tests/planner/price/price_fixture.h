// A row of a published run to vary, and the shipped profiles.
#pragma once

#include <string>
#include <string_view>

#include "planner/published/case_answers.h"
#include "planner/published/layout_pricing.h"
#include "planner/published/published_book.h"

namespace trident {

// GPT with 24 layers of 2048 on 8 A100, tp 1, pp 1, 16 micro-batches of 2; `changes` is an object of objects that replaces members:
// {"parallel": {"tp": 2}}.
inline JsonValue run_row(std::string_view changes = "{}") {
  JsonValue row = parse_json(R"({"id": "r",
    "model": {"layers": 24, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn": 8192, "vocab": 51200, "act": "gelu", "seq": 1024},
    "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 8, "gpus_per_node": 8},
    "parallel": {"tp": 1, "pp": 1, "cp": 1, "sp": false, "zero": 0},
    "batch": {"global": 256, "micro": 2}, "precision": "bf16", "recompute": "none",
    "stack": {"framework": "megatron_lm", "attention": "megatron_fused_softmax", "fused_rms_norm": false, "year": 2023}})",
                             "a test");
  const JsonValue change = parse_json(changes, "a test");
  for (const JsonMember& member : change.members()) {
    JsonValue* group = row.find(member.key);
    if (group && group->is_object() && member.value.is_object())
      for (const JsonMember& inner : member.value.members()) group->set(inner.key, inner.value);
    else
      row.set(member.key, member.value);
  }
  return row;
}

inline JsonValue priced_row(const JsonValue& row) {
  static const PublishedBook book = shipped_published_book();
  return answer_case(case_rows(JsonValue(JsonValue::Array{row}), "a test").at(0), book);
}

inline JsonValue priced(std::string_view changes = "{}") { return priced_row(run_row(changes)); }

inline double number(const JsonValue& answer, std::string_view key) {
  const JsonValue* value = answer.find(key);
  if (!value) throw DataError(fmt::format("the answer has no {}: {}", key, to_json_text(answer)));
  return value->as_number();
}

inline std::string unsupported(const JsonValue& answer) {
  const JsonValue* why = answer.find("unsupported");
  return why ? why->as_string() : "";
}

}  // namespace trident
