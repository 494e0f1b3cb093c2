#include "train/run/between_steps.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "parallel/communicator/packed_texts.h"

namespace trident {
namespace {

constexpr std::int64_t kMessageBytes = 256 << 10;

// Calls visit(first, count) for consecutive pieces of `total`.
void in_pieces(std::int64_t total, std::int64_t piece, const std::function<void(std::int64_t first, std::int64_t count)>& visit) {
  for (std::int64_t first = 0; first < total; first += piece) visit(first, std::min(piece, total - first));
}

}  // namespace

std::int64_t over_ranks(Communicator& world, Stream& stream, std::int64_t mine, ReduceOp op) {
  world.all_reduce(stream, TensorView(&mine, DType::kI64, {1}), op);
  return mine;
}

int first_rank(Communicator& world, Stream& stream, bool is) {
  std::int32_t distance = is ? world.size() - world.rank() : 0;  // from the end
  world.all_reduce(stream, TensorView(&distance, DType::kI32, {1}), ReduceOp::kMax);
  return distance == 0 ? -1 : world.size() - distance;
}

Extremes extremes_of(Communicator& world, Stream& stream, double mine) {
  double largest[2] = {mine, -mine}, sum = mine;
  world.all_reduce(stream, TensorView(largest, DType::kF64, {2}), ReduceOp::kMax);
  world.all_reduce(stream, TensorView(&sum, DType::kF64, {1}), ReduceOp::kSum);
  return {-largest[1], sum / world.size(), largest[0], first_rank(world, stream, mine == largest[0])};
}

std::vector<std::string> gather_texts(Communicator& world, Stream& stream, const std::string& mine) {
  std::string below = packed(mine);  // of ranks r .. r + bit - 1
  std::int64_t bytes = 0;
  const auto view = [](std::string& text) { return TensorView(text.data(), DType::kU8, {static_cast<std::int64_t>(text.size())}); };
  const TensorView count(&bytes, DType::kI64, {1});
  for (int bit = 1; bit < world.size(); bit *= 2) {
    if ((world.rank() & bit) != 0) {
      bytes = static_cast<std::int64_t>(below.size());
      world.send(stream, count, world.rank() - bit);
      world.send(stream, view(below), world.rank() - bit);
      return {};
    }
    if (world.rank() + bit >= world.size()) continue;
    world.recv(stream, count, world.rank() + bit);
    std::string theirs(static_cast<std::size_t>(bytes), '\0');
    world.recv(stream, view(theirs), world.rank() + bit);
    below += theirs;
  }
  return unpacked(below);
}

std::string broadcast_text(Communicator& world, Stream& stream, const std::string& mine, int root) {
  std::string text = world.rank() == root ? mine : std::string();
  auto bytes = static_cast<std::int64_t>(text.size());
  world.broadcast(stream, TensorView(&bytes, DType::kI64, {1}), root);
  text.resize(static_cast<std::size_t>(bytes));
  world.broadcast(stream, TensorView(text.data(), DType::kU8, {bytes}), root);
  return text;
}

void gather_bytes(Communicator& world, Device& device, std::span<const std::byte> mine,
                  const std::function<void(int rank, std::span<const std::byte>)>& take) {
  Stream& stream = device.host_stream();
  auto count = static_cast<std::int64_t>(mine.size());
  if (world.rank() != 0) {
    const std::int64_t piece = std::clamp<std::int64_t>(count, sizeof count, kMessageBytes);
    const Buffer staging = device.allocate_host_shared(piece, "bytes for rank 0");  // from where a message needs no stages
    const auto send = [&](const void* data, std::int64_t bytes) {
      std::memcpy(staging.data(), data, static_cast<std::size_t>(bytes));
      world.send(stream, TensorView(staging.data(), DType::kU8, {bytes}), 0);
    };
    send(&count, sizeof count);
    in_pieces(count, kMessageBytes, [&](std::int64_t first, std::int64_t bytes) { send(mine.data() + first, bytes); });
    return;
  }
  take(0, mine);
  std::vector<std::byte> theirs;
  const auto receive = [&](void* data, std::int64_t bytes, int rank) {
    world.recv(stream, TensorView(data, DType::kU8, {bytes}), rank);
  };
  for (int rank = 1; rank < world.size(); ++rank) {
    receive(&count, sizeof count, rank);
    theirs.resize(static_cast<std::size_t>(count));
    in_pieces(count, kMessageBytes, [&](std::int64_t first, std::int64_t bytes) { receive(theirs.data() + first, bytes, rank); });
    take(rank, theirs);
  }
}

StepTimes sum_over_ranks(const StepTimes& mine, Communicator& world, Stream& stream) {
  auto values = std::bit_cast<StepTimes::Values>(mine);
  world.all_reduce(stream, TensorView(values.data(), DType::kF64, {std::ssize(values)}), ReduceOp::kSum);
  return std::bit_cast<StepTimes>(values);
}

Extremes busy_seconds(const StepTimes& mine, Communicator& world, Stream& stream) {
  const StepTimes mean = mine.mean();
  return extremes_of(world, stream, mean.step - mean.waiting());
}

std::array<double, kNumWaitedFor> waited_for(ParallelContext& context, double statistics) {
  using D = Direction;
  double messages = 0;
  for (Stream* stream : {&context.send_stream(D::kForward), &context.send_stream(D::kBackward), &context.recv_stream(D::kForward),
                         &context.recv_stream(D::kBackward)}) {
    messages += stream->waited_seconds();
  }
  const bool share_a_stream = &context.host_stream() == &context.compute_stream();
  return {context.compute_stream().waited_seconds() - (share_a_stream ? statistics : 0), messages,
          context.reduce_stream().waited_seconds() + context.gather_stream().waited_seconds(), statistics};
}

StopVote agree_to_stop(Communicator& world, Stream& stream, const StopVote& mine) {
  std::int32_t asked[3] = {mine.signal, mine.time_is_up ? 1 : 0, mine.busy ? 1 : 0};
  world.all_reduce(stream, TensorView(asked, DType::kI32, {3}), ReduceOp::kMax);
  return {asked[0], asked[1] != 0, asked[2] != 0};
}

LogTotals totals_for_log(Communicator& world, Stream& stream, const LogTotals& mine) {
  LogTotals totals = mine;
  world.all_reduce(stream, TensorView(totals.bytes.data(), DType::kF64, {kNumAxes}), ReduceOp::kSum);
  std::int64_t largest[3] = {mine.planned_bytes, mine.granted_bytes, mine.save_nanoseconds};
  world.all_reduce(stream, TensorView(largest, DType::kI64, {3}), ReduceOp::kMax);
  totals.planned_bytes = largest[0];
  totals.granted_bytes = largest[1];
  totals.save_nanoseconds = largest[2];
  totals.busy = busy_seconds(mine.times, world, stream);
  totals.times = sum_over_ranks(mine.times, world, stream).mean();
  return totals;
}

}  // namespace trident
