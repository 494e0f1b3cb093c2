// Ranks as processes, on one node or several: what a rank knows of the job before it has a device, and its world communicator.
//
// Ranks of a node share one segment of memory, in which Device::allocate() of each of them takes its buffers, so that peers reduce
// and copy in place with the algorithms and the bits of thread ranks. Ranks of different nodes exchange messages. Implementations:
// parallel/mpi, and parallel/no_mpi, which refuses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/host/cpu_stream.h"
#include "parallel/communicator/call_mark.h"
#include "parallel/communicator/communicator.h"
#include "parallel/communicator/rendezvous.h"
#include "parallel/transport/wire.h"

namespace trident {

// As a Rendezvous: of all ranks, at start-up.
class ProcessWorld : public Rendezvous {
 public:
  // "Open MPI v4.1.4: 8 ranks on 2 nodes, shared memory in huge pages".
  virtual std::string describe() const = 0;
  // The node of every global rank, nodes numbered by their lowest rank from 0.
  virtual const std::vector<int>& nodes() const = 0;
  virtual int local_rank() const = 0;  // among the ranks of this node, in world order
  virtual int local_size() const = 0;

  // The ranks of this node, numbered by local_rank().
  virtual Rendezvous& node() = 0;
  // Collective, host-synchronous, at start-up: every rank's text, by rank, on every rank. For what each has to know of each.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;

  // The doorbell that wakes this rank; give it to its CpuDevice.
  virtual Doorbell& doorbell() = 0;
  // Zero-filled memory of the node's segment, for CpuDeviceOptions::memory: operands there move without copies. ConfigError that
  // names `name` when the segment or the machine has no room.
  virtual Buffer allocate(std::int64_t bytes, const std::string& name) = 0;
  // The world communicator. Called once; `progress` is this rank's (its device's) and outlives it.
  virtual std::unique_ptr<Communicator> communicator(Progress& progress) = 0;

  // Messages between any two ranks, as the communicators of several nodes send them. Not closed while this object lives.
  virtual Wire& wire() = 0;

  // Marks the world failed on this node: pending and later operations of its ranks throw PeerFailure with `reason`. From any
  // thread.
  virtual void fail(const std::string& reason) = 0;
  // The call of the message library in which this rank stands, for its lifeline. Lives as long as this object.
  virtual const CallMark& calls() const = 0;
  // Payload bytes that this rank sent to other nodes so far.
  virtual std::int64_t inter_node_bytes() const = 0;
  // Collective: everybody is done. Without it the destructor ends the process's part without waiting for peers.
  virtual void finish() = 0;
  // Collective: instead of finish(), in a job that has failed and is to end well all the same, since launchers take processes that
  // leave without a word for failures. Might never return, where something else is to end the process.
  virtual void leave() = 0;
};

struct ProcessWorldOptions {
  double timeout_seconds = 600.0;  // of a wait for peers
  // Ranks r with equal r / ranks_per_node count as one node, wherever they run; 0: nodes are as the launcher placed them. For
  // tests.
  int ranks_per_node = 0;
  // Messages of this size and more travel in pieces; at most 1 GiB. Smaller for tests.
  std::int64_t piece_bytes = std::int64_t{1} << 30;
};

// Joins the job that mpirun or srun started; once in a process. A build without MPI: ConfigError.
std::unique_ptr<ProcessWorld> join_process_world(const ProcessWorldOptions& options = {});

}  // namespace trident
