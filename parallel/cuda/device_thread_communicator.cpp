#include "parallel/cuda/device_thread_communicator.h"

#include <set>

#include "core/at.h"
#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernels/kernels.h"
#include "parallel/communicator/rank_order_sum.h"

namespace trident {
namespace {

cuda_kernels::SumType sum_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return cuda_kernels::SumType::kF32;
    case DType::kBF16: return cuda_kernels::SumType::kBF16;
    case DType::kF16: return cuda_kernels::SumType::kF16;
    case DType::kF64: return cuda_kernels::SumType::kF64;
    case DType::kI32: return cuda_kernels::SumType::kI32;
    case DType::kI64: return cuda_kernels::SumType::kI64;
    case DType::kU16: case DType::kU8: break;
  }
  throw InternalError(fmt::format("{} cannot be reduced", to_string(dtype)));
}

}  // namespace

void DeviceThreadOperation::start() {
  step_ = Step::kMoving;
  use_cuda_device(work_->device);
  if (!call().in.empty()) move();
  moved_.record(work_->queue.get());
}

bool DeviceThreadOperation::advance() {
  if (step_ == Step::kMoving) {
    use_cuda_device(work_->device);
    if (!moved_.done()) return false;
    tell_done();
    step_ = Step::kAwaitingPeers;
    group().progress->note_advance();
    lane().stream().poll();
  }
  return told_done_.done();
}

void DeviceThreadOperation::copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0 || to == from) return;
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, work_->queue.get()),
             "copying between ranks' buffers");
}

void DeviceThreadOperation::move() {
  const CollectiveCall& c = call();
  switch (c.operation) {
    case CommOperation::kAllReduce: case CommOperation::kReduceScatter: return reduce();
    case CommOperation::kAllGather: return copy_slices(0);
    case CommOperation::kAllToAll: return copy_slices(c.in.num_bytes() / group().size() * group().rank);
    case CommOperation::kBroadcast: return copy(c.out.data(), operand_of(c.root), c.out.num_bytes());
    case CommOperation::kRecv: return copy(c.out.data(), operand_of(c.root), c.out.num_bytes());
    case CommOperation::kSend: case CommOperation::kBarrier: return;
  }
}

void DeviceThreadOperation::reduce() {
  const CollectiveCall& c = call();
  const int ranks = group().size(), rank = group().rank;
  const std::int64_t element = size_of(c.in.dtype());
  const bool everywhere = c.operation == CommOperation::kAllReduce;
  const IndexRange share = everywhere ? share_of(c.in.num_elements(), c.in.dtype(), ranks, rank)
                                      : IndexRange{rank * c.out.num_elements(), (rank + 1) * c.out.num_elements()};
  if (share.size() == 0) return;
  for (int r = 0; r < ranks; ++r) at(work_->sources, r) = operand_of(r) + share.begin * element;
  std::byte* const out = everywhere ? c.out.data() + share.begin * element : c.out.data();
  cuda_kernels::rank_order_sum(work_->queue.get(), sum_type(c.in.dtype()), out, work_->sources.data(), ranks, share.size(),
                               c.reduce == ReduceOp::kSum ? cuda_kernels::SumOperation::kSum : cuda_kernels::SumOperation::kMax);
  if (!everywhere) return;
  for (int i = 1; i < ranks; ++i) copy(operand_of((rank + i) % ranks) + share.begin * element, out, share.size() * element);
}

// Slice r of `out` from rank r's operand.
void DeviceThreadOperation::copy_slices(std::int64_t offset) {
  const int ranks = group().size();
  const std::int64_t bytes = call().out.num_bytes() / ranks;
  for (int i = 0; i < ranks; ++i) {  // each begins with itself, so that ranks do not queue up at one peer's memory
    const int r = (group().rank + i) % ranks;
    copy(call().out.data() + r * bytes, operand_of(r) + offset, bytes);
  }
}

void DeviceThreadOperation::tell_done() {
  CpuStream& stream = lane().stream();
  const TensorView word = lane().mine().range(0, 1);
  switch (call().operation) {
    case CommOperation::kSend: work_->acknowledgements->recv(stream, word, call().root); break;
    case CommOperation::kRecv: work_->acknowledgements->send(stream, word, call().root); break;
    default: group().host->all_gather(stream, lane().all().range(0, group().size()), word);
  }
  told_done_ = stream.record();
}

std::string DeviceThreadOperation::describe_move() const {
  return step_ == Step::kMoving ? "the GPU has not moved the data yet" : lane().stream().describe_head();
}

DeviceThreadCommunicator::DeviceThreadCommunicator(std::unique_ptr<Communicator> host_communicator, const DevicePlace& place)
    : LaneCommunicator(std::move(host_communicator), place),
      work_(place.device, size(), host().split(all_ranks(host()), fmt::format("{} (acknowledgements)", name()))) {
  if (size() > cuda_kernels::kMaxSources)
    throw ConfigError(fmt::format("{}: {} ranks as threads on CUDA devices, at most {} can add up; start the ranks as processes",
                                  name(), size(), cuda_kernels::kMaxSources));
  reach_peers();
}

void DeviceThreadCommunicator::reach_peers() {
  use_cuda_device(place().device);
  const std::vector<std::int64_t> gpus = gather_now({place().device});
  std::int64_t unreachable = -1;
  for (const std::int64_t gpu : std::set<std::int64_t>(gpus.begin(), gpus.end())) {
    if (gpu == place().device) continue;
    int reachable = 0;
    check_cuda(cudaDeviceCanAccessPeer(&reachable, place().device, static_cast<int>(gpu)),
               "asking whether GPUs reach each other");
    if (reachable == 0) {
      unreachable = gpu;
      continue;
    }
    const cudaError_t status = cudaDeviceEnablePeerAccess(static_cast<int>(gpu), 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();  // by another communicator of this process; the error is not kept
    else check_cuda(status, fmt::format("letting device {} reach device {}", place().device, gpu));
  }
  const std::vector<std::int64_t> verdicts = gather_now({unreachable});
  for (std::size_t r = 0; r < verdicts.size(); ++r)
    if (verdicts[r] >= 0)
      throw ConfigError(
          fmt::format("{}: device {} of rank {} cannot reach the memory of device {}; start the ranks as processes, or put them on "
                      "one GPU",
                      name(), gpus[r], global_ranks()[r], verdicts[r]));
}

std::unique_ptr<Lane> DeviceThreadCommunicator::make_lane(const CollectiveCall&, const std::string& name) {
  return std::make_unique<Lane>(name, size(), 0, allocate_host, progress());
}

}  // namespace trident
