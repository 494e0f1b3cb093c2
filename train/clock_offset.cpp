#include "train/clock_offset.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "train/gather_bytes.h"

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
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::vector<ClockOffset> estimate_clock_offsets(Communicator& world, Device& device, std::uint64_t identity, const std::function<double()>& clock) {
  Stream& stream = device.host_stream();
  const Buffer memory = device.allocate_host_shared(sizeof(double), "clock ping");  // messages go through memory that peers reach
  double& token = *reinterpret_cast<double*>(memory.data());
  auto first = static_cast<std::int64_t>(identity);
  world.broadcast(stream, TensorView(&first, DType::kI64, {1}), 0);
  stream.synchronize();
  const bool shares = first == static_cast<std::int64_t>(identity);
  const std::vector<double> sharing = gather_values(world, stream, shares ? 1 : 0);
  if (world.rank() != 0) {
    for (int i = 0; i < kPings && !shares; ++i) {
      exchange(world, stream, token, 0, false);
      token = clock();
      exchange(world, stream, token, 0, true);
    }
    return {};
  }
  std::vector<ClockOffset> clocks(sharing.size());
  for (int rank = 1; rank < world.size(); ++rank) {
    ClockOffset& best = clocks[static_cast<std::size_t>(rank)];
    if (sharing[static_cast<std::size_t>(rank)] != 0) continue;
    for (int i = 0; i < kPings; ++i) {
      const ClockOffset one = ping(world, stream, token, rank, clock);
      if (i == 0 || one.bound < best.bound) best = one;
    }
  }
  return clocks;
}

}  // namespace trident
