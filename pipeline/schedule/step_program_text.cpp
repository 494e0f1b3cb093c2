#include "core/check.h"
#include "pipeline/schedule/step_program.h"

namespace trident {
namespace {

using Kind = InstructionKind;

constexpr std::size_t kLineWidth = 128;

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::kForward: return "F";
    case Kind::kBackward: return "B";
    case Kind::kBackwardInput: return "I";
    case Kind::kBackwardWeight: return "W";
    case Kind::kSendActivation: return "send_act";
    case Kind::kRecvActivation: return "recv_act";
    case Kind::kSendGradient: return "send_grad";
    case Kind::kRecvGradient: return "recv_grad";
    case Kind::kGather: return "gather";
    case Kind::kFree: return "free";
    case Kind::kReduceGradients: return "reduce";
    case Kind::kTieExchange: return "tie";
    case Kind::kGradNorm: return "norm";
    case Kind::kOptimizerStep: return "step";
  }
  return "?";
}

}  // namespace

std::string to_string(const Instruction& i) {
  const auto slot = [](std::string_view prefix, int number) {
    return number == Instruction::kNone ? std::string{} : fmt::format("{}{}", prefix, number);
  };
  if (i.is_compute()) {
    std::string text = fmt::format("{}(u{},m{}){}", name(i.kind), i.unit, i.micro_batch, slot("@", i.gather_place));
    if (!i.is_forward()) text += (i.overwrites() ? "=" : "+=") + slot("g", i.grad_place);
    return text;
  }
  if (i.is_send()) return fmt::format("{}(s{},m{})>{}", name(i.kind), i.virtual_stage, i.micro_batch, i.peer);
  if (i.is_receive())
    return fmt::format("{}(s{},m{})<{}{}", name(i.kind), i.virtual_stage, i.micro_batch, i.peer, slot("@", i.receive_slot));
  if (i.kind == Kind::kReduceGradients) return fmt::format("reduce(u{}){}{}", i.unit, slot("g", i.grad_place), i.last() ? "!" : "");
  if (i.kind == Kind::kTieExchange) return fmt::format("tie<>{}", i.peer);
  if (i.kind == Kind::kGradNorm) return "norm";
  return fmt::format("{}(u{}){}", name(i.kind), i.unit, slot("@", i.gather_place));
}

std::string_view category_of(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kForward: return "forward";
    case InstructionKind::kBackward: return "backward";
    case InstructionKind::kBackwardInput: return "backward_input";
    case InstructionKind::kBackwardWeight: return "backward_weight";
    case InstructionKind::kSendActivation: return "send_activation";
    case InstructionKind::kRecvActivation: return "recv_activation";
    case InstructionKind::kSendGradient: return "send_gradient";
    case InstructionKind::kRecvGradient: return "recv_gradient";
    case InstructionKind::kGather: return "gather";
    case InstructionKind::kFree: return "free";
    case InstructionKind::kReduceGradients: return "reduce";
    case InstructionKind::kTieExchange: return "tie_exchange";
    case InstructionKind::kGradNorm: return "grad_norm";
    case InstructionKind::kOptimizerStep: return "optimizer";
  }
  return "";
}

std::string short_name(const Instruction& i) {
  std::string name(category_of(i.kind));
  if (i.unit != Instruction::kNone) name += fmt::format(" u{}", i.unit);
  if (i.micro_batch != Instruction::kNone) name += fmt::format(" m{}", i.micro_batch);
  return name;
}

std::string to_text(const StepProgram& program) {
  std::string text, line = fmt::format("rank {}:", program.rank);
  for (const Instruction& i : program.instructions) {
    const std::string word = to_string(i);
    if (line.size() + 1 + word.size() > kLineWidth) {
      text += line + '\n';
      line = "       ";
    }
    line += ' ' + word;
  }
  return text + line + '\n';
}

}  // namespace trident
