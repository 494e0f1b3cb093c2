#include "train/run/between_steps.h"

#include <cstdint>

#include "train/run/gather_times.h"

namespace trident {

StopVote agree_to_stop(Communicator& world, Stream& stream, const StopVote& mine) {
  std::int32_t asked[3] = {mine.signal, mine.time_is_up ? 1 : 0, mine.busy ? 1 : 0};
  world.all_reduce(stream, TensorView(asked, DType::kI32, {3}), ReduceOp::kMax);
  stream.synchronize();
  return {asked[0], asked[1] != 0, asked[2] != 0};
}

LogTotals totals_for_log(Communicator& world, Stream& stream, const LoggedCounts& mine, const StepTimes& since_log) {
  LogTotals totals;
  totals.counts = mine;
  world.all_reduce(stream, TensorView(totals.counts.bytes.data(), DType::kF64, {kNumAxes}), ReduceOp::kSum);
  std::int64_t largest[3] = {mine.planned_bytes, mine.granted_bytes, mine.save_nanoseconds};
  world.all_reduce(stream, TensorView(largest, DType::kI64, {3}), ReduceOp::kMax);
  stream.synchronize();
  totals.counts.planned_bytes = largest[0];
  totals.counts.granted_bytes = largest[1];
  totals.counts.save_nanoseconds = largest[2];
  totals.busy = busy_seconds(since_log, world, stream);
  totals.times = sum_over_ranks(since_log, world, stream).mean();
  return totals;
}

}  // namespace trident
