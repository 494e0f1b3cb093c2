#include "train/gather_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace trident {
namespace {

constexpr std::int64_t kPieceBytes = 4096;  // larger operands of collectives would have to lie in memory that peers reach
constexpr std::int64_t kMessageBytes = 256 << 10;

// Calls visit(first, count) for consecutive pieces of `total`.
void in_pieces(std::int64_t total, std::int64_t piece, const std::function<void(std::int64_t first, std::int64_t count)>& visit) {
  for (std::int64_t first = 0; first < total; first += piece) visit(first, std::min(piece, total - first));
}

}  // namespace

std::vector<double> gather_values(Communicator& world, Stream& stream, double mine) {
  std::vector<double> all(static_cast<std::size_t>(world.size()), 0.0);
  all[static_cast<std::size_t>(world.rank())] = mine;
  in_pieces(world.size(), kPieceBytes / static_cast<std::int64_t>(sizeof(double)), [&](std::int64_t first, std::int64_t count) {
    world.all_reduce(stream, TensorView(all.data() + first, DType::kF64, {count}), ReduceOp::kSum);
    stream.synchronize();
  });
  return all;
}

void gather_bytes(Communicator& world, Device& device, std::span<const std::byte> mine,
                  const std::function<void(int rank, std::span<const std::byte>)>& take) {
  Stream& stream = device.host_stream();
  auto count = static_cast<std::int64_t>(mine.size());
  if (world.rank() != 0) {
    const std::int64_t piece = std::clamp<std::int64_t>(count, sizeof count, kMessageBytes);
    const Buffer staging = device.allocate_host_shared(piece, "bytes for rank 0");  // messages leave from memory that peers reach
    const auto send = [&](const void* data, std::int64_t bytes) {
      std::memcpy(staging.data(), data, static_cast<std::size_t>(bytes));
      world.send(stream, TensorView(staging.data(), DType::kU8, {bytes}), 0);
      stream.synchronize();
    };
    send(&count, sizeof count);
    in_pieces(count, kMessageBytes, [&](std::int64_t first, std::int64_t bytes) { send(mine.data() + first, bytes); });
    return;
  }
  take(0, mine);
  std::vector<std::byte> theirs;
  const auto receive = [&](void* data, std::int64_t bytes, int rank) {
    world.recv(stream, TensorView(data, DType::kU8, {bytes}), rank);
    stream.synchronize();
  };
  for (int rank = 1; rank < world.size(); ++rank) {
    receive(&count, sizeof count, rank);
    theirs.resize(static_cast<std::size_t>(count));
    in_pieces(count, kMessageBytes, [&](std::int64_t first, std::int64_t bytes) { receive(theirs.data() + first, bytes, rank); });
    take(rank, theirs);
  }
}

}  // namespace trident
