#include "train/run/between_steps.h"

#include <bit>
#include <cstdint>

namespace trident {

StepTimes sum_over_ranks(const StepTimes& mine, Communicator& world, Stream& stream) {
  constexpr std::int64_t count = sizeof(StepTimes) / sizeof(double);
  static_assert(sizeof(StepTimes) == (3 * kNumStepParts + kNumWaitedFor + 2) * sizeof(double) + sizeof(StepCauses));
  auto values = std::bit_cast<std::array<double, static_cast<std::size_t>(count)>>(mine);
  world.all_reduce(stream, TensorView(values.data(), DType::kF64, {count}), ReduceOp::kSum);
  stream.synchronize();
  return std::bit_cast<StepTimes>(values);
}

Extremes busy_seconds(const StepTimes& mine, Communicator& world, Stream& stream) {
  const StepTimes mean = mine.mean();
  return extremes_of(world, stream, mean.step - mean.waiting());
}

std::array<double, kNumWaitedFor> waited_for(ParallelContext& context) {
  using D = Direction;
  double messages = 0;
  for (Stream* stream : {&context.send_stream(D::kForward), &context.send_stream(D::kBackward), &context.recv_stream(D::kForward),
                         &context.recv_stream(D::kBackward)}) {
    messages += stream->waited_seconds();
  }
  return {context.compute_stream().waited_seconds(), messages,
          context.reduce_stream().waited_seconds() + context.gather_stream().waited_seconds()};
}

StopVote agree_to_stop(Communicator& world, Stream& stream, const StopVote& mine) {
  std::int32_t asked[3] = {mine.signal, mine.time_is_up ? 1 : 0, mine.busy ? 1 : 0};
  world.all_reduce(stream, TensorView(asked, DType::kI32, {3}), ReduceOp::kMax);
  stream.synchronize();
  return {asked[0], asked[1] != 0, asked[2] != 0};
}

LogTotals totals_for_log(Communicator& world, Stream& stream, const LogTotals& mine) {
  LogTotals totals = mine;
  world.all_reduce(stream, TensorView(totals.bytes.data(), DType::kF64, {kNumAxes}), ReduceOp::kSum);
  std::int64_t largest[3] = {mine.planned_bytes, mine.granted_bytes, mine.save_nanoseconds};
  world.all_reduce(stream, TensorView(largest, DType::kI64, {3}), ReduceOp::kMax);
  stream.synchronize();
  totals.planned_bytes = largest[0];
  totals.granted_bytes = largest[1];
  totals.save_nanoseconds = largest[2];
  totals.busy = busy_seconds(mine.times, world, stream);
  totals.times = sum_over_ranks(mine.times, world, stream).mean();
  return totals;
}

}  // namespace trident
