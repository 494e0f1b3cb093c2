#include "parallel/cuda/host_staged_communicator.h"

#include <algorithm>

#include "core/check.h"
#include "core/int_math.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"

namespace trident {

StagedCut cut_for_staging(const CollectiveCall& call, int ranks, std::int64_t slot_bytes) {
  StagedCut cut;
  const bool sliced = call.operation == CommOperation::kReduceScatter || call.operation == CommOperation::kAllGather ||
                      call.operation == CommOperation::kAllToAll;
  if (sliced) cut.slices = ranks;
  // The smaller operand of an all_gather is one slice, otherwise the larger is what is passed in.
  cut.slice = call.operation == CommOperation::kAllGather ? call.in.num_elements() : call.in.num_elements() / cut.slices;
  if (cut.slice == 0) return cut;
  const std::int64_t element = size_of(call.in.dtype());
  const std::int64_t held = (call.operation == CommOperation::kAllToAll ? 2 : 1) * cut.slices * element;
  cut.step = slot_bytes / held;
  const std::int64_t line = 64 / element;
  if (cut.step > line) cut.step -= cut.step % line;
  TRIDENT_CHECK(cut.step > 0, "{} ranks do not fit into {} bytes of staging", ranks, slot_bytes);
  cut.step = std::min(cut.step, cut.slice);
  cut.chunks = ceil_div(cut.slice, cut.step);
  return cut;
}

void StagedOperation::start() {
  cut_ = cut_for_staging(call(), group().size(), slot_bytes());
  if (call().operation == CommOperation::kBarrier) cut_.chunks = 0;
  in_ = exchanging_ = out_ = done_ = 0;
}

bool StagedOperation::advance() {
  if (done_ == cut_.chunks) return true;
  use_cuda_device(copies_->device);
  for (bool moved = true; moved;) {
    moved = false;
    if (done_ < out_ && slot(done_).copied.done()) {
      ++done_;
      moved = true;
    }
    if (out_ < exchanging_ && slot(out_).exchanged.done()) {
      copy_out(out_++);
      moved = true;
    }
    if (exchanging_ < in_ && slot(exchanging_).copied.done()) {
      exchange(exchanging_++);
      moved = true;
    }
    if (in_ < cut_.chunks && in_ < done_ + 2) {
      copy_in(in_++);
      moved = true;
    }
    if (moved) group().progress->note_advance();
  }
  return done_ == cut_.chunks;
}

TensorView StagedOperation::staged(std::int64_t chunk, std::int64_t first, std::int64_t count) const {
  const DType dtype = call().in.dtype();
  return {lane().data() + chunk % 2 * slot_bytes() + first * size_of(dtype), dtype, {count}};
}

void StagedOperation::copy(cudaStream_t stream, void* to, const void* from, std::int64_t elements) const {
  const auto bytes = static_cast<std::size_t>(elements * size_of(call().in.dtype()));
  const bool to_host = stream == copies_->in.get();
  check_cuda(cudaMemcpyAsync(to, from, bytes, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
             to_host ? "copying a collective's operand to the host" : "copying a collective's result to the device");
}

void StagedOperation::copy_in(std::int64_t chunk) {
  const std::int64_t begin = cut_.begin(chunk), count = cut_.count(chunk), element = size_of(call().in.dtype());
  const cudaStream_t stream = copies_->in.get();
  const auto take = [&](std::int64_t to, std::int64_t from) {
    copy(stream, staged(chunk, to, count).data(), call().in.data() + from * element, count);
  };
  switch (call().operation) {
    case CommOperation::kReduceScatter:
    case CommOperation::kAllToAll:
      for (std::int64_t s = 0; s < cut_.slices; ++s) take(s * count, s * cut_.slice + begin);
      break;
    case CommOperation::kAllGather: take(group().rank * count, begin); break;
    case CommOperation::kBroadcast:
      if (group().rank == call().root) take(0, begin);
      break;
    case CommOperation::kAllReduce: case CommOperation::kSend: take(0, begin); break;
    case CommOperation::kRecv: case CommOperation::kBarrier: break;
  }
  slot(chunk).copied.record(stream);
}

void StagedOperation::exchange(std::int64_t chunk) {
  const std::int64_t count = cut_.count(chunk), all = cut_.slices * count;
  Communicator& host = *group().host;
  CpuStream& stream = lane().stream();
  const TensorView whole = staged(chunk, 0, all);
  switch (call().operation) {
    case CommOperation::kAllReduce: host.all_reduce(stream, whole, call().reduce); break;
    case CommOperation::kReduceScatter:
      host.reduce_scatter(stream, whole.range(group().rank * count, count), whole, call().reduce);
      break;
    case CommOperation::kAllGather: host.all_gather(stream, whole, whole.range(group().rank * count, count)); break;
    case CommOperation::kBroadcast: host.broadcast(stream, whole, call().root); break;
    case CommOperation::kAllToAll: host.all_to_all(stream, staged(chunk, all, all), whole); break;
    case CommOperation::kSend: host.send(stream, whole, call().root); break;
    case CommOperation::kRecv: host.recv(stream, whole, call().root); break;
    case CommOperation::kBarrier: break;
  }
  slot(chunk).exchanged = stream.record();
}

void StagedOperation::copy_out(std::int64_t chunk) {
  const std::int64_t begin = cut_.begin(chunk), count = cut_.count(chunk), element = size_of(call().in.dtype());
  const cudaStream_t stream = copies_->out.get();
  const auto give = [&](std::int64_t to, std::int64_t from) {
    copy(stream, call().out.data() + to * element, staged(chunk, from, count).data(), count);
  };
  switch (call().operation) {
    case CommOperation::kReduceScatter: give(begin, group().rank * count); break;
    case CommOperation::kAllGather:
      for (std::int64_t s = 0; s < cut_.slices; ++s)
        if (call().out.data() + s * cut_.slice * element != call().in.data()) give(s * cut_.slice + begin, s * count);
      break;
    case CommOperation::kAllToAll:
      for (std::int64_t s = 0; s < cut_.slices; ++s) give(s * cut_.slice + begin, (cut_.slices + s) * count);
      break;
    case CommOperation::kBroadcast:
      if (group().rank != call().root) give(begin, 0);
      break;
    case CommOperation::kAllReduce: case CommOperation::kRecv: give(begin, 0); break;
    case CommOperation::kSend: case CommOperation::kBarrier: break;
  }
  slot(chunk).copied.record(stream);
}

std::string StagedOperation::describe_move() const {
  if (out_ < exchanging_) return lane().stream().describe_head();
  return fmt::format("copying between host and device, {} of {} pieces are done", done_, cut_.chunks);
}

HostStagedCommunicator::HostStagedCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place,
                                               const HostStagedOptions& options)
    : LaneCommunicator(std::move(host), place), options_(options), copies_(place.device) {}

Buffer HostStagedCommunicator::allocate(std::int64_t bytes, const std::string& name) const {
  if (!place().staging) return allocate_pinned(bytes, name);
  auto memory = std::make_shared<Buffer>(place().staging(bytes, name));
  if (memory->where() == MemoryKind::kPinned) return std::move(*memory);
  use_cuda_device(place().device);
  check_cuda(cudaHostRegister(memory->data(), static_cast<std::size_t>(bytes), cudaHostRegisterDefault),
             fmt::format("page-locking {} bytes of shared memory for {}", bytes, name));
  void* const data = memory->data();
  return {data, bytes, MemoryKind::kPinned, [memory](void* locked, std::int64_t) { cudaHostUnregister(locked); }};
}

std::unique_ptr<Lane> HostStagedCommunicator::make_lane(const CollectiveCall& call, const std::string& name) {
  return std::make_unique<Lane>(name, size(), call.is_message() ? options_.message_bytes : options_.collective_bytes,
                                [this](std::int64_t bytes, const std::string& what) { return allocate(bytes, what); }, progress());
}

}  // namespace trident
