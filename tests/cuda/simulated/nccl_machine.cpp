#include "tests/cuda/simulated/nccl_machine.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/cuda/simulated/nccl_sums.h"

namespace trident::simulated {

Library& library() {
  static Library library;
  return library;
}

Group& open_group() {
  thread_local Group group;
  return group;
}

namespace {

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

std::int64_t registered_offset(const ncclComm& comm, const std::byte* data, std::size_t bytes) {
  for (const auto& [handle, known] : library().registered)
    if (known.comm == &comm && data >= known.data && data + bytes <= known.data + known.bytes) return data - known.data;
  return kNotRegistered;
}

// The library leaves this undefined.
void check_registration(const NcclOperation& a, const NcclOperation& b, bool message) {
  const auto registered = [&](const NcclOperation& o, std::size_t operand) { return o.offsets[operand] != kNotRegistered; };
  const auto side = [](const NcclOperation& o) -> std::size_t { return o.call == NcclCall::kRecv ? 1 : 0; };
  bool same = true;
  if (message) same = registered(a, side(a)) == registered(b, side(b));
  else
    for (std::size_t operand : {0, 1}) {
      // In place a slice is elsewhere on every rank.
      const bool slice = a.call == (operand == 0 ? NcclCall::kAllGather : NcclCall::kReduceScatter);
      same = same && (slice ? registered(a, operand) == registered(b, operand) : a.offsets[operand] == b.offsets[operand]);
    }
  if (!same)
    complain("ranks " + std::to_string(a.rank) + " and " + std::to_string(b.rank) +
             " registered different parts of their operands");
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
    if (other != operation) check_registration(*other, *operation, message);
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

}  // namespace

std::shared_ptr<ncclComm> shared(ncclComm* comm) {
  for (const auto& known : library().comms)
    if (known.get() == comm) return known;
  return nullptr;
}

void complain(const std::string& what) { library().complaints.push_back(what); }

ncclResult_t state_of(const ncclComm& comm) {
  if (comm.failure != ncclSuccess) return comm.failure;
  if (comm.clique->joined < comm.clique->ranks) return ncclInProgress;
  if (comm.clique->refused != ncclSuccess) return comm.clique->refused;
  if (!comm.held.empty()) return ncclInProgress;
  if (comm.finalized && (comm.ended < comm.launched || comm.clique->finalized < comm.clique->ranks)) return ncclInProgress;
  return ncclSuccess;
}

void enqueue_launch(ncclComm& comm, cudaStream_t stream, std::shared_ptr<Launch> launch) {
  const std::shared_ptr<ncclComm> self = shared(&comm);
  const std::uint64_t number = comm.launched++;
  std::erase_if(comm.queued, [](const auto& known) { return known.expired(); });
  comm.queued.push_back(launch);
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

void wait_for_aborted(const std::vector<std::shared_ptr<ncclComm>>& comms) {
  for (const auto& comm : comms) {
    const auto& queued = comm->queued;
    const auto at_rest = [&] { return std::all_of(queued.begin(), queued.end(), [](const auto& l) { return l.expired(); }); };
    if (!wait_at_most(library().settings.abort_seconds, at_rest))
      complain("ncclCommAbort on device " + std::to_string(comm->device) + " waits for work behind that of others");
  }
}

ncclResult_t issue(ncclComm& comm, cudaStream_t stream, std::shared_ptr<Launch> launch) {
  if (comm.held.empty() && ++library().calls % 3 != 0) {
    enqueue_launch(comm, stream, std::move(launch));
    return ncclSuccess;
  }
  comm.held.emplace_back(stream, std::move(launch));
  comm.asked = 0;
  return ncclInProgress;
}

ncclResult_t call(const char* name, ncclComm* comm, cudaStream_t stream, NcclOperation operation) {
  const LibraryCall lock;
  const auto refuse = [&](ncclResult_t result, const std::string& why) {
    complain(std::string(name) + ": " + why);
    if (open_group().depth > 0) open_group().error = result;
    return result;
  };
  if (const auto injected = injected_failure(name)) {
    if (open_group().depth > 0) open_group().error = static_cast<ncclResult_t>(*injected);
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
  operation.offsets = {registered_offset(*comm, operation.in, in_bytes(operation, comm->clique->ranks)),
                       registered_offset(*comm, operation.out, out_bytes(operation, comm->clique->ranks))};
  auto shared_operation = std::make_shared<NcclOperation>(operation);
  const std::shared_ptr<Meeting> meeting = meeting_of(*comm, operation);
  if (open_group().depth == 0) {
    auto launch = std::make_shared<Launch>();
    launch->operations.emplace_back(shared_operation, meeting);
    return issue(*comm, stream, launch);
  }
  std::shared_ptr<Launch>& launch = open_group().launches[comm];
  if (launch == nullptr) {
    launch = std::make_shared<Launch>();
    open_group().order.emplace_back(comm, stream);
  }
  launch->operations.emplace_back(shared_operation, meeting);
  return ncclSuccess;
}

}  // namespace trident::simulated
