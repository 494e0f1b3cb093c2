#include "train/gather_bytes.h"

#include <algorithm>
#include <cstdint>

namespace trident {
namespace {

constexpr std::int64_t kPieceBytes = 4096;  // larger operands would have to lie in memory that peers reach

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
  auto count = static_cast<std::int64_t>(mine.size());
  if (world.rank() != 0) {
    world.send(stream, TensorView(&count, DType::kI64, {1}), 0);
    stream.synchronize();
    in_pieces(count, kPieceBytes, [&](std::int64_t first, std::int64_t bytes) {
      world.send(stream, ConstTensorView(mine.data() + first, DType::kU8, {bytes}), 0);
      stream.synchronize();
    });
    return;
  }
  take(0, mine);
  std::vector<std::byte> theirs;
  for (int rank = 1; rank < world.size(); ++rank) {
    world.recv(stream, TensorView(&count, DType::kI64, {1}), rank);
    stream.synchronize();
    theirs.resize(static_cast<std::size_t>(count));
    in_pieces(count, kPieceBytes, [&](std::int64_t first, std::int64_t bytes) {
      world.recv(stream, TensorView(theirs.data() + first, DType::kU8, {bytes}), rank);
      stream.synchronize();
    });
    take(rank, theirs);
  }
}

}  // namespace trident
