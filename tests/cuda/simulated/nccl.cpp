// The functions of NCCL that communicators use, for ranks that are threads.
//
// A call becomes an operation; the operations of a group (or one alone) become a launch on their stream: an item that begins them
// and one that waits until they are done. An operation has a meeting with its peers' and moves data when the last of them has
// begun.
#include "tests/cuda/simulated/nccl.h"

#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "tests/cuda/simulated/nccl_sums.h"
#include "tests/cuda/simulated/runtime.h"

namespace trident::simulated {

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

using namespace trident::simulated;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  bool aborted = false, finalized = false;
  ncclResult_t failure = ncclSuccess;
  std::string last_error;
  std::uint64_t collectives = 0;
  std::map<int, std::uint64_t> sent, received;
  std::uint64_t launched = 0, ended = 0;                            // launches
  std::deque<std::pair<cudaStream_t, std::shared_ptr<Launch>>> held;  // that a call returned before enqueueing
  int asked = 0;                                                    // since then
};

namespace trident::simulated {

namespace {

struct Library {
  NcclSettings settings;
  std::map<std::uint64_t, std::shared_ptr<Clique>> cliques;  // by id
  std::set<ncclComm*> living;
  std::vector<std::shared_ptr<ncclComm>> comms;  // also those that are gone: queued work may know them
  std::vector<std::string> complaints;
  std::map<int, int> failures;  // of the next operation, by device
  std::set<int> hangs;
  std::map<std::uintptr_t, ncclComm*> registered;  // by handle
  std::uintptr_t next_handle = 1;
  std::uint64_t next_id = 1;
  std::uint64_t calls = 0;
};

Library& library() {
  static Library library;  // guarded by Call's lock
  return library;
}

struct Group {
  int depth = 0;
  std::vector<std::pair<ncclComm*, cudaStream_t>> order;  // of the launches
  std::map<ncclComm*, std::shared_ptr<Launch>> launches;
  ncclResult_t error = ncclSuccess;
};
thread_local Group group;

void complain(const std::string& what) { library().complaints.push_back(what); }

std::size_t in_bytes(const NcclOperation& o, int ranks) {
  return o.count * nccl_type_bytes(o.type) * (o.call == NcclCall::kReduceScatter ? static_cast<std::size_t>(ranks) : 1);
}
std::size_t out_bytes(const NcclOperation& o, int ranks) {
  return o.count * nccl_type_bytes(o.type) * (o.call == NcclCall::kAllGather ? static_cast<std::size_t>(ranks) : 1);
}

void transfer(const std::vector<std::shared_ptr<NcclOperation>>& all) {
  const NcclOperation& first = *all.front();
  const std::size_t bytes = first.count * nccl_type_bytes(first.type);
  std::vector<const std::byte*> sources;
  for (const auto& o : all) sources.push_back(o->in);
  std::vector<std::vector<std::byte>> results(all.size());  // first all are computed, then written: operands may be in place
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::vector<std::byte>& result = results[r];
    switch (first.call) {
      case NcclCall::kAllReduce:
        result.resize(bytes);
        nccl_reduce(first.type, first.op, result.data(), sources, 0, first.count);
        break;
      case NcclCall::kReduceScatter:
        result.resize(bytes);
        nccl_reduce(first.type, first.op, result.data(), sources, r * first.count, first.count);
        break;
      case NcclCall::kAllGather:
        for (const std::byte* source : sources) result.insert(result.end(), source, source + bytes);
        break;
      case NcclCall::kBroadcast:
        result.assign(sources[static_cast<std::size_t>(first.root)], sources[static_cast<std::size_t>(first.root)] + bytes);
        break;
      case NcclCall::kSend: case NcclCall::kRecv: break;
    }
  }
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!results[r].empty()) std::memcpy(all[r]->out, results[r].data(), results[r].size());
}

