// The functions of NCCL that communicators use, for ranks that are threads.
#include "tests/cuda/simulated/nccl.h"

#include <nccl.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/cuda/simulated/nccl_machine.h"

namespace trident::simulated {

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

std::vector<NcclJoined> nccl_joined() {
  const Call lock;
  return library().joined;
}

int nccl_registrations() {
  const Call lock;
  return static_cast<int>(library().registered.size());
}

bool nccl_connected(int device) {
  const Call lock;
  return std::ranges::any_of(library().living, [&](const ncclComm* comm) { return comm->device == device; });
}

void reset_nccl() {
  const Call lock;
  library() = {};
}

}  // namespace trident::simulated

using namespace trident::simulated;

ncclResult_t ncclGetVersion(int* version) {
  const LibraryCall lock;
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
  const LibraryCall lock;
  return library().living.count(comm) != 0 ? comm->last_error.c_str() : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const LibraryCall lock;
  if (const auto injected = injected_failure("ncclGetUniqueId")) return static_cast<ncclResult_t>(*injected);
  std::memset(id, 0, sizeof(*id));
  const std::uint64_t number = library().next_id++;
  std::memcpy(id, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const LibraryCall lock;
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
  library().joined.push_back({config->commName != nullptr ? config->commName : "", made->device,
                              config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs});
  *comm = made.get();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const LibraryCall lock;
  if (library().living.count(comm) == 0) return ncclInvalidArgument;
  if (!comm->held.empty() && ++comm->asked > 1) {
    for (auto& [stream, launch] : comm->held) enqueue_launch(*comm, stream, launch);
    comm->held.clear();
  }
  *state = state_of(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const LibraryCall lock;
  if (library().living.count(comm) == 0 || comm->finalized) return ncclInvalidArgument;
  for (const auto& [handle, known] : library().registered)
    if (known.comm == comm) complain("ncclCommFinalize of a communicator with registered memory");
  comm->finalized = true;
  ++comm->clique->finalized;
  return state_of(*comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const LibraryCall lock;
  if (library().living.erase(comm) == 0) return ncclInvalidArgument;
  std::erase_if(library().registered, [&](const auto& r) { return r.second.comm == comm; });
  if (!comm->finalized || state_of(*comm) != ncclSuccess)
    complain("ncclCommDestroy of a communicator that is not finalized and at rest");
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const LibraryCall lock;
  if (library().living.erase(comm) == 0) return ncclInvalidArgument;
  comm->aborted = true;
  comm->held.clear();
  std::erase_if(library().registered, [&](const auto& r) { return r.second.comm == comm; });
  notify();
  open_group().aborted.push_back(shared(comm));
  if (open_group().depth == 0) wait_for_aborted(std::exchange(open_group().aborted, {}));
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  const LibraryCall lock;
  ++open_group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const LibraryCall lock;
  if (open_group().depth == 0) return ncclInvalidUsage;
  if (--open_group().depth > 0) return ncclSuccess;
  const Group ended = std::exchange(open_group(), {});
  wait_for_aborted(ended.aborted);
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
  const LibraryCall lock;
  if (const auto injected = injected_failure("ncclMemAlloc")) return static_cast<ncclResult_t>(*injected);
  *data = allocate_device_memory(current_device(), bytes);
  return *data != nullptr ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  const LibraryCall lock;
  for (const auto& [handle, known] : library().registered)
    if (known.data == data) complain("ncclMemFree of memory that is registered");
  if (const auto injected = injected_failure("ncclMemFree")) {
    free_device_memory(data);
    return static_cast<ncclResult_t>(*injected);
  }
  return free_device_memory(data) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  const LibraryCall lock;
  *handle = nullptr;
  if (const auto injected = injected_failure("ncclCommRegister")) return static_cast<ncclResult_t>(*injected);
  if (library().living.count(comm) == 0 || !is_device_memory(data, bytes)) return ncclInvalidArgument;
  if (library().settings.passes_registration_over) return ncclSuccess;
  *handle = reinterpret_cast<void*>(library().next_handle);
  library().registered.emplace(library().next_handle++, Registration{comm, static_cast<const std::byte*>(data), bytes});
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const LibraryCall lock;
  if (const auto injected = injected_failure("ncclCommDeregister")) return static_cast<ncclResult_t>(*injected);
  const auto found = library().registered.find(reinterpret_cast<std::uintptr_t>(handle));
  if (library().living.count(comm) == 0 || found == library().registered.end() || found->second.comm != comm)
    return ncclInvalidArgument;
  library().registered.erase(found);
  return ncclSuccess;
}
