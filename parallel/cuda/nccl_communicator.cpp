#include "parallel/cuda/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include <fmt/ranges.h>

#include "core/at.h"
#include "core/check.h"
#include "core/clock.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "device/no_allocation.h"
#include "parallel/cuda/nccl_arguments.h"

namespace trident {

namespace {

constexpr std::size_t kWatches = CpuStream::kCapacity;

GpuId gpu_of(int device) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device), "asking for a GPU's identity");
  GpuId gpu{};
  std::memcpy(gpu.data(), properties.uuid.bytes, sizeof(gpu));
  return gpu;
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host_communicator, const DevicePlace& place,
                                   const NcclOptions& options)
    : DeviceCommunicator(std::move(host_communicator), place,
                         options.alone == NcclOptions::Alone::kJoins ? Alone::kRuns : Alone::kCopies),
      options_(options),
      traffic_(options.traffic),
      all_(place.device, std::string(name()), traffic_.max_ctas),
      fork_(place.device),
      watches_(fmt::format("{} (watch)", name()), CpuStream::Mode::kQueue, progress()),
      collective_control_(fmt::format("{} (control)", name()), CpuStream::Mode::kQueue, progress()),
      control_to_(global_ranks().size()),
      control_from_(global_ranks().size()),
      sent_(global_ranks().size()),
      received_(global_ranks().size()),
      watch_group_{name(),
                   rank(),
                   global_ranks(),
                   place.device,
                   options.timeout_seconds,
                   [this](const std::string& reason) { give_up(reason); }},
      pool_(kWatches) {
  launching_.reserve(kWatches);
  if (copies_alone()) return;
  progress().add(*this);
  try {
    const HostAllocator& allocate = place.staging ? place.staging : HostAllocator(allocate_host);
    records_ =
        allocate(static_cast<std::int64_t>(kWatches) * (1 + size()) * kRecordWords * 8, fmt::format("records of {}", name()));
    compare_surroundings();
    connect();
  } catch (...) {
    progress().give_up();
    progress().remove(*this);
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  group_cancel();
  if (!copies_alone() && !leave()) progress().give_up();  // what hangs here may wait for the rank's others, and they for this
  progress().remove(*this);
  release_host();  // before the records, which peers may be reading
}

// Whether all was done, here and on the other ranks.
bool NcclCommunicator::leave() noexcept {
  try {
    if (!ended_ && std::uncaught_exceptions() == 0) {
      progress().wait_until([&] { return watches_.record().stream() == nullptr; }, [&] { return watches_.describe_head(); });
      for (const auto& path : paths_) path->handle.finish(progress());
      all_.finish(progress());
      return true;
    }
    // All ranks called what the GPU has done, so their records are there: first they are received, then compared.
    progress().poll();
    progress().poll();
    if (const std::string pending = pool_.describe_pending(); !pending.empty())
      host().abort(fmt::format("rank {} left with operations pending: {}", global_rank_of(rank()), pending));
  } catch (const std::exception&) {  // whoever waits next is told; here everything is ended
  }
  return false;
}

void NcclCommunicator::compare_surroundings() {
  int version = 0;
  require(ncclGetVersion(&version), all_, "asking for the version");
  const GpuId mine = gpu_of(place().device);
  int driver = 0;
  if (keeps_launch_order(std::getenv(kNcclLaunchOrder)))
    check_cuda(cudaDriverGetVersion(&driver), "asking for the version of the driver");
  const std::vector<std::int64_t> told = gather_now({version, mine[0], mine[1], driver});
  std::vector<int> versions, drivers;
  std::vector<GpuId> gpus;
  for (std::size_t r = 0; r < global_ranks().size(); ++r) {
    versions.push_back(static_cast<int>(told[4 * r]));
    gpus.push_back({told[4 * r + 1], told[4 * r + 2]});
    drivers.push_back(static_cast<int>(told[4 * r + 3]));
  }
  if (const auto problem = version_problem(name(), global_ranks(), versions)) throw ConfigError(*problem);
  if (const auto blocks = launch_order_problem(name(), global_ranks(), drivers)) throw ConfigError(*blocks);
  if (options_.allow_shared_gpus) return;
  if (const auto shared = shared_gpu(name(), global_ranks(), gpus)) throw ConfigError(*shared);
}

// The members' first makes the id; all ranks of the group hear it.
void NcclCommunicator::join(NcclHandle& handle, const std::vector<int>& members) {
  ncclUniqueId id{};
  if (members.front() == rank()) require(ncclGetUniqueId(&id), handle, "making an id");
  CpuStream now("host", CpuStream::Mode::kImmediate, progress());
  host().broadcast(now, {&id, DType::kU8, {sizeof(id)}}, members.front());
  const auto me = std::find(members.begin(), members.end(), rank());
  if (me == members.end()) return;
  const ncclResult_t begun = handle.join(id, static_cast<int>(members.size()), static_cast<int>(me - members.begin()));
  require(handle.settle(begun, progress()), handle, "joining");
}

// A first operation on every communicator, one after another in an order that all ranks share, so that none later waits on the
// host.
void NcclCommunicator::connect() {
  std::vector<int> everybody(global_ranks().size());
  for (std::size_t r = 0; r < everybody.size(); ++r) everybody[r] = static_cast<int>(r);
  join(all_, everybody);
  const Buffer scratch = allocate_cuda(place().device, 256, fmt::format("connecting {}", name()));
  const TensorView word{scratch.data(), DType::kF32, {1}, MemoryKind::kDevice};
  CudaQueue queue(place().device);
  CudaEvent done(place().device);
  const CollectiveCall first{CommOperation::kAllReduce, ReduceOp::kSum, word, word};
  launch_on(all_, queue.get(), {&first, 1});
  done.record(queue.get());
  wait_for(done, "the first operation");
  for (const auto& [from, to] : message_paths(size(), traffic_.messages)) {
    auto path = std::make_unique<Path>(
        from, to, place().device,
        fmt::format("{} {}-{}", name(), global_rank_of(from), global_rank_of(to)),
        traffic_.max_ctas);
    join(path->handle, {from, to});
    if (from != rank() && to != rank()) continue;
    const bool sends = from == rank();
    const CollectiveCall message{sends ? CommOperation::kSend : CommOperation::kRecv, ReduceOp::kSum, word, word,
                                 sends ? to : from};
    paths_.push_back(std::move(path));
    Path& added = *paths_.back();
    launch_on(added.handle, added.queue.get(), {&message, 1});
    added.done.record(added.queue.get());
    wait_for(added.done, "the first message");
  }
}

void NcclCommunicator::wait_for(const CudaEvent& event, std::string_view what) {
  const double since = monotonic_seconds();
  const auto describe = [&] {
    return fmt::format("{} of NCCL over {} among ranks {}", what, name(), fmt::join(global_ranks(), ", "));
  };
  const auto ready = [&] {
    if (monotonic_seconds() - since >= options_.timeout_seconds)
      give_up(fmt::format("rank {} waited {:.3g} s for {}", global_rank_of(rank()), options_.timeout_seconds,
                          describe()));
    return event.done();
  };
  progress().wait_until(ready, describe);
}

std::unique_ptr<Communicator> NcclCommunicator::make(std::unique_ptr<Communicator> host) {
  return std::make_unique<NcclCommunicator>(std::move(host), place(), options_);
}

void NcclCommunicator::meet() { host().barrier(); }

NcclCommunicator::Path* NcclCommunicator::path_of(const CollectiveCall& call) {
  const bool sends = call.operation == CommOperation::kSend;
  if (!sends && call.operation != CommOperation::kRecv) return nullptr;
  const int from = sends ? rank() : call.root, to = sends ? call.root : rank();
  for (const auto& path : paths_)
    if (path->sender == from && path->receiver == to) return path.get();
  return nullptr;
}

NcclHandle& NcclCommunicator::handle_of(const CollectiveCall& call) {
  Path* const path = path_of(call);
  return path != nullptr ? path->handle : all_;
}

CpuStream& NcclCommunicator::control_of(const CollectiveCall& call) {
  const bool sends = call.operation == CommOperation::kSend;
  if (!sends && call.operation != CommOperation::kRecv) return collective_control_;
  std::unique_ptr<CpuStream>& stream = at(sends ? control_to_ : control_from_, call.root);
  if (stream == nullptr)
    stream = std::make_unique<CpuStream>(fmt::format("{} (control of messages)", name()), CpuStream::Mode::kQueue, progress());
  return *stream;
}

std::uint64_t NcclCommunicator::number_of(const CollectiveCall& call) {
  const auto peer = static_cast<std::size_t>(std::max(call.root, 0));
  if (call.operation == CommOperation::kSend) return ++sent_[peer];
  if (call.operation == CommOperation::kRecv) return ++received_[peer];
  return ++collectives_;
}

NcclWatch& NcclCommunicator::watch(const CollectiveCall& call) {
  NcclWatch& watch = pool_.take(progress(), [&] {
    const std::int64_t words = (1 + size()) * kRecordWords, index = watches_made_++;
    const TensorView record{records_.data() + index * words * 8, DType::kI64, {words}};
    return NcclWatch(watch_group_, record.range(0, kRecordWords), record.range(kRecordWords, words - kRecordWords));
  });
  watch.prepare(call, number_of(call), handle_of(call));
  if (call.is_message() || checks() == CollectiveChecks::kOn) watch.tell(host(), control_of(call));
  watches_.enqueue(watch);
  return watch;
}

void NcclCommunicator::run(CudaStream& stream, std::span<const CollectiveCall> calls) {
  if (ended_) {
    host().barrier();  // throws what the world failed of
    throw CommunicationError(fmt::format("{}: NCCL was ended by a failure before", name()));
  }
  const cudaStream_t work = stream.handle();
  launching_.clear();
  for (const CollectiveCall& call : calls) launching_.push_back(&watch(call));
  launch(work, calls);
  for (NcclWatch* watch : launching_) watch->launched(work);
}

void NcclCommunicator::launch(cudaStream_t stream, std::span<const CollectiveCall> calls) {
  use_cuda_device(place().device);
  const bool own_ways =
      std::any_of(calls.begin(), calls.end(), [&](const CollectiveCall& call) { return path_of(call) != nullptr; });
  if (!own_ways) return launch_on(all_, stream, calls);
  if (calls.size() == 1) return launch_on(path_of(calls.front())->handle, stream, calls);
  launch_paths(stream, calls);
}

// Messages of a group with communicators of their own: a stream for each pair between here and the next work of `stream`, or one
// that waits for its receiver would hold up the others. The rest of the group runs on `stream`.
void NcclCommunicator::launch_paths(cudaStream_t stream, std::span<const CollectiveCall> calls) {
  fork_.record(stream);
  bool others = false;
  for (const CollectiveCall& call : calls) {
    Path* const path = path_of(call);
    others = others || path == nullptr;
    if (path == nullptr) continue;
    if (!path->in_group) check_cuda(cudaStreamWaitEvent(path->queue.get(), fork_.get(), 0), name());
    path->in_group = true;
    launch_on(path->handle, path->queue.get(), {&call, 1});
  }
  if (others) launch_on(all_, stream, calls);
  for (const auto& path : paths_) {
    if (!std::exchange(path->in_group, false)) continue;
    path->done.record(path->queue.get());
    check_cuda(cudaStreamWaitEvent(stream, path->done.get(), 0), name());
  }
}

// Launches the calls that go by `handle` as one.
void NcclCommunicator::launch_on(NcclHandle& handle, cudaStream_t stream, std::span<const CollectiveCall> calls) {
  handle.enter(stream);
  const ncclResult_t result = handle.settle(call_together(handle, stream, calls), progress());
  require(result, handle, to_string(calls.front().operation));
  handle.leave(stream);
}

// The library makes tasks and plans of its own, and loads kernels, on our heap.
ncclResult_t NcclCommunicator::call_together(NcclHandle& handle, cudaStream_t stream, std::span<const CollectiveCall> calls) {
  const AllocationExemption library;
  if (const ncclResult_t begun = ncclGroupStart(); begun != ncclSuccess) return begun;
  ncclResult_t worst = ncclSuccess;
  for (const CollectiveCall& call : calls) {
    const Path* const path = path_of(call);
    if (call.in.empty() || (path != nullptr ? &path->handle : &all_) != &handle) continue;
    const ncclResult_t result = call_library(call, handle, path, stream);
    if (result != ncclSuccess && result != ncclInProgress) worst = result;
  }
  const ncclResult_t ended = ncclGroupEnd();  // even after an error: the library counts
  return worst == ncclSuccess ? ended : worst;
}

ncclResult_t NcclCommunicator::call_library(const CollectiveCall& call, NcclHandle& handle, const Path* path,
                                            cudaStream_t stream) const {
  const auto [type, count] = nccl_elements(call.in);
  const ncclRedOp_t op = nccl_reduction(call.reduce);
  const ncclComm_t comm = handle.get();
  const auto ranks = static_cast<std::size_t>(size());
  const int peer = path == nullptr ? call.root : path->sender == rank() ? 1 : 0;
  switch (call.operation) {
    case CommOperation::kAllReduce: return ncclAllReduce(call.in.data(), call.out.data(), count, type, op, comm, stream);
    case CommOperation::kReduceScatter:
      return ncclReduceScatter(call.in.data(), call.out.data(), count / ranks, type, op, comm, stream);
    case CommOperation::kAllGather: return ncclAllGather(call.in.data(), call.out.data(), count, type, comm, stream);
    case CommOperation::kBroadcast:
      return ncclBroadcast(call.in.data(), call.out.data(), count, type, call.root, comm, stream);
    case CommOperation::kSend: return ncclSend(call.in.data(), count, type, peer, comm, stream);
    case CommOperation::kRecv: return ncclRecv(call.out.data(), count, type, peer, comm, stream);
    case CommOperation::kAllToAll:
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto offset = static_cast<std::int64_t>(r) * (call.in.num_bytes() / size());
        ncclResult_t result = ncclSend(call.in.data() + offset, count / ranks, type, static_cast<int>(r), comm, stream);
        if (result == ncclSuccess || result == ncclInProgress)
          result = ncclRecv(call.out.data() + offset, count / ranks, type, static_cast<int>(r), comm, stream);
        if (result != ncclSuccess && result != ncclInProgress) return result;
      }
      return ncclSuccess;
    case CommOperation::kBarrier: break;
  }
  return ncclSuccess;
}

