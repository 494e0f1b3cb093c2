// Runs a step program: one loop over a table of handlers. It knows no layer, no parameter and no optimizer; whoever owns those binds
// a handler per instruction kind. Between instructions it polls the device, so that communication in progress advances.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/device.h"
#include "pipeline/step_program.h"

namespace trident {

class Executor {
 public:
  using Handler = std::function<void(const Instruction&)>;
  static constexpr std::size_t kNumKinds = static_cast<std::size_t>(InstructionKind::kOptimizerStep) + 1;

  explicit Executor(Device& device) : device_(device) {}

  void bind(InstructionKind kind, Handler handler) { handlers_[static_cast<std::size_t>(kind)] = std::move(handler); }

  // Every instruction in order. An error is rethrown with the instruction and its neighbours in the program added to the message.
  // The CPU seconds this thread spent on each are left in cpu_seconds(), which is allocated on a program's first run.
  void run(const StepProgram& program);

  // Of the last run, one number per instruction.
  std::span<const double> cpu_seconds() const { return cpu_seconds_; }

 private:
  Device& device_;
  std::array<Handler, kNumKinds> handlers_;
  std::vector<double> cpu_seconds_;
};

}  // namespace trident
