#include "planner/predict/plan_timeline.h"

#include <array>
#include <cstdint>
#include <map>
#include <tuple>

#include "train/log/trace_writer.h"

namespace trident {
namespace {

std::string unit_name(const RunPlan& plan, int unit) {
  if (unit == plan.step_spec.embedding_unit()) return "the embedding";
  if (unit == plan.step_spec.head_unit()) return "the head";
  return fmt::format("block {}", unit - 1);
}

std::string text_of(const RunPlan& plan, const Instruction& i) {
  const std::string unit = i.unit == Instruction::kNone ? "" : unit_name(plan, i.unit);
  switch (i.kind) {
    case InstructionKind::kForward: return "forward of " + unit;
    case InstructionKind::kBackward: return "backward of " + unit;
    case InstructionKind::kBackwardInput: return "input gradient of " + unit;
    case InstructionKind::kBackwardWeight: return "weight gradient of " + unit;
    case InstructionKind::kGather: return "gather parameters of " + unit;
    case InstructionKind::kReduceGradients: return "reduce gradients of " + unit;
    case InstructionKind::kOptimizerStep: return "optimizer step of " + unit;
    case InstructionKind::kGradNorm: return "norm of the gradients";
    default: return "exchange of the tied weight's gradients";
  }
}

bool continues(const Instruction& before, const Instruction& i) {
  return before.kind == i.kind && before.virtual_stage == i.virtual_stage && before.micro_batch == i.micro_batch;
}

}  // namespace

std::optional<SpanKind> span_kind(const Instruction& i, int stages) {
  const bool odd = i.virtual_stage >= 0 && i.virtual_stage / stages % 2 == 1;
  switch (i.kind) {
    case InstructionKind::kForward: return odd ? SpanKind::kForwardOdd : SpanKind::kForward;
    case InstructionKind::kBackward:
    case InstructionKind::kBackwardInput: return odd ? SpanKind::kBackwardOdd : SpanKind::kBackward;
    case InstructionKind::kBackwardWeight: return SpanKind::kWeights;
    case InstructionKind::kGather: return SpanKind::kGather;
    case InstructionKind::kReduceGradients: return SpanKind::kReduce;
    case InstructionKind::kOptimizerStep: return SpanKind::kUpdate;
    case InstructionKind::kGradNorm: return SpanKind::kNorm;
    case InstructionKind::kTieExchange: return SpanKind::kTie;
    default: return std::nullopt;
  }
}

bool runs_beside(SpanKind kind) { return kind == SpanKind::kGather || kind == SpanKind::kReduce; }

Timeline timeline_of(const RunPlan& plan, const Forecast& forecast, std::size_t most_spans) {
  const auto stages = static_cast<int>(forecast.step.programs.size());
  std::size_t computes = 0;
  for (const StepProgram& program : forecast.step.programs)
    for (const Instruction& i : program.instructions) computes += i.is_compute() ? 1 : 0;
  const bool merges = computes > most_spans;

  const std::array<LegendKey, kNumSpanKinds> kinds = span_kinds();
  Timeline timeline{"", {kinds.begin(), kinds.end()}, {}};
  for (int stage = 0; stage < stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const std::vector<Instruction>& list = forecast.step.programs[s].instructions;
    TimelineRow row{fmt::format("stage {}", stage), {}};
    std::size_t last = list.size();  // the compute that the latest span of the upper lane is of
    std::size_t last_span = 0;
    for (std::size_t at = 0; at < list.size(); ++at) {
      const std::optional<SpanKind> kind = span_kind(list[at], stages);
      const TaskTimes span = forecast.price.spans[s][at];
      if (!kind || span.end <= span.start) continue;
      if (merges && list[at].is_compute() && last < list.size() && continues(list[last], list[at])) {
        row.spans[last_span].end = span.end;
        continue;
      }
      std::string text = text_of(plan, list[at]);
      if (merges && list[at].is_compute())
        text = fmt::format("{} of virtual stage {}", text.substr(0, text.find(" of ")), list[at].virtual_stage);
      if (!runs_beside(*kind)) last = list[at].is_compute() ? at : list.size(), last_span = row.spans.size();
      row.spans.push_back({.start = span.start, .end = span.end, .beside = runs_beside(*kind),
                           .kind = static_cast<std::int32_t>(*kind), .what = std::move(text),
                           .number = list[at].is_compute() ? list[at].micro_batch : TimelineSpan::kNoNumber});
    }
    timeline.rows.push_back(std::move(row));
  }
  leave_out_unused(timeline);
  return timeline;
}

Timeline step_timeline(const std::string& title, const std::vector<StepProgram>& programs,
                       const std::vector<std::vector<InstructionTimes>>& spans, std::size_t most_spans) {
  const std::array<LegendKey, kNumSpanKinds> kinds = span_kinds();
  Timeline timeline{title, {kinds.begin(), kinds.end()}, {}};
  bool cut = false;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    TimelineRow row{fmt::format("stage {}", rank), {}};
    std::array<double, 2> free{};  // by lane: spans of one do not overlap
    for (std::size_t at = 0; at < spans[rank].size() && !cut; ++at) {
      const Instruction& i = programs[rank].instructions[at];
      const std::optional<SpanKind> kind = span_kind(i, static_cast<int>(programs.size()));
      if (!kind) continue;
      const bool beside = runs_beside(*kind);
      double& lane_free = free[beside ? 1 : 0];
      const InstructionTimes& span = spans[rank][at];
      const double begin = std::max(span.start, lane_free), end = std::max(span.end, begin),
                   working = std::min(end, begin + span.waited);
      const auto add = [&](double from, double to, SpanKind what) {
        if (to > from)
          row.spans.push_back({.start = from, .end = to, .beside = beside, .kind = static_cast<std::int32_t>(what),
                               .what = short_name(i), .number = i.micro_batch >= 0 ? i.micro_batch : TimelineSpan::kNoNumber});
      };
      add(begin, working, SpanKind::kWaiting);
      add(working, end, *kind);
      lane_free = end;
      cut = row.spans.size() >= most_spans;
    }
    if (cut) timeline.title = fmt::format("{}: its first {} instructions of a stage", title, most_spans);
    cut = false;
    timeline.rows.push_back(std::move(row));
  }
  leave_out_unused(timeline);
  return timeline;
}

