#include <array>

#include "core/at.h"
#include "core/check.h"
#include "pipeline/schedule/step_program.h"

namespace trident {
namespace {

using Kind = InstructionKind;

constexpr std::size_t kLineWidth = 128;

// The text of a program has these words for its instructions.
constexpr std::array<std::string_view, 14> kWords{"F", "B", "I", "W", "send_act", "recv_act", "send_grad",
                                                   "recv_grad", "gather", "free", "reduce", "tie", "norm", "step"};

}  // namespace

std::string to_string(const Instruction& i) {
  const auto slot = [](std::string_view prefix, int number) {
    return number == Instruction::kNone ? std::string{} : fmt::format("{}{}", prefix, number);
  };
  if (i.is_compute()) {
    std::string text = fmt::format("{}(u{},m{}){}", at(kWords, i.kind), i.unit, i.micro_batch, slot("@", i.gather_place));
    if (!i.is_forward()) text += (i.overwrites() ? "=" : "+=") + slot("g", i.grad_place);
    return text;
  }
  if (i.is_send()) return fmt::format("{}(s{},m{})>{}", at(kWords, i.kind), i.virtual_stage, i.micro_batch, i.peer);
  if (i.is_receive())
    return fmt::format("{}(s{},m{})<{}{}", at(kWords, i.kind), i.virtual_stage, i.micro_batch, i.peer, slot("@", i.receive_slot));
  if (i.kind == Kind::kReduceGradients) return fmt::format("reduce(u{}){}{}", i.unit, slot("g", i.grad_place), i.last() ? "!" : "");
  if (i.kind == Kind::kTieExchange) return fmt::format("tie<>{}", i.peer);
  if (i.kind == Kind::kGradNorm) return "norm";
  return fmt::format("{}(u{}){}", at(kWords, i.kind), i.unit, slot("@", i.gather_place));
}

std::string short_name(const Instruction& i) {
  std::string name(to_string(i.kind));
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
