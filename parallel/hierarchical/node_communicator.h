// Communicators of ranks on several nodes: shared memory inside a node, messages between nodes.
//
// A group whose ranks share a node is a SharedMemoryCommunicator (the bits of thread ranks), a group without two ranks on one node
// a MessageCommunicator; any other is hierarchical: its ranks reduce inside their node first, and what crosses nodes crosses once
// per pair of nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/host/cpu_stream.h"
#include "parallel/communicator/communicator.h"
#include "parallel/shared_memory/shared_world.h"
#include "parallel/communicator/message_options.h"
#include "parallel/transport/wire.h"

namespace trident {

// Where a rank is and what it shares with others. Everything referred to outlives the world communicator and all its splits.
struct NodeSite {
  int rank = 0;            // in the world; what messages to users name
  std::vector<int> nodes;  // of every global rank
  SharedWorld* node = nullptr;  // of this rank's node; its rank i is the i-th global rank of the node
  Wire* wire = nullptr;         // null only if all ranks share one node
  // Zero-filled memory that the ranks of this node can reach (ProcessWorld::allocate); only groups with unequally many ranks per
  // node take some, when they are split off.
  std::function<Buffer(std::int64_t bytes, const std::string& name)> allocate;
};

// The world communicator of the rank; once per rank, by its thread. Collective and host-synchronous if there are several nodes.
// Sets `progress`'s idle hook (failures of the node's world, its time-out) and, where there are several nodes, how long the rank
// sleeps between looks at the wire.
std::unique_ptr<Communicator> make_node_world(const NodeSite& place, Progress& progress, const MessageOptions& options = {});

}  // namespace trident
