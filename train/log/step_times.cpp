#include "train/log/step_times.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/at.h"
#include "core/check.h"

namespace trident {
namespace {

std::size_t index_of(StepPart part) { return static_cast<std::size_t>(part); }

template <std::size_t N> void add(std::array<double, N>& to, const std::array<double, N>& from) {
  for (std::size_t i = 0; i < N; ++i) to[i] += from[i];
}

template <std::size_t N> std::array<double, N> divided(std::array<double, N> values, double by) {
  for (double& v : values) v /= by;
  return values;
}

using CauseValues = std::array<double, sizeof(StepCauses) / sizeof(double)>;

void add_causes(StepCauses& to, const StepCauses& from) {
  auto values = std::bit_cast<CauseValues>(to);
  add(values, std::bit_cast<CauseValues>(from));
  to = std::bit_cast<StepCauses>(values);
}

StepCauses divided_causes(const StepCauses& causes, double by) {
  return std::bit_cast<StepCauses>(divided(std::bit_cast<CauseValues>(causes), by));
}

template <std::size_t N>
double sum(const std::array<double, N>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

std::string_view to_string(StepPart part) {
  constexpr std::array<std::string_view, kNumStepParts> names{"forward", "backward", "messages",  "gather",
                                                              "reduce",  "norm",     "optimizer", "data"};
  return names[index_of(part)];
}

std::string_view to_string(WaitedFor what) {
  constexpr std::array<std::string_view, kNumWaitedFor> names{"tp", "pp", "dp", "norm"};
  return at(names, what);
}

StepPart part_of(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kForward: return StepPart::kForward;
    case InstructionKind::kBackward:
    case InstructionKind::kBackwardInput:
    case InstructionKind::kBackwardWeight: return StepPart::kBackward;
    case InstructionKind::kSendActivation:
    case InstructionKind::kRecvActivation:
    case InstructionKind::kSendGradient:
    case InstructionKind::kRecvGradient: return StepPart::kMessages;
    case InstructionKind::kGather:
    case InstructionKind::kFree: return StepPart::kGather;
    case InstructionKind::kReduceGradients:
    case InstructionKind::kTieExchange: return StepPart::kReduce;
    case InstructionKind::kGradNorm: return StepPart::kNorm;
    case InstructionKind::kOptimizerStep: return StepPart::kOptimizer;
  }
  throw InternalError("an instruction of no kind");
}

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  add(wall, other.wall), add(cpu, other.cpu), add(waited, other.waited), add(waited_for, other.waited_for);
  add_causes(causes, other.causes);
  step += other.step;
  steps += other.steps;
  return *this;
}

StepTimes StepTimes::mean() const {
  if (steps == 0) return {};
  return {divided(wall, steps),       divided(cpu, steps),          divided(waited, steps),
          divided(waited_for, steps), divided_causes(causes, steps), step / steps,
          1};
}

double StepTimes::waiting() const { return sum(waited); }
double StepTimes::computing() const { return sum(cpu); }
double StepTimes::rest() const { return step - sum(wall); }

StepTimes step_times(const StepProgram& program, std::span<const InstructionTimes> times, double batch_seconds,
                     double step_seconds) {
  TRIDENT_CHECK(times.size() == program.instructions.size(), "{} times of {} instructions", times.size(),
                program.instructions.size());
  StepTimes result;
  result.step = step_seconds;
  result.steps = 1;
  result.wall[index_of(StepPart::kData)] = result.cpu[index_of(StepPart::kData)] = batch_seconds;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::size_t part = index_of(part_of(program.instructions[i].kind));
    result.wall[part] += times[i].end - times[i].start;
    result.cpu[part] += times[i].cpu;
    result.waited[part] += times[i].waited;
  }
  return result;
}

NumberRange middle_half(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const std::size_t quarter = (values.size() - 1) / 4;
  return {values[quarter], values[values.size() - 1 - quarter]};
}

}  // namespace trident
