#include "parallel/cuda/device_communicator.h"

#include <utility>

#include "core/check.h"
#include "device/cuda/cuda_error.h"

namespace trident {

namespace {

std::vector<int> global_ranks_of(const Communicator& host) {
  std::vector<int> ranks;
  for (int r = 0; r < host.size(); ++r) ranks.push_back(host.global_rank_of(r));
  return ranks;
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place, Alone alone)
    : Communicator(std::string(host->name()), host->rank(), host->size(), CallRules::Side::kDevice),
      host_(std::move(host)),
      place_(place),
      alone_(alone),
      global_ranks_(global_ranks_of(*host_)) {
  TRIDENT_CHECK(place_.progress != nullptr, "communicator {} of a rank that cannot wait", name());
  deferred_.reserve(kCalls);
}

void DeviceCommunicator::enqueue(Stream& stream, const CollectiveCall& call) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  TRIDENT_CHECK(cuda != nullptr, "stream {} is not a CUDA stream", stream.name());
  if (copies_alone()) return copy_alone(*cuda, call);
  if (!in_group()) return run(*cuda, {&call, 1});
  TRIDENT_CHECK(group_stream_ == nullptr || group_stream_ == cuda, "a group of operations on streams {} and {}",
                group_stream_->name(), cuda->name());
  TRIDENT_CHECK(deferred_.size() < kCalls, "a group of more than {} operations", kCalls);
  group_stream_ = cuda;
  deferred_.push_back(call);
}

void DeviceCommunicator::copy_alone(CudaStream& stream, const CollectiveCall& call) const {
  if (call.in.empty() || call.out.data() == call.in.data()) return;
  check_cuda(cudaMemcpyAsync(call.out.data(), call.in.data(), static_cast<std::size_t>(call.in.num_bytes()),
                             cudaMemcpyDeviceToDevice, stream.handle()),
             name());
}

void DeviceCommunicator::flush() {
  if (deferred_.empty()) return;
  CudaStream& stream = *std::exchange(group_stream_, nullptr);
  run(stream, deferred_);
  deferred_.clear();
}

void DeviceCommunicator::drop() noexcept {
  deferred_.clear();
  group_stream_ = nullptr;
}

std::unique_ptr<Communicator> DeviceCommunicator::make_part(std::span<const int> members, int /*number*/, std::string name) {
  meet();  // nothing else is on its way through the host's communicator
  return make(host_->split(members, std::move(name)));
}

std::vector<std::int64_t> DeviceCommunicator::gather_now(std::vector<std::int64_t> mine) {
  CpuStream now("host", CpuStream::Mode::kImmediate, progress());
  const auto count = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> all(mine.size() * global_ranks_.size());
  host_->all_gather(now, {all.data(), DType::kI64, {size() * count}}, {mine.data(), DType::kI64, {count}});
  return all;
}

void DeviceCommunicator::fail(const std::string& reason) {
  host_->abort(reason);
  throw CommunicationError(reason);
}

}  // namespace trident
