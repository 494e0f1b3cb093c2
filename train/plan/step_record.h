// A rank's step as a value: its program's instructions, each with the pass that it is, and every distinct pass once,
// as the operations and collectives that a dry rank called (record_step, train/run/dry_run.h). Times are not in it: step_price.h
// puts a price on each pass and lets the programs run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/at.h"
#include "core/work_kind.h"
#include "device/op_values.h"
#include "parallel/communicator/collective_call.h"
#include "parallel/grid/process_grid.h"

namespace trident {

// Whether equal passes are one; kOff: every instruction has its own, to be compared with.
enum class Interning : std::uint8_t { kOff, kOn };

struct RecordedOperation {
  WorkKind kind{};
  std::string_view name;
  double flops = 0;                                                 // of products; attention's as far as the mask leaves them
  double bytes = 0;                                                 // that must move: every operand once, twice in place
  std::variant<std::monostate, MatmulShape, AttentionShape> shape;  // of what its price depends on beside these
  bool recomputed = false;  // in a backward: forward work done again
  bool in_graph = false;    // on GPUs that capture: launched with the call before it, as one graph
  bool tf32 = false;        // of products of fp32: on tensor cores, operands rounded
  bool operator==(const RecordedOperation&) const = default;
};

struct RecordedCollective {
  Axis axis{};
  std::string group;  // the communicator: "dp (gather)"
  int size = 1;       // ranks in it
  CommOperation operation{};
  DType dtype{};
  std::int64_t operand_bytes = 0;       // of the whole operand, on each rank
  std::int64_t sent_bytes_times_n = 0;  // by this rank, times `size`
  bool recomputed = false;              // as above
  bool operator==(const RecordedCollective&) const = default;
};

// The calls of one instruction, in order.
struct PassRecord {
  std::vector<std::variant<RecordedOperation, RecordedCollective>> calls;
  bool operator==(const PassRecord&) const = default;
};

struct OperationTotal {
  std::string_view name;
  WorkKind kind{};
  std::int64_t calls = 0;
  double flops = 0, bytes = 0;
  bool operator==(const OperationTotal&) const = default;
};

struct StepRecord {
  std::vector<PassRecord> passes;     // distinct ones; the first is what lies outside of instructions
  std::vector<std::int32_t> pass_of;  // by instruction of the rank's program: a number in `passes`

  const PassRecord& pass(std::size_t instruction) const { return at(passes, pass_of[instruction]); }
  // How often each pass is run.
  std::vector<std::int64_t> counts() const;
  std::array<double, kNumAxes> bytes_sent() const;  // as DryRun has it
  std::vector<OperationTotal> operations() const;   // by name
};

}  // namespace trident
