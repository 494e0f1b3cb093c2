#include "pipeline/executor.h"

#include <algorithm>

#include "core/check.h"
#include "core/clock.h"
#include "device/no_allocation.h"

namespace trident {
namespace {

// "... B(u3,m0) >>reduce(u3)g0<< B(u2,m0) ...": where in its program a rank was.
std::string surroundings(const StepProgram& program, std::size_t at) {
  const std::size_t first = at > 2 ? at - 2 : 0, last = std::min(at + 3, program.instructions.size());
  std::string text = first > 0 ? "... " : "";
  for (std::size_t i = first; i < last; ++i) {
    const std::string name = to_string(program.instructions[i]);
    text += i == at ? ">>" + name + "<< " : name + " ";
  }
  return text + (last < program.instructions.size() ? "..." : "");
}

}  // namespace

const std::vector<std::string>& Executor::names_of(const StepProgram& program) {
  std::vector<std::string>& names = names_[&program];
  for (std::size_t i = names.size(); i < program.instructions.size(); ++i) names.push_back(short_name(program.instructions[i]));
  return names;
}

void Executor::run(const StepProgram& program, std::vector<InstructionTimes>& times) {
  times.resize(program.instructions.size());
  Ranges* const ranges = device_.ranges();
  const std::vector<std::string>* const names = ranges != nullptr ? &names_of(program) : nullptr;
  start_ = monotonic_seconds(), cpu_ = thread_cpu_seconds(), waited_ = device_.waited_seconds();
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const Handler& handler = at(handlers_, instruction.kind);
    const RangeScope range(ranges, names != nullptr ? (*names)[i].c_str() : nullptr);
    try {
      TRIDENT_CHECK(handler != nullptr, "no handler is bound for {}", to_string(instruction));
      handler(instruction);
      device_.poll();
    } catch (Error& error) {
      const AllocationExemption message;  // the step is over
      error.add_context(fmt::format(" [pipeline rank {}, instruction {}: {}]", program.rank, i, surroundings(program, i)));
      throw;
    }
    times[i] = so_far();
    start_ = times[i].end, cpu_ += times[i].cpu, waited_ += times[i].waited;
  }
}

InstructionTimes Executor::so_far() const {
  const double cpu = thread_cpu_seconds() - cpu_, waited = device_.waited_seconds() - waited_;
  return {start_, monotonic_seconds(), cpu, waited};
}

}  // namespace trident