namespace {

// A message is known by its direction, the sender's virtual stage and the micro-batch.
using Message = std::tuple<bool, int, int>;

Message message_of(const Instruction& i) {
  const bool forward = i.kind == InstructionKind::kSendActivation || i.kind == InstructionKind::kRecvActivation;
  const int sender = i.is_send() ? i.virtual_stage : forward ? i.virtual_stage - 1 : i.virtual_stage + 1;
  return {forward, sender, i.micro_batch};
}

std::map<Message, TaskTimes> find_messages(const Forecast& forecast) {
  std::map<Message, TaskTimes> messages;
  for (std::size_t stage = 0; stage < forecast.step.programs.size(); ++stage) {
    const std::vector<Instruction>& list = forecast.step.programs[stage].instructions;
    for (std::size_t at = 0; at < list.size(); ++at)
      if (list[at].is_send()) messages[message_of(list[at])] = forecast.price.spans[stage][at];
  }
  return messages;
}

TraceLane lane_of(const Instruction& i) {
  switch (i.kind) {
    case InstructionKind::kSendActivation: return TraceLane::kSendForward;
    case InstructionKind::kSendGradient: return TraceLane::kSendBackward;
    case InstructionKind::kRecvActivation: return TraceLane::kRecvForward;
    case InstructionKind::kRecvGradient: return TraceLane::kRecvBackward;
    case InstructionKind::kGather: return TraceLane::kGather;
    case InstructionKind::kReduceGradients: return TraceLane::kReduce;
    default: return TraceLane::kCompute;
  }
}

// Slices of step 1, as a measured one has them (train/log/trace_writer.h), on the rank of a pipeline stage with tp 0, dp 0. There
// computes and updates lie in the compute lane, gathers and reductions in lanes of their own, messages from sending to arrival at
// both ends.
std::vector<TraceSlice> slices_of(const Forecast& forecast, const std::map<Message, TaskTimes>& messages, std::size_t stage) {
  const auto slice = [](TraceLane lane, std::int32_t instruction, double start, double end) {
    return TraceSlice{.start = start, .end = end, .step = 1, .instruction = instruction, .lane = lane};
  };
  std::vector<TraceSlice> slices{slice(TraceLane::kStep, TraceSlice::kStep, 0, forecast.price.seconds)};
  const std::vector<Instruction>& list = forecast.step.programs[stage].instructions;
  double computed_until = 0;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const auto number = static_cast<std::int32_t>(at);
    const TraceLane lane = lane_of(list[at]);
    const TaskTimes span = list[at].is_receive() ? messages.at(message_of(list[at])) : forecast.price.spans[stage][at];
    if (span.end <= span.start) continue;
    if (lane == TraceLane::kCompute) {
      if (span.start > computed_until) slices.push_back(slice(TraceLane::kWaiting, number, computed_until, span.start));
      computed_until = span.end;
    }
    slices.push_back(slice(lane, number, span.start, span.end));
  }
  return slices;
}

}  // namespace

void write_plan_trace(const std::string& path, const RunPlan& plan, const Forecast& forecast) {
  const auto stages = static_cast<int>(forecast.step.programs.size());
  const std::map<Message, TaskTimes> messages = find_messages(forecast);
  TraceWriter writer(path,
                     {ProcessGrid(ParallelDegrees{.pipeline = stages}), forecast.step.programs, plan.num_micro_batches,
                      stages * static_cast<int>(plan.config.parallel.virtual_stages)},
                     std::vector<ClockOffset>(static_cast<std::size_t>(stages)), 0);
  for (int stage = 0; stage < stages; ++stage) writer.add(stage, slices_of(forecast, messages, static_cast<std::size_t>(stage)));
  writer.finish();
}

}  // namespace trident
