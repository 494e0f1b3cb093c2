// A rank's step program as its streams see it: what occupies which stream for how long, and what it waits for. What step_price.h
// simulates; find_waits() (pipeline/schedule/step_waits.h) says the same of every instruction, for engines that keep all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pipeline/schedule/step_program.h"
#include "planner/price/program_loops.h"

namespace trident {

// One or several instructions that follow each other on a stream.
struct StreamOp {
  enum class Stream : std::uint8_t { kLine, kOverlapped, kWire };
  enum class Cause : std::uint8_t { kCompute, kData, kMessage, kUpdate };  // whose seconds these are
  enum class Barrier : std::uint8_t { kNone, kTie, kNorm };

  Stream stream = Stream::kLine;
  Cause cause = Cause::kCompute;
  Barrier barrier = Barrier::kNone;
  bool receives = false;        // of kLine: waits for message (channel, micro_batch); kWire: that is what it sends
  std::int32_t channel = 0;     // channel_of() the stage that reads it
  std::int32_t micro_batch = 0;
  std::int32_t back = 0;        // waits for the back-th last that was issued beside; 0: for none
  std::size_t instruction = 0;  // the first
  double seconds = 0;           // alone on its rank
};

// Numbers from 0 to 2 x virtual stages: odd ones of activations, even ones of gradients.
inline int channel_of(bool activation, int stage) { return 2 * stage + (activation ? 1 : 0); }

struct RankOps {
  struct Loop {
    std::size_t begin = 0, end = 0;  // ops
    int times = 0;
    std::array<int, 2> micro_batches{};  // that a turn goes on, by kind of message: gradients, activations
  };
  std::vector<StreamOp> ops;
  std::vector<Loop> loops;
  std::int64_t most_back = 0;          // of any op
  std::vector<std::int64_t> computes;  // by pass: how often an instruction that computes runs it
};

enum class Spans : std::uint8_t { kOff, kOn };  // kOn: an op for every instruction, whose times are kept

struct RankOpsInputs {
  const StepProgram& program;
  const std::vector<std::int32_t>& pass_of;  // by instruction
  const std::vector<double>& pass_seconds;   // by pass
  bool overlap = true;
  const ProgramLoops& loops;  // outlive the call
  Spans spans = Spans::kOn;
};

// O(instructions). Throws InternalError where a loop is no stretch of the program.
RankOps make_rank_ops(const RankOpsInputs& in);

}  // namespace trident