void begin(const std::shared_ptr<NcclOperation>& operation, Meeting& meeting, int ranks) {
  const bool message = operation->call == NcclCall::kSend || operation->call == NcclCall::kRecv;
  const bool reads = operation->call != NcclCall::kRecv, writes = operation->call != NcclCall::kSend;
  if ((reads && !is_device_memory(operation->in, in_bytes(*operation, ranks))) ||
      (writes && !is_device_memory(operation->out, out_bytes(*operation, ranks)))) {
    complain("an operand is not in device memory");
    throw DeviceFailure{cudaErrorIllegalAddress};
  }
  meeting.begun.push_back(operation);
  for (const auto& other : meeting.begun) {
    if (other->agrees_with(*operation) || other == operation) continue;
    complain("ranks " + std::to_string(operation->rank) + " and " + std::to_string(other->rank) + " called different things");
    return;  // and all hang
  }
  if (meeting.begun.size() < (message ? 2u : static_cast<std::size_t>(ranks))) return;
  for (const auto& other : meeting.begun)
    if (!other->agrees_with(*operation) && other != operation) return;
  std::sort(meeting.begun.begin(), meeting.begun.end(), [](const auto& a, const auto& b) { return a->rank < b->rank; });
  if (message) {
    const auto sends =
        std::find_if(meeting.begun.begin(), meeting.begun.end(), [](const auto& o) { return o->call == NcclCall::kSend; });
    const auto& receiver = meeting.begun[sends == meeting.begun.begin() ? 1 : 0];
    std::memcpy(receiver->out, (*sends)->in, in_bytes(**sends, ranks));
  } else {
    transfer(meeting.begun);
  }
  for (const auto& other : meeting.begun) other->done = true;
}

std::shared_ptr<ncclComm> shared(ncclComm* comm) {
  for (const auto& known : library().comms)
    if (known.get() == comm) return known;
  return nullptr;
}

void enqueue_launch(ncclComm& comm, cudaStream_t stream, std::shared_ptr<Launch> launch) {
  const std::shared_ptr<ncclComm> self = shared(&comm);
  const std::uint64_t number = comm.launched++;
  enqueue(stream, "NCCL begins", [self, launch, number] {
    if (self->aborted) return;
    if (self->ended != number) complain("two operations of one communicator at once");
    Library& lib = library();
    if (const auto failure = lib.failures.extract(self->device)) {
      self->failure = static_cast<ncclResult_t>(failure.mapped());
      self->last_error = "injected";
      launch->hangs = true;
    }
    if (lib.hangs.erase(self->device) != 0) launch->hangs = true;
    if (launch->hangs) return;
    for (const auto& [operation, meeting] : launch->operations) begin(operation, *meeting, self->clique->ranks);
  });
  enqueue(stream, "NCCL ends", [self, launch] { return self->aborted || launch->done(); }, [self] { ++self->ended; });
}

// What the call that ends a launch returns: it may not have done anything yet.
ncclResult_t issue(ncclComm& comm, cudaStream_t stream, std::shared_ptr<Launch> launch) {
  if (comm.held.empty() && ++library().calls % 3 != 0) {
    enqueue_launch(comm, stream, std::move(launch));
    return ncclSuccess;
  }
  comm.held.emplace_back(stream, std::move(launch));
  comm.asked = 0;
  return ncclInProgress;
}

std::shared_ptr<Meeting> meeting_of(ncclComm& comm, const NcclOperation& operation) {
  const auto find = [](auto& meetings, const auto& key) {
    auto& meeting = meetings[key];
    if (meeting == nullptr) meeting = std::make_shared<Meeting>();
    return meeting;
  };
  const auto me = static_cast<std::uint64_t>(comm.rank), peer = static_cast<std::uint64_t>(std::max(operation.root, 0));
  if (operation.call == NcclCall::kSend) return find(comm.clique->messages, std::array{me, peer, comm.sent[operation.root]++});
  if (operation.call == NcclCall::kRecv) return find(comm.clique->messages, std::array{peer, me, comm.received[operation.root]++});
  return find(comm.clique->collectives, comm.collectives++);
}

ncclResult_t state_of(const ncclComm& comm) {
  if (comm.failure != ncclSuccess) return comm.failure;
  if (comm.clique->joined < comm.clique->ranks) return ncclInProgress;
  if (comm.clique->refused != ncclSuccess) return comm.clique->refused;
  if (!comm.held.empty()) return ncclInProgress;
  if (comm.finalized && (comm.ended < comm.launched || comm.clique->finalized < comm.clique->ranks)) return ncclInProgress;
  return ncclSuccess;
}

