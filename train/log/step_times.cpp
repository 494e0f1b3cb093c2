#include "train/log/step_times.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/check.h"

namespace trident {
namespace {

std::size_t index_of(StepPart part) { return static_cast<std::size_t>(part); }

template <std::size_t N>
double sum(const std::array<double, N>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

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
  auto values = std::bit_cast<Values>(*this);
  const auto others = std::bit_cast<Values>(other);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += others[i];
  return *this = std::bit_cast<StepTimes>(values);
}

StepTimes StepTimes::mean() const {
  if (steps == 0) return {};
  auto values = std::bit_cast<Values>(*this);
  for (double& value : values) value /= steps;
  return std::bit_cast<StepTimes>(values);
}

double StepTimes::waiting() const { return sum(waited); }
double StepTimes::computing() const { return sum(cpu); }
double StepTimes::rest() const { return step - sum(wall); }

StepTimes step_times(const StepProgram& program, std::span<const InstructionTimes> times, const InstructionTimes& batch,
                     double step_seconds) {
  TRIDENT_CHECK(times.size() == program.instructions.size(), "{} times of {} instructions", times.size(),
                program.instructions.size());
  StepTimes result;
  result.step = step_seconds;
  result.steps = 1;
  const std::size_t data = index_of(StepPart::kData);
  result.wall[data] = batch.end - batch.start, result.cpu[data] = batch.cpu, result.waited[data] = batch.waited;
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
