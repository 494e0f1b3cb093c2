#include "pipeline/schedule/step_waits.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "core/check.h"

namespace trident {
namespace {

using Kind = InstructionKind;

using MessageKey = std::tuple<bool, int, int>;  // activation, reading virtual stage, micro-batch

// The waits of one rank, in the order of its program.
class RankWaits {
 public:
  RankWaits(const StepProgram& program, int first, const std::map<MessageKey, int>& sends)
      : program_(program), first_(first), sends_(sends) {}

  StepWaits::Of next() {
    const int number = first_ + at_;
    const Instruction& i = at(program_.instructions, at_++);
    StepWaits::Of of;
    if (i.is_compute()) {
      wait_for_inputs(i, of);
    } else if (i.is_receive()) {
      const MessageKey key{i.kind == Kind::kRecvActivation, i.virtual_stage, i.micro_batch};
      const auto send = sends_.find(key);
      TRIDENT_CHECK(send != sends_.end(), "nobody sends what {} of pipeline rank {} receives", to_string(i), program_.rank);
      arriving_[key] = send->second;
    } else if (i.kind == Kind::kGather || i.kind == Kind::kReduceGradients) {
      of.overlaps = true;
      if (i.kind == Kind::kGather && i.gather_place != Instruction::kNone) gathered_[i.unit] = number;
      if (i.kind == Kind::kReduceGradients) reduced_.push_back({gradient_place(program_, i), number});
    } else if (i.kind == Kind::kTieExchange && i.peer != program_.rank) {
      of.barrier = StepWaits::kTie;
    } else if (i.kind == Kind::kGradNorm) {
      of.barrier = StepWaits::kNorm;
    }
    return of;
  }

 private:
  // The first compute that reads a message waits for it; later ones of the same action follow it anyway.
  void wait_for_inputs(const Instruction& i, StepWaits::Of& of) {
    if (const auto arriving = arriving_.find({i.is_forward(), i.virtual_stage, i.micro_batch}); arriving != arriving_.end()) {
      of.send = arriving->second;
      arriving_.erase(arriving);
    }
    if (const auto gather = gathered_.find(i.unit); gather != gathered_.end()) of.gather = gather->second;
    if (i.is_forward()) return;
    // Reductions run one after the other: the last one that reads this memory stands for all of them.
    const GradientPlace place = gradient_place(program_, i);
    const auto reads_it = [&](const Reduction& r) { return r.place.meets(place); };
    const auto reduction = std::find_if(reduced_.rbegin(), reduced_.rend(), reads_it);
    if (reduction != reduced_.rend()) of.reduction = reduction->number;
  }

  struct Reduction {
    GradientPlace place;
    int number = 0;
  };
  const StepProgram& program_;
  int first_ = 0, at_ = 0;
  const std::map<MessageKey, int>& sends_;
  std::map<MessageKey, int> arriving_;
  std::map<int, int> gathered_;     // by unit
  std::vector<Reduction> reduced_;  // in order
};

}  // namespace

GradientPlace gradient_place(const StepProgram& program, const Instruction& compute) {
  if (compute.grad_place == Instruction::kNone) return {compute.unit, {0, 1}};
  const std::int64_t begin = compute.grad_place * kPlaceBytes;
  return {Instruction::kNone, {begin, begin + at(program.unit_bytes, compute.unit).gradients}};
}

StepWaits find_waits(const std::vector<StepProgram>& programs) {
  StepWaits waits;
  std::map<MessageKey, int> sends;
  int number = 0;
  for (const StepProgram& program : programs) {
    waits.first.push_back(number);
    for (const Instruction& i : program.instructions) {
      const bool activation = i.kind == Kind::kSendActivation;
      if (i.is_send()) sends[{activation, i.virtual_stage + (activation ? 1 : -1), i.micro_batch}] = number;
      ++number;
    }
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    RankWaits of(programs[rank], waits.first[rank], sends);
    auto& list = waits.ranks.emplace_back();
    list.reserve(programs[rank].instructions.size());
    while (list.size() < programs[rank].instructions.size()) list.push_back(of.next());
  }
  return waits;
}

}  // namespace trident
