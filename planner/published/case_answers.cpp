#include "planner/published/case_answers.h"

#include <array>
#include <cstdint>

#include "planner/published/memory_cases.h"
#include "planner/published/run_answers.h"
#include "planner/published/schedule_cases.h"

namespace trident {
namespace {

// Communication volumes as the literature counts them: bytes or elements that one rank sends, rings of n ranks sending (n-1)/n of a
// buffer. The cases give these letters and no model; what Trident sends is found by dry runs (docs/design/communication.md).

// Elements of one layer and micro-batch: four all-reduces of s b h (two forward, two backward). Narayanan et al. 2021, section 3.2.
// Full recomputation repeats the two forward ones: 1.5 times as much.
double tensor_parallel_elements(double s, double b, double h, double t) { return 8 * s * b * h * (t - 1) / t; }

// Bytes that a rank which is neither first nor last sends forward in a step: s b h of every micro-batch and virtual stage. 1/t of
// it with sequence parallelism.
double pipeline_forward_bytes(double s, double b, double h, double m, double v, double bytes_per_element) {
  return s * b * h * bytes_per_element * m * v;
}

double all_reduce_bytes(double bytes, double ranks) { return 2 * bytes * (ranks - 1) / ranks; }
// All-gather or reduce-scatter; `bytes` gathered.
double gather_bytes(double bytes, double ranks) { return bytes * (ranks - 1) / ranks; }

// Ring attention, one layer: keys and values travel c-1 hops forward; they and their gradients backward.
double ring_attention_forward_bytes(double s, double b, double kv_width, double c, double bytes_per_element) {
  return 2 * (c - 1) * (s / c) * b * kv_width * bytes_per_element;
}

CaseQuantities data_parallel_traffic(const CaseFields& input) {
  const double params = input.positive("params_on_rank"), ranks = static_cast<double>(input.count("dp"));
  const double all_reduce = all_reduce_bytes(2 * params, ranks), gather = gather_bytes(2 * params, ranks);
  const double sharded = 2 * gather + gather;  // weights for the forward and for the backward, gradients once
  return {{"allreduce_bf16_bytes_sent", exact_number(all_reduce)},
          {"allreduce_fp32_bytes_sent", exact_number(all_reduce_bytes(4 * params, ranks))},
          {"zero1_or_2_bf16_bytes_sent", exact_number(gather + gather)},
          {"zero3_bf16_bytes_sent_no_accumulation", exact_number(sharded)},
          {"zero3_bf16_bytes_sent_per_extra_microbatch", exact_number(sharded)}};
}

CaseQuantities context_parallel_traffic(CaseFields& input) {
  const auto amount = [&](const char* key) { return static_cast<double>(input.count(key)); };
  const auto amount_or = [&](const char* key, std::int64_t fallback) { return static_cast<double>(input.count_or(key, fallback)); };
  const double b = amount_or("micro_batch", 1), bytes = amount_or("bytes_per_element", 2);
  const double forward = ring_attention_forward_bytes(amount("seq"), b, amount("kv_width_on_rank"), amount("cp"), bytes);
  return {{"forward_bytes_sent_per_layer", exact_number(forward)}, {"backward_bytes_sent_per_layer", exact_number(2 * forward)}};
}

CaseQuantities bus_bandwidths(const CaseFields& input) {
  const double ranks = static_cast<double>(input.count("ranks"));
  const double rate = input.positive("bytes") / input.positive("time_s") / 1e9;
  return {{"allreduce_algbw_gb_s", exact_number(rate)},
          {"allreduce_busbw_gb_s", exact_number(all_reduce_bytes(rate, ranks))},
          {"allgather_or_reducescatter_busbw_gb_s", exact_number(gather_bytes(rate, ranks))}};
}

CaseQuantities model_parallel_traffic(CaseFields& input) {
  const auto amount = [&](const char* key) { return static_cast<double>(input.count(key)); };
  const auto amount_or = [&](const char* key, std::int64_t fallback) { return static_cast<double>(input.count_or(key, fallback)); };
  const double s = amount("seq"), b = amount_or("micro_batch", 1), h = amount("hidden"), layers = amount("layers");
  const double t = amount_or("tp", 1), p = amount_or("pp", 1), v = amount_or("vpp", 1), m = amount("micro_batches");
  const double bytes = amount_or("bytes_per_element", 2);
  const double elements = tensor_parallel_elements(s, b, h, t), tensor = elements * layers / p * m * bytes;
  const double forward = p > 1 ? pipeline_forward_bytes(s, b, h, m, v, bytes) : 0;
  return {{"elements_per_layer_per_microbatch_per_rank", exact_number(elements)},
          {"bytes_per_iteration_per_rank", exact_number(tensor)},
          {"bytes_per_iteration_per_rank_with_full_recompute", exact_number(1.5 * tensor)},
          {"bytes_sent_forward_per_iteration_middle_rank", exact_number(forward)},
          {"with_scatter_gather_or_sp", exact_number(forward / t)}};
}

// For whichever of tensor, pipeline, data, context parallelism or bus bandwidth the row gives the letters.
CaseQuantities traffic(CaseFields& input) {
  if (input.has("params_on_rank")) return data_parallel_traffic(input);
  if (input.has("kv_width_on_rank")) return context_parallel_traffic(input);
  if (input.has("time_s")) return bus_bandwidths(input);
  return model_parallel_traffic(input);
}

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