// A call on `comm` outside of or within a group.
ncclResult_t call(const char* name, ncclComm* comm, cudaStream_t stream, NcclOperation operation) {
  const Call lock;
  const auto refuse = [&](ncclResult_t result, const std::string& why) {
    complain(std::string(name) + ": " + why);
    if (group.depth > 0) group.error = result;
    return result;
  };
  if (const auto injected = injected_failure(name)) {
    if (group.depth > 0) group.error = static_cast<ncclResult_t>(*injected);
    return static_cast<ncclResult_t>(*injected);
  }
  if (library().living.count(comm) == 0) return refuse(ncclInvalidArgument, "no such communicator");
  if (comm->finalized) return refuse(ncclInvalidUsage, "the communicator is finalized");
  if (const ncclResult_t state = state_of(*comm); state != ncclSuccess)
    return refuse(ncclInvalidUsage, "the communicator is busy or failed");
  if (stream_device(stream) != comm->device) return refuse(ncclInvalidUsage, "the stream is not of the communicator's device");
  if (operation.root >= comm->clique->ranks || nccl_type_bytes(operation.type) == 0)
    return refuse(ncclInvalidArgument, "arguments");
  if (operation.call == NcclCall::kReduceScatter &&
      operation.out != operation.in + static_cast<std::size_t>(comm->rank) * operation.count * nccl_type_bytes(operation.type) &&
      operation.out < operation.in + in_bytes(operation, comm->clique->ranks) &&
      operation.in < operation.out + out_bytes(operation, comm->clique->ranks))
    return refuse(ncclInvalidArgument, "overlapping operands");
  operation.rank = comm->rank;
  operation.device = comm->device;
  auto shared_operation = std::make_shared<NcclOperation>(operation);
  const std::shared_ptr<Meeting> meeting = meeting_of(*comm, operation);
  if (group.depth == 0) {
    auto launch = std::make_shared<Launch>();
    launch->operations.emplace_back(shared_operation, meeting);
    return issue(*comm, stream, launch);
  }
  std::shared_ptr<Launch>& launch = group.launches[comm];
  if (launch == nullptr) {
    launch = std::make_shared<Launch>();
    group.order.emplace_back(comm, stream);
  }
  launch->operations.emplace_back(shared_operation, meeting);
  return ncclSuccess;
}

}  // namespace

void configure_nccl(const NcclSettings& settings) {
  const Call lock;
  library().settings = settings;
}

void fail_nccl_on(int device, int result) {
  const Call lock;
  library().failures[device] = result;
}

void hang_nccl_on(int device) {
  const Call lock;
  library().hangs.insert(device);
}

std::vector<std::string> nccl_complaints() {
  const Call lock;
  return library().complaints;
}

int nccl_communicators() {
  const Call lock;
  return static_cast<int>(library().living.size());
}

int nccl_registrations() {
  const Call lock;
  return static_cast<int>(library().registered.size());
}

void reset_nccl() {
  const Call lock;
  library() = {};
}

}  // namespace trident::simulated

