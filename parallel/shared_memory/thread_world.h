// Ranks as threads of one process.
//
// ThreadWorld owns what the ranks share (doorbells, control blocks, the failure flag); each rank thread makes its own world
// communicator from it and splits that along the axes. The algorithms live in shared_memory_communicator and only need memory
// that peers can read, so that ranks in processes of one node can use them from a shared segment.
#pragma once

#include <functional>
#include <memory>

#include "device/host/cpu_stream.h"
#include "parallel/communicator/communicator.h"

namespace trident {

class ThreadWorld {
 public:
  explicit ThreadWorld(int world_size, double timeout_seconds = 600.0);
  ~ThreadWorld();

  int size() const;
  // The doorbell that wakes `rank`; give it to that rank's CpuDevice.
  Doorbell& doorbell(int rank);
  // The world communicator of `rank`. Called once by that rank's thread; `progress` is the rank's (its device's) and outlives it.
  std::unique_ptr<Communicator> communicator(int rank, Progress& progress);
  // Marks the world failed: every rank's pending and later operations throw CommunicationError("rank R failed: why").
  void fail(int rank, const std::string& why);

 private:
  class Shared;
  std::unique_ptr<Shared> shared_;
};

// Runs `body(rank)` on world.size() threads and joins them. Memory that a rank gives to queue streams must outlive its
// communicators (peers read and write it until the operation is complete). A rank that throws makes the others fail with a
// CommunicationError; afterwards the first original exception (lowest rank that did not merely report a peer's failure) is
// rethrown. A rank that gets no thread is a CommunicationError that names the limit.
void run_thread_ranks(ThreadWorld& world, const std::function<void(int rank)>& body);

}  // namespace trident
