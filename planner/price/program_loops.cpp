#include "planner/price/program_loops.h"

#include <algorithm>
#include <array>

#include "core/check.h"

namespace trident {
namespace {

using Kind = InstructionKind;

bool of_forwards(const Instruction& i) {
  return i.is_forward() || i.kind == Kind::kSendActivation;
}

// But for micro-batches, and for buffers that no call and no time depends on.
bool does_the_same(const Instruction& a, const Instruction& b) {
  return a.kind == b.kind && a.unit == b.unit && a.virtual_stage == b.virtual_stage && a.peer == b.peer && a.flags == b.flags &&
         a.grad_place == b.grad_place && (a.gather_place == Instruction::kNone) == (b.gather_place == Instruction::kNone) &&
         (a.micro_batch == Instruction::kNone) == (b.micro_batch == Instruction::kNone);
}

class Finder {
 public:
  Finder(const StepProgram& program, const std::vector<std::int32_t>& pass_of, int turn)
      : program_(program), list_(program.instructions), pass_of_(pass_of), turn_(turn) {}

  // The last loop with passes of `forwards` or backwards.
  ProgramLoop find(bool forwards) const {
    std::size_t last = list_.size();
    while (last > 0 && !(list_[last - 1].is_compute() && list_[last - 1].is_forward() == forwards)) --last;
    // From the last one whose like is a turn before it, back: what is behind the loop has none there.
    for (std::size_t attempt = 0; attempt < 8 && last > 0; ++attempt) {
      const std::size_t at = last - 1, before = turn_before(at);
      if (before == at) return {};
      const ProgramLoop loop = around(before, at - before);
      if (loop.length > 0) return loop;
      // The same pass of the micro-batch before.
      last = at;
      while (last > 0 && !same_pass(list_[last - 1], list_[at])) --last;
    }
    return {};
  }

  std::int64_t computes(const ProgramLoop& loop, bool forwards) const {
    return std::count_if(list_.begin() + std::ptrdiff_t(loop.begin), list_.begin() + std::ptrdiff_t(loop.end()),
                         [&](const Instruction& i) { return i.is_compute() && i.is_forward() == forwards; });
  }

 private:
  static bool same_pass(const Instruction& a, const Instruction& b) {
    return a.kind == b.kind && a.unit == b.unit && a.virtual_stage == b.virtual_stage;
  }

  std::size_t turn_before(std::size_t at) const {
    const Instruction& i = list_[at];
    for (std::size_t before = at; before-- > 0;)
      if (same_pass(list_[before], i) && list_[before].micro_batch == i.micro_batch - turn_) return before;
    return at;
  }

  bool repeats(std::size_t at, std::size_t length) const {
    const Instruction &a = list_[at], &b = list_[at + length];
    return does_the_same(a, b) && (a.micro_batch == Instruction::kNone || a.micro_batch + turn_ == b.micro_batch) &&
           (pass_of_.empty() || pass_of_[at] == pass_of_[at + length]);
  }

  ProgramLoop around(std::size_t at, std::size_t length) const {
    if (!repeats(at, length)) return {};
    std::size_t begin = at, end = at + 1;  // of instructions that are repeated `length` later
    while (begin > 0 && repeats(begin - 1, length)) --begin;
    while (end + length < list_.size() && repeats(end, length)) ++end;
    // Most of a turn was seen twice, which is further back than anything waits. A shorter stretch can be an accident: gpipe's last
    // two backwards are alike, and what lies between them are the step's last reductions.
    if (end - begin < length - length / 4) return {};
    return {end, length, 0, turn_};
  }

