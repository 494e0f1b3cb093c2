#include "train/run/clock_offset.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "core/at.h"
#include "core/fnv1a.h"

namespace trident {
namespace {

void exchange(Communicator& world, Stream& stream, double& value, int peer, bool sends) {
  const TensorView view(&value, DType::kF64, {1});
  if (sends) world.send(stream, view, peer);
  else world.recv(stream, view, peer);
  stream.synchronize();
}

// The peer read its clock somewhere between `sent` and `received`: halfway, give or take half of it.
ClockOffset ping(Communicator& world, Stream& stream, double& token, int peer, const std::function<double()>& clock) {
  const double sent = clock();
  exchange(world, stream, token, peer, true);
  exchange(world, stream, token, peer, false);
  const double received = clock();
  return {(sent + received) / 2 - token, (received - sent) / 2};
}

}  // namespace

std::uint64_t clock_identity() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(boot, text);
  std::error_code none;
  text += std::filesystem::read_symlink("/proc/self/ns/time", none).string();
  Fnv1a hash;
  hash.add(text);
  return hash.value();
}

std::vector<ClockOffset> estimate_clock_offsets(Communicator& world, Device& device, std::uint64_t identity,
                                                const std::function<double()>& clock) {
  Stream& stream = device.host_stream();
  const Buffer memory = device.allocate_host_shared(sizeof(double), "clock ping");  // messages go through memory that peers reach
  double& token = *reinterpret_cast<double*>(memory.data());
  auto mine = static_cast<std::int64_t>(identity);
  std::vector<std::int64_t> clock_of(static_cast<std::size_t>(world.size()));
  world.all_gather(stream, TensorView(clock_of.data(), DType::kI64, {world.size()}), TensorView(&mine, DType::kI64, {1}));
  stream.synchronize();
  const auto first_of = [&](std::int64_t clock) { return static_cast<int>(std::ranges::find(clock_of, clock) - clock_of.begin()); };
  if (world.rank() != 0) {
    const bool answers = first_of(mine) == world.rank();
    for (int i = 0; i < kPings && answers; ++i) {
      exchange(world, stream, token, 0, false);
      token = clock();
      exchange(world, stream, token, 0, true);
    }
    return {};
  }
  std::vector<ClockOffset> clocks(clock_of.size());
  for (int rank = 1; rank < world.size(); ++rank) {
    ClockOffset& best = at(clocks, rank);
    const int first = first_of(at(clock_of, rank));
    if (first != rank) {
      best = at(clocks, first);
      continue;
    }
    for (int i = 0; i < kPings; ++i) {
      const ClockOffset one = ping(world, stream, token, rank, clock);
      if (i == 0 || one.bound < best.bound) best = one;
    }
  }
  return clocks;
}

}  // namespace trident
