#include "planner/predict/plan_trace.h"

#include <cstdint>
#include <map>
#include <tuple>

namespace trident {
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

std::vector<TraceSlice> trace_slices(const Forecast& forecast, std::size_t stage) {
  return slices_of(forecast, find_messages(forecast), stage);
}

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