void NcclCommunicator::require(ncclResult_t result, const NcclHandle& handle, std::string_view what) {
  if (result == ncclSuccess) return;
  const AllocationExemption message;
  give_up(fmt::format("{}: rank {}: {} among ranks {} failed in NCCL: {}; NCCL_DEBUG=WARN says more", name(),
                      global_rank_of(rank()), what, fmt::join(global_ranks(), ", "), handle.explain(result)));
}

void NcclCommunicator::give_up(const std::string& reason) {
  progress().give_up();  // this communicator and all others of the rank
  fail(reason);
}

void NcclCommunicator::abort(std::string_view reason) {
  DeviceCommunicator::abort(reason);
  progress().give_up();
}

// To abort one communicator waits for the work on its streams, which may be queued behind that of another. So all those of the rank
// are aborted in one group, which waits when all have been told: groups nest, and the last of the rank's listeners ends the
// outermost.
void NcclCommunicator::on_give_up() noexcept {
  ended_ = true;
  const AllocationExemption library;
  ncclGroupStart();
  for (const auto& path : paths_) path->handle.abort();
  all_.abort();
}

void NcclCommunicator::after_give_up() noexcept {
  const AllocationExemption library;
  ncclGroupEnd();
}

std::string NcclCommunicator::register_memory(TensorView memory) {
  if (copies_alone()) return {};
  const std::string problem = register_here(memory);
  std::int64_t failed = problem.empty() ? 0 : size() - rank();  // of whom, from the end
  CpuStream now("host", CpuStream::Mode::kImmediate, progress());
  host().all_reduce(now, {&failed, DType::kI64, {1}}, ReduceOp::kMax);
  if (failed == 0) return {};
  require(all_.deregister(progress()), all_, "giving back registered memory");
  for (const auto& path : paths_) require(path->handle.deregister(progress()), path->handle, "giving back registered memory");
  if (size() - failed != rank()) return {};
  return fmt::format("{}: NCCL does not register the memory of rank {}: {}", name(), global_rank_of(rank()), problem);
}

