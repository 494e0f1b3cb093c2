#include "planner/published/schedule_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "planner/published/simulated_schedules.h"

namespace trident {
namespace {

// Passes of a layer relative to its forward, and a message: medians of the twelve measured sets in Qi et al. 2023, Table 9.
constexpr double kTypicalInput = 0.986, kTypicalWeight = 0.693, kTypicalMessage = 0.033;
// These are medians of the three sets of the longest pipeline that several nodes share, 32 stages. Wider layers spend more on
// weight gradients, fewer layers a stage more on messages.
constexpr double kLongInput = 0.980, kLongWeight = 0.740, kLongMessage = 0.0392;
constexpr std::int64_t kLongPipeline = 16;
constexpr std::int64_t kMostStages = 1024;
constexpr std::int64_t kMostSimulated = 1 << 20;  // of all ranks; what is searched simulates them some forty times
constexpr std::int64_t kLeastChunks = 2;      // that interleave
constexpr std::int64_t kAssumedRanks = 32, kAssumedMicroBatches = 128;

struct Question {
  SimulatedKind kind;
  int ranks, chunks, micro_batches;
};

SimulatedKind kind_of(const std::string& name, std::string_view where) {
  const auto kind = parse_simulated_kind(name);
  if (!kind) throw UnsupportedCase(fmt::format("{}.schedule = {}: no such schedule is simulated", where, in_quotes(name)));
  return *kind;
}

// "1f1b or gpipe" are two: the answer must hold for both.
std::vector<SimulatedKind> kinds_of(const CaseFields& fields, std::string_view where) {
  constexpr std::string_view kOr = " or ";
  std::string names = fields.text("schedule");
  std::vector<SimulatedKind> kinds;
  for (std::size_t at = names.find(kOr); at != names.npos; at = names.find(kOr)) {
    kinds.push_back(kind_of(names.substr(0, at), where));
    names.erase(0, at + kOr.size());
  }
  kinds.push_back(kind_of(names, where));
  return kinds;
}

Question question_of(CaseFields& fields, SimulatedKind kind, const char* ranks_key) {
  Question question{kind, 0, 1, 0};
  const std::int64_t ranks = fields.count(ranks_key, kMostStages), m = fields.count("micro_batches", kMostSimulated);
  std::int64_t chunks = is_v_shaped(kind) ? 2 : 1;
  if (kind == SimulatedKind::kInterleaved)
    chunks = fields.count_or("vpp", kLeastChunks, kMostStages);
  else if (!is_v_shaped(kind) && fields.has("vpp"))
    chunks = fields.count("vpp", kMostStages);
  if (ranks * chunks * m > kMostSimulated)
    throw UnsupportedCase(fmt::format("{} ranks, {} virtual stages each and {} micro-batches are more than {} passes to simulate",
                                      ranks, chunks, m, kMostSimulated));
  if (fields.has("memory_limit_in_1f1b_units")) fields.positive("memory_limit_in_1f1b_units");  // what the schedule's name implies
  question.ranks = static_cast<int>(ranks);
  question.chunks = static_cast<int>(chunks);
  question.micro_batches = static_cast<int>(m);
  return question;
}

SimulatedSchedule make(const Question& q, const PassTimes& times) {
  return make_simulated_schedule(q.kind, q.ranks, q.chunks, q.micro_batches, times);
}

// `times` are those of a rank with all its virtual stages.
PassTimes per_chunk(const PassTimes& times, int chunks) {
  return {times.forward / chunks, times.backward_input / chunks, times.backward_weight / chunks, times.message};
}

// bubble-rate rows: t_forward_ms and so on; what is missing follows from the forward.
PassTimes measured_times(CaseFields& input, int ranks) {
  const bool is_long = ranks >= kLongPipeline;
  PassTimes times;
  times.forward = input.has("t_forward_ms") ? input.positive("t_forward_ms") : input.amount_or("t_forward_ms", 1);
  times.backward_input = input.amount_or("t_backward_input_ms", (is_long ? kLongInput : kTypicalInput) * times.forward);
  times.backward_weight = input.amount_or("t_backward_weight_ms", (is_long ? kLongWeight : kTypicalWeight) * times.forward);
  times.message = input.amount_or("t_comm_ms", (is_long ? kLongMessage : kTypicalMessage) * times.forward);
  return times;
}

// closed-form rows: t_f and t_b, also with _per_stage; t_w where backwards are split.
PassTimes given_times(CaseFields& input, SimulatedKind kind) {
  const auto key = [&](const char* plain, const char* per_stage) { return input.has(per_stage) ? per_stage : plain; };
  PassTimes times;
  times.forward = input.positive(key("t_f", "t_f_per_stage"));
  times.backward_input = input.amount(key("t_b", "t_b_per_stage"));
  const char* weight = key("t_w", "t_w_per_stage");
  if (splits_backwards(kind) || input.has(weight)) times.backward_weight = input.amount(weight);
  times.message = input.amount_or("t_comm", 0);
  return times;
}

void note_search(CaseFields& fields, const SimulatedSchedule& made) {
  if (made.weight_share != 1) fields.assume("activations_kept_for_weight_gradient", made.weight_share);
}

}  // namespace

CaseQuantities bubble_rate(CaseFields& input) {
  const auto kinds = kinds_of(input, "input");
  if (kinds.size() != 1) throw UnsupportedCase("input.schedule: one schedule, not several");
  const Question question = question_of(input, kinds[0], "stages");
  const bool has_times = input.has("t_forward_ms");
  const PassTimes times = per_chunk(measured_times(input, question.ranks), question.chunks);
  const SimulatedSchedule made = make(question, times);
  note_search(input, made);
  const ScheduleTimeline timeline = simulate(made.placed, times);
  CaseQuantities quantities{{"bubble_rate", timeline.bubble_rate()}};
  if (has_times) quantities.push_back({"cost_ms", timeline.largest_span});
  return quantities;
}

CaseQuantities schedule_times(CaseFields& input) {
  std::optional<ScheduleTimeline> all;
  for (const SimulatedKind kind : kinds_of(input, "input")) {
    const Question question = question_of(input, kind, "stages");
    const PassTimes times = per_chunk(given_times(input, kind), question.chunks);
    const SimulatedSchedule made = make(question, times);
    note_search(input, made);
    const ScheduleTimeline timeline = simulate(made.placed, times);
    constexpr double kSame = 1e-12;  // two orders add the same times up
    if (all && (std::abs(all->makespan - timeline.makespan) > kSame * timeline.makespan ||
                std::abs(all->largest_span - timeline.largest_span) > kSame * timeline.makespan))
      throw UnsupportedCase(fmt::format("input.schedule = {}: they take {} and {}", in_quotes(input.text("schedule")),
                                        all->makespan, timeline.makespan));
    all = timeline;
  }
  return {{"makespan", exact_number(all->makespan)},
          {"largest_stage_time", exact_number(all->largest_span)},
          {"bubble_units", exact_number(all->largest_span - all->mean_busy)},
          {"bubble_over_ideal", exact_number(all->bubble_over_ideal())},
          {"bubble_rate", exact_number(all->bubble_rate())}};
}

namespace {

// Orders that depend on times need some.
SimulatedSchedule made_for_memory(CaseFields& config, const Question& question) {
  const PassTimes typical{1, kTypicalInput, kTypicalWeight, kTypicalMessage};
  const PassTimes times = per_chunk(typical, question.chunks);
  if (depends_on_times(question.kind)) {
    config.assume("t_forward", typical.forward);
    config.assume("t_backward_input", typical.backward_input);
    config.assume("t_backward_weight", typical.backward_weight);
    config.assume("t_comm", typical.message);
  }
  const SimulatedSchedule made = make(question, times);
  note_search(config, made);
  return made;
}

SimulatedKind only_kind(const CaseFields& config) {
  const auto kinds = kinds_of(config, "config");
  if (kinds.size() != 1) throw UnsupportedCase("config.schedule: one schedule, not several");
  return kinds[0];
}

}  // namespace

CaseQuantities in_flight(CaseFields& config) {
  const Question question = question_of(config, only_kind(config), "pp");
  const std::vector<int> held = max_in_flight(made_for_memory(config, question).placed.schedule).per_rank;
  JsonValue::Array per_stage;
  for (const int count : held) per_stage.emplace_back(count);
  CaseQuantities quantities{{"per_stage", JsonValue(std::move(per_stage))}};
  if (question.chunks > 1) {
    const double of_1f1b = static_cast<double>(question.chunks) * std::min(question.ranks, question.micro_batches);
    quantities.push_back({"stage0_relative_to_1f1b", exact_number(held.front() / of_1f1b)});
  }
  return quantities;
}

CaseQuantities relative_activations(CaseFields& config) {
  const SimulatedKind kind = only_kind(config);
  Question question{kind, 0, 1, 0};
  if (config.has("pp") && config.has("micro_batches")) {
    question = question_of(config, kind, "pp");
  } else {
    question.ranks = static_cast<int>(config.count_or("pp", kAssumedRanks, kMostStages));
    question.micro_batches = static_cast<int>(config.count_or("micro_batches", kAssumedMicroBatches, kMostSimulated / kMostStages));
    if (kind == SimulatedKind::kInterleaved)
      question.chunks = static_cast<int>(config.count_or("vpp", kLeastChunks, kMostStages / kAssumedRanks));
    else if (is_v_shaped(kind))
      question.chunks = 2;
  }
  const SimulatedSchedule made = made_for_memory(config, question);
  const double of_1f1b = static_cast<double>(question.chunks) * std::min(question.ranks, question.micro_batches);
  return {{"peak_activation_relative_to_1f1b", exact_number(peak_activations(made.placed.schedule, made.weight_share) / of_1f1b)}};
}

}  // namespace trident
