// Where the time of training steps goes: by kind of action, computing apart from waiting.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/named_enum.h"
#include "core/number_range.h"
#include "pipeline/executor.h"

namespace trident {

// forward, backward: with tensor-parallel collectives, recomputation, and waiting for an input or for gathered parameters.
// messages: issuing sends and receives. gather, reduce: issuing collectives over dp; the tie exchange. norm: waiting for reduced
// gradients, step statistics. data: reading the batch, and the sum of its counted targets.
enum class StepPart : std::uint8_t { kForward, kBackward, kMessages, kGather, kReduce, kNorm, kOptimizer, kData };
template <>
inline constexpr std::array<std::string_view, 8> kNamesOf<StepPart>{
    "forward", "backward", "messages", "gather", "reduce", "norm", "optimizer", "data"};
inline constexpr std::size_t kNumStepParts = 8;
StepPart part_of(InstructionKind kind);

// Ranks wait for: tp: collectives in layers. pp: activations and their gradients. dp: reductions and gathers. norm: the sums of the
// step statistics and of the batch's counted targets, that is, the slowest rank.
enum class WaitedFor : std::uint8_t { kTensor, kPipeline, kData, kNorm };
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<WaitedFor>{"tp", "pp", "dp", "norm"};
inline constexpr std::size_t kNumWaitedFor = 4;

// Times of a step's instructions by cause. Seconds.
struct StepCauses {
  double tensor = 0;                              // computes were held by collectives on the compute stream, waiting included
  double reduced = 0, reduced_waited = 0, reduced_cpu = 0;  // the norm's: until all gradients were reduced
};

// Sums of seconds over `steps` steps, of one rank or of several.
struct StepTimes {
  std::array<double, kNumStepParts> wall{}, cpu{}, waited{};
  std::array<double, kNumWaitedFor> waited_for{};
  StepCauses causes;
  double step = 0;  // from the beginning of a step to its end
  double steps = 0;

  using Values = std::array<double, 3 * kNumStepParts + kNumWaitedFor + 2 + sizeof(StepCauses) / sizeof(double)>;  // all of it
  StepTimes& operator+=(const StepTimes& other);
  StepTimes mean() const;  // of one step: everything over `steps`
  double waiting() const;    // all of it
  double computing() const;  // CPU time
  double rest() const;       // of `step`: not in any part
};

// A number that every rank has, as its least, mean and largest value.
struct Extremes {
  double min = 0, mean = 0, max = 0;
  int largest = 0;  // the first rank that has the maximum
};

// One step of one rank. `times`: as the executor left them for `program`. `batch`: of what came before.
StepTimes step_times(const StepProgram& program, std::span<const InstructionTimes> times, const InstructionTimes& batch,
                     double step_seconds);

// Between which half of some values lies: a quarter is below, a quarter above. Of three or fewer, the least and the largest.
NumberRange middle_half(std::vector<double> values);

}  // namespace trident
