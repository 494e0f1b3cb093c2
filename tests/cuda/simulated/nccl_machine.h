// The inside of the simulated NCCL.
//
// A call becomes an operation; the operations of a group (or one alone) become a launch on their stream: an item that begins them
// and one that waits until they are done. An operation has a meeting with its peers' and moves data when the last of them has
// begun.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/simulated/nccl.h"
#include "tests/cuda/simulated/runtime.h"

namespace trident::simulated {

constexpr std::int64_t kNotRegistered = -1;

enum class NcclCall : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kRecv };

struct NcclOperation {
  NcclCall call = NcclCall::kAllReduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // as the caller gave it
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = -1;  // or peer
  int rank = -1;  // whose it is
  int device = 0;
  bool done = false;
  std::array<std::int64_t, 2> offsets{};  // of in and out within registered memory; kNotRegistered

  bool agrees_with(const NcclOperation& other) const {
    const bool messages =
        (call == NcclCall::kSend && other.call == NcclCall::kRecv) || (call == NcclCall::kRecv && other.call == NcclCall::kSend);
    return (messages || (call == other.call && root == other.root && op == other.op)) && count == other.count && type == other.type;
  }
};

// Operations that belong together: one of every rank, or a send and a receive.
struct Meeting {
  std::vector<std::shared_ptr<NcclOperation>> begun;
};

struct Launch {
  std::vector<std::pair<std::shared_ptr<NcclOperation>, std::shared_ptr<Meeting>>> operations;
  bool hangs = false;
  bool done() const {
    return !hangs && std::all_of(operations.begin(), operations.end(), [](const auto& o) { return o.first->done; });
  }
};

// The ranks that joined with one id.
struct Clique {
  int ranks = 0;
  std::vector<ncclComm*> members;  // by rank; null: not here yet, or gone
  int joined = 0, finalized = 0;
  ncclResult_t refused = ncclSuccess;
  std::map<std::uint64_t, std::shared_ptr<Meeting>> collectives;                                    // by number
  std::map<std::array<std::uint64_t, 3>, std::shared_ptr<Meeting>> messages;  // by sender, receiver, number
};

}  // namespace trident::simulated

struct ncclComm {
  std::shared_ptr<trident::simulated::Clique> clique;
  int rank = 0, device = 0;
  bool aborted = false, finalized = false;
  ncclResult_t failure = ncclSuccess;
  std::string last_error;
  std::uint64_t collectives = 0;
  std::map<int, std::uint64_t> sent, received;
  std::uint64_t launched = 0, ended = 0;                            // launches
  std::vector<std::weak_ptr<trident::simulated::Launch>> queued;    // that are on streams, and some that were
  std::deque<std::pair<cudaStream_t, std::shared_ptr<trident::simulated::Launch>>> held;  // that a call returned before enqueueing
  int asked = 0;                                                    // since then
};

namespace trident::simulated {

struct Registration {
  ncclComm* comm = nullptr;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct Library {
  NcclSettings settings;
  std::map<std::uint64_t, std::shared_ptr<Clique>> cliques;  // by id
  std::set<ncclComm*> living;
  std::vector<NcclJoined> joined;
  std::vector<std::shared_ptr<ncclComm>> comms;  // also those that are gone: queued work may know them
  std::vector<std::string> complaints;
  std::map<int, int> failures;  // of the next operation, by device
  std::set<int> hangs;
  std::map<std::uintptr_t, Registration> registered;  // by handle
  std::uintptr_t next_handle = 1;
  std::uint64_t next_id = 1;
  std::uint64_t calls = 0;
};

// Guarded by Call's lock.
Library& library();

struct Group {
  int depth = 0;
  std::vector<std::pair<ncclComm*, cudaStream_t>> order;  // of the launches
  std::map<ncclComm*, std::shared_ptr<Launch>> launches;
  std::vector<std::shared_ptr<ncclComm>> aborted;
  ncclResult_t error = ncclSuccess;
};
// The state belongs to this thread.
Group& open_group();

void complain(const std::string& what);
ncclResult_t state_of(const ncclComm& comm);
void enqueue_launch(ncclComm& comm, cudaStream_t stream, std::shared_ptr<Launch> launch);
// Returns what the call that ends a launch returns: it may not have done anything yet.
ncclResult_t issue(ncclComm& comm, cudaStream_t stream, std::shared_ptr<Launch> launch);
// Waits until nothing of these is on a stream.
void wait_for_aborted(const std::vector<std::shared_ptr<ncclComm>>& comms);
std::shared_ptr<ncclComm> shared(ncclComm* comm);
// A call on `comm` outside of or within a group.
ncclResult_t call(const char* name, ncclComm* comm, cudaStream_t stream, NcclOperation operation);

}  // namespace trident::simulated