// Why not, or not all of it; empty if it is.
std::string NcclCommunicator::register_here(TensorView memory) {
  const auto bytes = static_cast<std::size_t>(memory.num_bytes());
  if (bytes == 0) return {};
  std::string problem = all_.register_memory(memory.data(), bytes, progress());
  for (const auto& path : paths_)
    if (problem.empty()) problem = path->handle.register_memory(memory.data(), bytes, progress());
  return problem;
}

NcclMemory allocate_nccl(int device, std::int64_t bytes, const std::string& name) {
  check_allocation_allowed(static_cast<std::size_t>(bytes), name);
  if (bytes == 0) return {};
  use_cuda_device(device);
  void* data = nullptr;
  if (const ncclResult_t result = ncclMemAlloc(&data, static_cast<std::size_t>(bytes)); result != ncclSuccess) {
    cudaGetLastError();
    return {allocate_cuda(device, bytes, name), ncclGetErrorString(result)};  // which says what to do if there is no room
  }
  Buffer buffer(data, bytes, MemoryKind::kDevice, [device](void* memory, std::int64_t) {
    cudaSetDevice(device);
    ncclMemFree(memory);
  });
  check_cuda(cudaMemset(data, 0, static_cast<std::size_t>(bytes)), name);
  check_cuda(cudaStreamSynchronize(nullptr), name);
  return {std::move(buffer), {}};
}

}  // namespace trident