  const StepProgram& program_;
  const std::vector<Instruction>& list_;
  const std::vector<std::int32_t>& pass_of_;
  int turn_;
};

// How much further a turn goes on, by kind: forwards and backwards apart.
std::array<int, 2> shift_of(const StepProgram& program, const ProgramLoop& loop) {
  std::array<int, 2> shift{};
  for (std::size_t at = loop.begin; at < loop.end(); ++at)
    if (program.instructions[at].micro_batch != Instruction::kNone)
      shift[of_forwards(program.instructions[at]) ? 1 : 0] = loop.micro_batches;
  return shift;
}

}  // namespace

int loop_turn(ScheduleKind kind, int pipeline, std::int64_t sync_every) {
  const auto every = static_cast<int>(std::clamp<std::int64_t>(sync_every, 1, 1 << 20));
  int turn = kind == ScheduleKind::kInterleaved ? pipeline : 1;
  while (turn % every != 0) turn += kind == ScheduleKind::kInterleaved ? pipeline : 1;
  return turn;
}

int short_micro_batches(ScheduleKind kind, int pipeline, std::int64_t sync_every, int micro_batches) {
  const int turn = loop_turn(kind, pipeline, sync_every);
  // A warm-up is of fewer than `pipeline`, of interleaved stages of twice as many. Behind it turns that are alike, and the
  // first ones, which find no gradients to add to.
  const int least = kind == ScheduleKind::kInterleaved && pipeline > 1 ? 2 * pipeline + 2 * turn : pipeline + 6 * turn;
  const std::int64_t few = least + (micro_batches - least) % turn;
  return micro_batches > least + turn ? static_cast<int>(few) : micro_batches;
}

ProgramLoops find_loops(const StepProgram& program, const std::vector<std::int32_t>& pass_of, int turn, int more) {
  TRIDENT_CHECK(turn > 0 && more >= 0 && more % turn == 0, "{} more in turns of {}", more, turn);
  const Finder finder(program, pass_of, turn);
  const auto all = static_cast<std::int64_t>(program.units.size()) * turn;
  ProgramLoops loops;
  for (const bool forwards : {true, false}) {
    if (!loops.empty() && finder.computes(loops.front(), forwards) > 0) break;  // both in one
    loops.push_back(finder.find(forwards));
    if (loops.back().length == 0) return {};
    loops.back().times = more / turn;
  }
  for (const bool forwards : {true, false}) {
    std::int64_t computes = 0;
    for (const ProgramLoop& loop : loops) computes += finder.computes(loop, forwards);
    const bool splits = !forwards && program.has(Kind::kBackwardInput);
    if (computes != (splits ? 2 * all : all)) return {};
  }
  return loops;
}

ProgramWithoutReceives without_receives(const StepProgram& program) {
  ProgramWithoutReceives less;  // what calls and times depend on: no slots
  less.program.rank = program.rank;
  less.program.num_ranks = program.num_ranks;
  less.program.units = program.units;
  less.program.unit_bytes = program.unit_bytes;
  for (std::size_t at = 0; at < program.instructions.size(); ++at) {
    if (program.instructions[at].is_receive()) continue;
    less.program.instructions.push_back(program.instructions[at]);
    less.order.push_back(static_cast<std::int32_t>(at));
  }
  return less;
}

std::vector<std::int32_t> unrolled(const StepProgram& program, const ProgramLoops& loops) {
  std::vector<std::int32_t> from;
  std::size_t at = 0;
  const auto until = [&](std::size_t end) {
    for (; at < end; ++at) from.push_back(static_cast<std::int32_t>(at));
  };
  for (const ProgramLoop& loop : loops) {
    until(loop.end());
    for (int turn = 0; turn < loop.times; ++turn)
      for (std::size_t i = loop.begin; i < loop.end(); ++i) from.push_back(static_cast<std::int32_t>(i));
  }
  until(program.instructions.size());
  return from;
}

bool is_unrolled(const StepProgram& longer, const StepProgram& program, const ProgramLoops& loops) {
  std::array<int, 2> shift{};
  std::size_t at = 0, in_longer = 0;
  const auto agrees_until = [&](std::size_t end) {
    for (; at < end; ++at, ++in_longer) {
      if (in_longer == longer.instructions.size()) return false;
      const Instruction &mine = program.instructions[at], &other = longer.instructions[in_longer];
      if (!does_the_same(mine, other)) return false;
      if (mine.micro_batch != Instruction::kNone && mine.micro_batch + shift[of_forwards(mine) ? 1 : 0] != other.micro_batch)
        return false;
    }
    return true;
  };
  for (const ProgramLoop& loop : loops) {
    if (!agrees_until(loop.end())) return false;
    const std::array<int, 2> more = shift_of(program, loop);
    for (int turn = 0; turn < loop.times; ++turn) {
      for (std::size_t kind = 0; kind < shift.size(); ++kind) shift[kind] += more[kind];
      at = loop.begin;
      if (!agrees_until(loop.end())) return false;
    }
  }
  return agrees_until(program.instructions.size()) && in_longer == longer.instructions.size();
}

}  // namespace trident
