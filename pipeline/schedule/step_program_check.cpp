#include "pipeline/schedule/step_program_check.h"

#include "core/at.h"
#include "core/check.h"
#include "pipeline/schedule/channel_check.h"
#include "pipeline/schedule/rank_program_check.h"

namespace trident {
namespace {

using Kind = InstructionKind;

// Barriers of the whole pipeline.
constexpr int kTieBarrier = 0, kNormBarrier = 1;

std::vector<std::vector<ChannelOp>> channel_ops(const std::vector<StepProgram>& programs, const StepProgramSpec& spec) {
  const Schedule& schedule = spec.schedule;
  std::vector<std::vector<ChannelOp>> ops(programs.size());
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    for (std::size_t at = 0; at < programs[rank].instructions.size(); ++at) {
      const Instruction& i = programs[rank].instructions[at];
      const int self = static_cast<int>(rank), position = static_cast<int>(at);
      if (i.is_send() || i.is_receive()) {
        const bool activation = i.kind == Kind::kSendActivation || i.kind == Kind::kRecvActivation;
        const int source = i.is_send() ? self : i.peer, destination = i.is_send() ? i.peer : self;
        const int reader = i.is_receive() ? i.virtual_stage : activation ? i.virtual_stage + 1 : i.virtual_stage - 1;
        ops[rank].push_back({i.is_send() ? ChannelOp::Kind::kSend : ChannelOp::Kind::kReceive,
                             2 * (source * schedule.num_ranks + destination) + (activation ? 0 : 1),
                             reader * schedule.num_micro_batches + i.micro_batch, position});
      } else if (i.kind == Kind::kTieExchange && i.peer != self) {
        ops[rank].push_back({ChannelOp::Kind::kBarrier, kTieBarrier, 0, position});
      } else if (i.kind == Kind::kGradNorm) {
        ops[rank].push_back({ChannelOp::Kind::kBarrier, kNormBarrier, 0, position});
      }
    }
  return ops;
}

void check_channels(const std::vector<StepProgram>& programs, const StepProgramSpec& spec, int capacity) {
  const int p = spec.schedule.num_ranks;
  const auto fault = find_channel_fault(channel_ops(programs, spec), 2 * p * p, {2, p}, capacity);
  if (!fault) return;
  const auto show = [&](const std::pair<int, int>& place) {
    return show_instruction(at(programs, place.first), static_cast<std::size_t>(place.second));
  };
  if (fault->kind == ChannelFault::Kind::kWrongMessage)
    throw InternalError(fmt::format("broken step program: another message arrives here (channel capacity {})\n{}", capacity,
                                    show(fault->places.front())));
  std::string message = fmt::format("broken step program: deadlock with channel capacity {}", capacity);
  for (const auto& place : fault->places) message += '\n' + show(place);
  throw InternalError(message);
}

}  // namespace

void check_step_programs(const std::vector<StepProgram>& programs, const StepProgramSpec& spec) {
  if (static_cast<int>(programs.size()) != spec.schedule.num_ranks)
    throw InternalError(fmt::format("broken step program: {} programs for {} ranks", programs.size(), spec.schedule.num_ranks));
  for (std::size_t rank = 0; rank < programs.size(); ++rank) check_rank_program(programs[rank], static_cast<int>(rank), spec);
  for (const int capacity : {0, 1}) check_channels(programs, spec, capacity);
}

}  // namespace trident
