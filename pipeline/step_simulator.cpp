#include "pipeline/step_simulator.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "core/check.h"

namespace trident {
namespace {

using Kind = InstructionKind;

// Turns programs into tasks. Tokens stand for messages, gathered slots and reduced gradient buffers.
class Lowering {
 public:
  Lowering(const std::vector<StepProgram>& programs, const StepCosts& costs, Overlap overlap)
      : programs_(programs), costs_(costs), background_(overlap == Overlap::kOn ? Lane::kBackground : Lane::kCompute) {
    for (const StepProgram& program : programs) {
      gathered_.clear();
      reduced_.clear();
      auto& list = tasks_.emplace_back();
      for (std::size_t at = 0; at < program.instructions.size(); ++at) list.push_back(lower(program, at));
    }
  }

  TaskTimeline run() const { return run_tasks(tasks_, num_tokens_, {2, static_cast<int>(programs_.size())}); }

 private:
  Task lower(const StepProgram& program, std::size_t at) {
    const Instruction& i = program.instructions[at];
    Task task;
    task.seconds = costs_.instruction(program.rank, at, i);
    if (i.is_compute()) {
      wait_for_inputs(program, i, task);
    } else if (i.is_send()) {
      const bool activation = i.kind == Kind::kSendActivation;
      task.gives = message(activation, i.virtual_stage + (activation ? 1 : -1), i.micro_batch);
      task.transit = costs_.message(program.rank, i.peer);
    } else if (i.is_receive()) {
      const bool activation = i.kind == Kind::kRecvActivation;
      arriving_[{activation, i.virtual_stage, i.micro_batch}] = message(activation, i.virtual_stage, i.micro_batch);
    } else if (i.kind == Kind::kGather || i.kind == Kind::kReduceGradients) {
      task.lane = background_;
      task.gives = num_tokens_++;
      if (i.kind == Kind::kGather && i.gather_place != Instruction::kNone) gathered_[i.unit] = task.gives;
      if (i.kind == Kind::kReduceGradients) reduced_.push_back({place_of(program, i), task.gives});
    } else if (i.kind == Kind::kTieExchange && i.peer != program.rank) {
      task.barrier = 0;
    } else if (i.kind == Kind::kGradNorm) {
      task.barrier = 1;
    }
    return task;
  }

  // The first compute that reads a message waits for it; later ones of the same action follow it anyway.
  void wait_for_inputs(const StepProgram& program, const Instruction& i, Task& task) {
    const auto arriving = arriving_.find({i.is_forward(), i.virtual_stage, i.micro_batch});
    if (arriving != arriving_.end()) {
      task.waits[0] = arriving->second;
      arriving_.erase(arriving);
    }
    if (const auto gather = gathered_.find(i.unit); gather != gathered_.end()) task.waits[1] = gather->second;
    if (i.is_forward()) return;
    // Reductions run one after the other: the last one that reads this memory stands for all of them.
    const GradientPlace place = place_of(program, i);
    const auto reads_it = [&](const Reduction& r) { return r.place.meets(place); };
    const auto reduction = std::find_if(reduced_.rbegin(), reduced_.rend(), reads_it);
    if (reduction != reduced_.rend()) task.waits[2] = reduction->token;
  }

  // Where a unit's gradient lies: in the region of transient ones, or in memory of its own.
  struct GradientPlace {
    int owner = Instruction::kNone;
    std::int64_t begin = 0, end = 0;
    bool meets(const GradientPlace& other) const { return owner == other.owner && begin < other.end && other.begin < end; }
  };
  static GradientPlace place_of(const StepProgram& program, const Instruction& i) {
    if (i.grad_place == Instruction::kNone) return {i.unit, 0, 1};
    const std::int64_t begin = i.grad_place * kPlaceBytes, bytes = program.unit_bytes[static_cast<std::size_t>(i.unit)].gradients;
    return {Instruction::kNone, begin, begin + bytes};
  }

  int message(bool activation, int reader_stage, int mb) {
    const auto [it, created] = messages_.try_emplace({activation, reader_stage, mb}, num_tokens_);
    if (created) ++num_tokens_;
    return it->second;
  }

  using MessageKey = std::tuple<bool, int, int>;  // activation, reading virtual stage, micro-batch
  const std::vector<StepProgram>& programs_;
  const StepCosts& costs_;
  Lane background_;
  std::vector<std::vector<Task>> tasks_;
  int num_tokens_ = 0;
  std::map<MessageKey, int> messages_, arriving_;  // tokens
  // Of the rank being lowered, tokens:
  std::map<int, int> gathered_;  // by unit
  struct Reduction {
    GradientPlace place;
    int token = 0;
  };
  std::vector<Reduction> reduced_;  // in order
};

double mean(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }

}  // namespace

double StepTimeline::bubble_over_ideal() const { return (pipeline_span - mean(compute)) / mean(compute); }
double StepTimeline::bubble_rate() const { return (pipeline_span - mean(compute)) / pipeline_span; }

StepTimeline simulate(const std::vector<StepProgram>& programs, const StepCosts& costs, Overlap overlap) {
  TaskTimeline times = Lowering(programs, costs, overlap).run();
  TRIDENT_CHECK(times.complete(), "the step programs block; they were not checked");

  StepTimeline timeline;
  timeline.ranks = std::move(times.ranks);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    double busy = 0, last = 0;
    std::optional<double> first;
    for (std::size_t at = 0; at < programs[rank].instructions.size(); ++at) {
      const TaskTimes t = timeline.ranks[rank][at];
      timeline.makespan = std::max(timeline.makespan, t.end);
      if (!programs[rank].instructions[at].is_compute()) continue;
      if (!first) first = t.start;
      busy += t.end - t.start;
      last = t.end;
    }
    timeline.compute.push_back(busy);
    timeline.pipeline_span = std::max(timeline.pipeline_span, last - first.value_or(0));
  }
  return timeline;
}

}  // namespace trident
