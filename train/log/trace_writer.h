// A Chrome trace of training steps: the JSON of trace events that ui.perfetto.dev and chrome://tracing open.
//
// A rank is a process of the trace, a stream a lane of it. The compute lane holds the instructions of the step program and the
// batch before them; the lanes of the other streams hold operations from the head of their queue to their completion, named after
// the instruction that issued them; "waiting" holds the times in which the rank stood still for a stream. Slices of a lane never
// overlap. An arrow leads from each send to its receive.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/named_enum.h"
#include "parallel/grid/process_grid.h"
#include "pipeline/schedule/step_program.h"

namespace trident {

enum class TraceLane : std::uint8_t {
  kStep, kCompute, kWaiting, kCollectives, kReduce, kGather, kSendForward, kSendBackward, kRecvForward, kRecvBackward
};
template <>
inline constexpr std::array<std::string_view, 10> kNamesOf<TraceLane>{
    "step", "compute", "waiting", "collectives in compute", "reduce", "gather", "send forward", "send backward",
    "receive forward", "receive backward"};
inline constexpr int kNumTraceLanes = 10;

// Travels between ranks as it is.
struct TraceSlice {
  static constexpr std::int32_t kStep = -1, kBatch = -2;  // instead of an instruction

  double start = 0, end = 0;     // seconds of the rank's monotonic clock
  float cpu = 0, waited = 0;     // seconds; of instructions
  std::int32_t step = 0;         // the update it belongs to, from 1
  std::int32_t attempt = 0;      // traced steps before it: a skipped step is repeated under its number
  std::int32_t instruction = 0;  // index into the rank's program: itself, or what issued the operation
  TraceLane lane = TraceLane::kCompute;
};

struct TraceLayout {
  ProcessGrid grid{ParallelDegrees{}};
  std::vector<StepProgram> programs;  // by pipeline rank
  int num_micro_batches = 1, num_virtual_stages = 1;
};

// By rank: what to add to its clock to get rank 0's, and how wrong that may be. Seconds.
struct ClockOffset {
  double offset = 0, bound = 0;
};

class TraceWriter {
 public:
  // `start`: rank 0's time that becomes 0. The file appears under its name with finish(). Throws StorageError.
  TraceWriter(const std::string& path, TraceLayout layout, std::vector<ClockOffset> clocks, double start);

  // In any order of ranks; all slices of a message's two ends are given before finish().
  void add(int rank, std::span<const TraceSlice> slices);
  void finish();
  const std::string& path() const { return file_.path(); }

 private:
  void describe_ranks();
  void add_slice(int rank, const TraceSlice& slice);
  void add_arrow(int rank, const TraceSlice& slice, const Instruction& instruction);
  void event(std::string_view fields);

  AtomicFile file_;
  TraceLayout layout_;
  std::vector<ClockOffset> clocks_;
  double start_;
  bool first_ = true;
};

}  // namespace trident
