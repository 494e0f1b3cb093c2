// Stretches of a step program that further micro-batches repeat: a program of few micro-batches stands for one of many.
//
// A schedule is a warm-up, the same few passes again and again, and what is left at the end. A loop says where a short program
// repeats itself: the program with more micro-batches has that stretch more often, and is the same before and behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pipeline/schedule/schedule_generators.h"
#include "pipeline/schedule/step_program.h"

namespace trident {

// Instructions [begin, begin + length) are run `times` times more than they are written, each time for the next `micro_batches`
// micro-batches. What stands behind the loop is of as many later ones, if the loop has any of its kind: forwards with their
// messages, or backwards.
struct ProgramLoop {
  std::size_t begin = 0, length = 0;
  int times = 0, micro_batches = 0;
  std::size_t end() const { return begin + length; }
};
using ProgramLoops = std::vector<ProgramLoop>;  // in the order of the program

// A turn of a schedule's loop goes on by so many micro-batches. `sync_every`: between reductions, 0: once a step.
int loop_turn(ScheduleKind kind, int pipeline, std::int64_t sync_every);
// Micro-batches of a program that shows the loops of a longer one of `micro_batches`: as few as will do, whole turns fewer than
// those, or `micro_batches` itself where nothing is gained.
int short_micro_batches(ScheduleKind kind, int pipeline, std::int64_t sync_every, int micro_batches);

// Loops with which `program` is one of `more` micro-batches more, `turn` at a time, each seen to repeat itself there, with the
// passes `pass_of` (by instruction; empty: passes do not matter). Nothing where there are none, or not of all that is computed.
// Not proof: is_unrolled() is.
ProgramLoops find_loops(const StepProgram& program, const std::vector<std::int32_t>& pass_of, int turn, int more);

// A program as build_programs_for_pricing() has it: when receives are posted depends on the whole schedule, and no time and no
// other call depends on it. `order`: by instruction, where it stood.
struct ProgramWithoutReceives {
  StepProgram program;
  std::vector<std::int32_t> order;
};
ProgramWithoutReceives without_receives(const StepProgram& program);

// By instruction of the program with its loops: the one that stands for it.
std::vector<std::int32_t> unrolled(const StepProgram& program, const ProgramLoops& loops);

// Whether `longer` is `program` with those loops, in all that calls and times depend on: kinds, units, stages, micro-batches,
// peers, flags, and where transient gradients lie. Buffers of messages and of gathered parameters may have other numbers.
bool is_unrolled(const StepProgram& longer, const StepProgram& program, const ProgramLoops& loops);

}  // namespace trident