ncclResult_t ncclGetVersion(int* version) {
  const Call lock;
  const NcclSettings& s = library().settings;
  const bool last = current_device() == settings().devices - 1;
  *version = last && s.version_of_last_device != 0 ? s.version_of_last_device : s.version;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr std::array kTexts = {"no error",
                                 "unhandled cuda error",
                                 "unhandled system error",
                                 "internal error",
                                 "invalid argument",
                                 "invalid usage",
                                 "remote process exited or there was a network error",
                                 "operation in progress"};
  return result >= 0 && static_cast<std::size_t>(result) < kTexts.size() ? kTexts[static_cast<std::size_t>(result)]
                                                                         : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  const Call lock;
  return library().living.count(comm) != 0 ? comm->last_error.c_str() : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Call lock;
  if (const auto injected = injected_failure("ncclGetUniqueId")) return static_cast<ncclResult_t>(*injected);
  std::memset(id, 0, sizeof(*id));
  const std::uint64_t number = library().next_id++;
  std::memcpy(id, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const Call lock;
  *comm = nullptr;
  if (const auto injected = injected_failure("ncclCommInitRankConfig")) return static_cast<ncclResult_t>(*injected);
  if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0 || rank < 0 || rank >= ranks) {
    complain("ncclCommInitRankConfig: arguments, or a blocking communicator");
    return ncclInvalidArgument;
  }
  std::uint64_t number = 0;
  std::memcpy(&number, &id, sizeof(number));
  if (number == 0 || number >= library().next_id) return ncclInvalidArgument;
  std::shared_ptr<Clique>& clique = library().cliques[number];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->ranks = ranks;
    clique->members.resize(static_cast<std::size_t>(ranks));
  }
  ncclComm*& member = clique->members[static_cast<std::size_t>(rank)];
  if (clique->ranks != ranks || member != nullptr) return ncclInvalidUsage;
  auto made = std::make_shared<ncclComm>();
  made->clique = clique;
  made->rank = rank;
  made->device = current_device();
  for (const ncclComm* other : clique->members)
    if (other != nullptr && other->device == made->device && !library().settings.allow_shared_devices) {
      clique->refused = ncclInvalidUsage;
      made->last_error = "Duplicate GPU detected";
    }
  member = made.get();
  ++clique->joined;
  library().comms.push_back(made);
  library().living.insert(made.get());
  *comm = made.get();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Call lock;
  if (library().living.count(comm) == 0) return ncclInvalidArgument;
  if (!comm->held.empty() && ++comm->asked > 1) {
    for (auto& [stream, launch] : comm->held) enqueue_launch(*comm, stream, launch);
    comm->held.clear();
  }
  *state = state_of(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Call lock;
  if (library().living.count(comm) == 0 || comm->finalized) return ncclInvalidArgument;
  comm->finalized = true;
  ++comm->clique->finalized;
  return state_of(*comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Call lock;
  if (library().living.erase(comm) == 0) return ncclInvalidArgument;
  if (!comm->finalized || state_of(*comm) != ncclSuccess)
    complain("ncclCommDestroy of a communicator that is not finalized and at rest");
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Call lock;
  if (library().living.erase(comm) == 0) return ncclInvalidArgument;
  comm->aborted = true;
  comm->held.clear();
  std::erase_if(library().registered, [&](const auto& r) { return r.second == comm; });
  notify();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Call lock;
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  ncclResult_t result = ncclSuccess;
  for (const auto& [comm, stream] : ended.order)
    if (const ncclResult_t one = issue(*comm, stream, ended.launches.at(comm)); one != ncclSuccess) result = one;
  return result;
}

namespace {

NcclOperation operation(NcclCall what, const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op = ncclSum,
                        int root = -1) {
  NcclOperation o;
  o.call = what;
  o.in = static_cast<const std::byte*>(in);
  o.out = static_cast<std::byte*>(out);
  o.count = count;
  o.type = type;
  o.op = op;
  o.root = root;
  return o;
}

}  // namespace

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return call("ncclAllReduce", comm, stream, operation(NcclCall::kAllReduce, in, out, count, type, op));
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return call("ncclReduceScatter", comm, stream, operation(NcclCall::kReduceScatter, in, out, count, type, op));
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllGather", comm, stream, operation(NcclCall::kAllGather, in, out, count, type));
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return call("ncclBroadcast", comm, stream, operation(NcclCall::kBroadcast, in, out, count, type, ncclSum, root));
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclSend", comm, stream, operation(NcclCall::kSend, in, nullptr, count, type, ncclSum, peer));
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclRecv", comm, stream, operation(NcclCall::kRecv, nullptr, out, count, type, ncclSum, peer));
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  const Call lock;
  if (const auto injected = injected_failure("ncclMemAlloc")) return static_cast<ncclResult_t>(*injected);
  *data = allocate_device_memory(current_device(), bytes);
  return *data != nullptr ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  const Call lock;
  return free_device_memory(data) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  const Call lock;
  if (library().living.count(comm) == 0 || !is_device_memory(data, bytes)) return ncclInvalidArgument;
  *handle = reinterpret_cast<void*>(library().next_handle);
  library().registered.emplace(library().next_handle++, comm);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const Call lock;
  const auto found = library().registered.find(reinterpret_cast<std::uintptr_t>(handle));
  if (library().living.count(comm) == 0 || found == library().registered.end() || found->second != comm) return ncclInvalidArgument;
  library().registered.erase(found);
  return ncclSuccess;
}
