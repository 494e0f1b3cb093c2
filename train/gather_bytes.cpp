#include "train/gather_bytes.h"

#include <algorithm>
#include <cstdint>

namespace trident {
namespace {

constexpr std::int64_t kPieceBytes = 4096;  // larger operands, and messages, would have to lie in memory that peers reach

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

void gather_bytes(Communicator& world, Stream& stream, std::span<const std::byte> mine,
                  const std::function<void(int rank, std::span<const std::byte>)>& take) {
  std::vector<std::byte> theirs;
  if (world.rank() == 0) take(0, mine);
  for (int rank = 1; rank < world.size(); ++rank) {
    auto count = static_cast<std::int64_t>(mine.size());
    world.broadcast(stream, TensorView(&count, DType::kI64, {1}), rank);
    stream.synchronize();
    theirs.assign(static_cast<std::size_t>(count), std::byte{0});
    if (world.rank() == rank) std::copy(mine.begin(), mine.end(), theirs.begin());
    in_pieces(count, kPieceBytes, [&](std::int64_t first, std::int64_t bytes) {
      world.broadcast(stream, TensorView(theirs.data() + first, DType::kU8, {bytes}), rank);
      stream.synchronize();
    });
    if (world.rank() == 0) take(rank, theirs);
  }
}

}  // namespace trident
