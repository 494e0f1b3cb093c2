#include "train/log/trace_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/at.h"
#include "core/check.h"
#include "core/json_reader.h"

namespace trident {
namespace {

// Whole nanoseconds, so that what ends where another begins still does in the file. Microseconds are the format's unit.
std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", std::abs(nanoseconds) / 1000, std::abs(nanoseconds) % 1000);
}

bool is_send_lane(TraceLane lane) { return lane == TraceLane::kSendForward || lane == TraceLane::kSendBackward; }
bool is_receive_lane(TraceLane lane) { return lane == TraceLane::kRecvForward || lane == TraceLane::kRecvBackward; }

}  // namespace

TraceWriter::TraceWriter(const std::string& path, TraceLayout layout, std::vector<ClockOffset> clocks, double start)
    : file_(path), layout_(std::move(layout)), clocks_(std::move(clocks)), start_(start) {
  TRIDENT_CHECK(static_cast<int>(clocks_.size()) == layout_.grid.world_size(), "{} clocks of {} ranks", clocks_.size(),
                layout_.grid.world_size());
  double bound = 0;
  for (const ClockOffset& clock : clocks_) bound = std::max(bound, clock.bound);
  file_.append(
      fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"clock_error_us\":{:.3f}}},\"traceEvents\":[\n", 1e6 * bound));
  describe_ranks();
}

void TraceWriter::event(std::string_view fields) {
  file_.append(first_ ? "{" : ",\n{");
  file_.append(fields);
  file_.append("}");
  first_ = false;
}

// Ranks of one pipeline stand below each other.
void TraceWriter::describe_ranks() {
  const ParallelDegrees& d = layout_.grid.degrees();
  for (int rank = 0; rank < layout_.grid.world_size(); ++rank) {
    const GridCoordinates c = layout_.grid.coordinates(rank);
    const auto metadata = [&](std::string_view what, int tid, const std::string& argument) {
      event(fmt::format("\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":0,\"args\":{{{}}}", what, rank, tid, argument));
    };
    metadata("process_name", 0, fmt::format("\"name\":\"rank {}: dp {}, pp {}, tp {}\"", rank, c.data, c.pipeline, c.tensor));
    metadata("process_sort_index", 0,
             fmt::format("\"sort_index\":{}", ((c.data * d.context + c.context) * d.tensor + c.tensor) * d.pipeline + c.pipeline));
    for (int lane = 0; lane < kNumTraceLanes; ++lane) {
      metadata("thread_name", lane, fmt::format("\"name\":\"{}\"", to_string(static_cast<TraceLane>(lane))));
      metadata("thread_sort_index", lane, fmt::format("\"sort_index\":{}", lane));
    }
  }
}

void TraceWriter::add(int rank, std::span<const TraceSlice> slices) {
  for (const TraceSlice& slice : slices) add_slice(rank, slice);
}

void TraceWriter::add_slice(int rank, const TraceSlice& slice) {
  const ClockOffset& clock = at(clocks_, rank);
  const auto nanoseconds = [&](double seconds) { return std::llround(1e9 * (seconds + clock.offset - start_)); };
  const std::int64_t start = nanoseconds(slice.start), end = nanoseconds(slice.end);
  const auto write = [&](std::string_view name, std::string_view category, const std::string& arguments) {
    event(fmt::format(
        "\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"{}\",\"cat\":\"{}\",\"args\":{{\"step\":{}{}}}", rank,
        static_cast<int>(slice.lane), microseconds(start), microseconds(end - start), name, category, slice.step, arguments));
  };
  if (slice.instruction == TraceSlice::kStep) return write(fmt::format("step {}", slice.step), "step", "");
  if (slice.instruction == TraceSlice::kBatch) return write("batch", "data", "");

  const StepProgram& program = at(layout_.programs, layout_.grid.coordinates(rank).pipeline);
  const Instruction& instruction = program.instructions.at(static_cast<std::size_t>(slice.instruction));
  const std::string index = fmt::format(",\"instruction\":{}", slice.instruction);
  switch (slice.lane) {
    case TraceLane::kCompute:
      return write(short_name(instruction), to_string(instruction.kind),
                   fmt::format("{},\"text\":{},\"cpu_us\":{:.3f},\"waited_us\":{:.3f}", index, in_quotes(to_string(instruction)),
                               1e6 * slice.cpu, 1e6 * slice.waited));
    case TraceLane::kWaiting: return write("wait", "wait", index);
    default: break;
  }
  write(short_name(instruction), "operation", index);
  add_arrow(rank, slice, instruction);
}

// Both ends of a message compute the same number: traced step, micro-batch, virtual stage of the sender, kind, and place in the
// pipeline's ranks.
void TraceWriter::add_arrow(int rank, const TraceSlice& slice, const Instruction& i) {
  const bool sends = is_send_lane(slice.lane), ties = i.kind == InstructionKind::kTieExchange;
  if (!sends && !is_receive_lane(slice.lane)) return;
  const bool forward = slice.lane == TraceLane::kSendForward || slice.lane == TraceLane::kRecvForward;
  const std::int64_t kind = (ties ? 2 : 0) + (forward ? 0 : 1);
  const std::int64_t micro_batch = ties ? 0 : i.micro_batch;
  const std::int64_t sender = ties ? 0 : sends ? i.virtual_stage : forward ? i.virtual_stage - 1 : i.virtual_stage + 1;
  const ParallelDegrees& d = layout_.grid.degrees();
  const GridCoordinates c = layout_.grid.coordinates(rank);
  std::int64_t id = slice.attempt;
  id = id * layout_.num_micro_batches + micro_batch;
  id = id * layout_.num_virtual_stages + sender;
  id = id * 4 + kind;
  id = ((id * d.data + c.data) * d.context + c.context) * d.tensor + c.tensor;
  const double offset = at(clocks_, rank).offset - start_;
  const std::int64_t start = std::llround(1e9 * (slice.start + offset)), end = std::llround(1e9 * (slice.end + offset));
  // Inside its slice: an arrow's end belongs to the slice around its time, and a slice does not hold its own end.
  event(fmt::format("\"ph\":\"{}\",{}\"pid\":{},\"tid\":{},\"ts\":{},\"name\":\"message\",\"cat\":\"message\",\"id\":{}",
                    sends ? "s" : "f", sends ? "" : "\"bp\":\"e\",", rank, static_cast<int>(slice.lane),
                    microseconds(sends ? start : std::max(start, end - 1)), id));
}

void TraceWriter::finish() {
  file_.append("\n]}\n");
  file_.commit();
}

}  // namespace trident
