#include "train/run/gather_times.h"

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

}  // namespace trident
