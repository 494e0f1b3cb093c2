// Runs a step program: one loop over a table of handlers. It knows no layer, no parameter and no optimizer; whoever owns those
// binds a handler per instruction kind. Between instructions it polls the device, so that communication in progress advances.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/at.h"
#include "device/device.h"
#include "pipeline/schedule/step_program.h"

namespace trident {

// An instruction took so long on a monotonic clock, but for `cpu`.
struct InstructionTimes {
  double start = 0, end = 0;
  double cpu = 0;     // CPU time of this thread
  double waited = 0;  // of end - start: nothing of this rank could advance before a peer did something
};

class Executor {
 public:
  using Handler = std::function<void(const Instruction&)>;
  static constexpr std::size_t kNumKinds = static_cast<std::size_t>(InstructionKind::kOptimizerStep) + 1;

  explicit Executor(Device& device) : device_(device) {}

  void bind(InstructionKind kind, Handler handler) { at(handlers_, kind) = std::move(handler); }

  // Every instruction in order. An error is rethrown with the instruction and its neighbours in the program added to the message.
  // times: one per instruction, overwritten; resized on a program's first run. `program` lives as long as this: where the device
  // has ranges, each instruction is one, called by its short_name(), which is made on the first run.
  void run(const StepProgram& program, std::vector<InstructionTimes>& times);

  // Times of the instruction in progress so far, for handlers that tell their parts apart.
  InstructionTimes so_far() const;

 private:
  const std::vector<std::string>& names_of(const StepProgram& program);

  Device& device_;
  double start_ = 0, cpu_ = 0, waited_ = 0;  // where the instruction in progress began
  std::map<const StepProgram*, std::vector<std::string>> names_;
  std::array<Handler, kNumKinds> handlers_;
};

}  // namespace trident
