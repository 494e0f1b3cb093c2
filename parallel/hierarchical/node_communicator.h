// Communicators of ranks on several nodes: shared memory inside a node, messages between nodes.
//
// A group whose ranks share a node is a SharedMemoryCommunicator (the bits of thread ranks), a group without two ranks on one node
// a MessageCommunicator; any other is hierarchical: its ranks reduce inside their node first, and what crosses nodes crosses once
// per pair of nodes.
#pragma once

#include <memory>

#include "parallel/communicator/communicator.h"
#include "parallel/transport/wire_group.h"

namespace trident {

// The world communicator of rank `rank`; once per rank, by its thread. Collective and host-synchronous if there are several nodes.
// `endpoint` has neither local_rank nor next_channel yet, and a wire unless all ranks share one node; rank i of its SharedWorld is
// the i-th global rank of the node. What it refers to outlives the communicator and all its splits. Sets the idle hook of its
// Progress (failures of the node's world, its time-out) and, where there are several nodes, how long the rank sleeps between looks
// at the wire.
std::unique_ptr<Communicator> make_node_world(int rank, WireEndpoint endpoint);

}  // namespace trident
