#include "device/cuda/cuda_stream.h"

#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "device/cuda/cuda_error.h"

namespace trident {

namespace {

// Nobody rings when a device is done, so a rank that waits looks again after this long.
constexpr double kNap = 20e-6;

}  // namespace

CudaStream::CudaStream(int device, std::string name, Mode mode, Progress& progress, int priority)
    : device_(device), name_(std::move(name)), progress_(progress), queue_(name_, mode, progress, this) {
  progress_.limit_naps(kNap);
  use_cuda_device(device_);
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "making a stream");
}

CudaStream::~CudaStream() {
  // Resources that cannot be given back now, after a failure of the device, go with the process.
  for (cudaEvent_t event : events_)
    if (event != nullptr) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

cudaStream_t CudaStream::handle() {
  queue_.synchronize();
  use_cuda_device(device_);
  unrecorded_ = true;
  return stream_;
}

void CudaStream::enqueue(PendingOperation& operation) {
  if (!host_phase()) queue_.wait(record_device_work());
  queue_.enqueue(operation);
}

Event CudaStream::record_device_work() {
  if (unrecorded_) {
    use_cuda_device(device_);
    cudaEvent_t& event = events_[(recorded_ + 1) % kEvents];
    if (event == nullptr) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    check_cuda(cudaEventRecord(event, stream_), name_);
    ++recorded_;
    unrecorded_ = false;
  }
  return recorded_ == done_ ? Event() : Event(this, recorded_ << 1);
}

Event CudaStream::record() {
  const Event of_host = queue_.record();
  return of_host.stream() == nullptr ? record_device_work() : Event(this, of_host.ticket() << 1 | kOfQueue);
}

void CudaStream::wait(const Event& event) {
  if (event.stream() == nullptr || event.stream() == this) return;
  auto* const other = dynamic_cast<CudaStream*>(event.stream());
  if (other == nullptr || of_queue(event.ticket()) || host_phase()) {
    queue_.wait(event);
    return;
  }
  const std::uint64_t number = event.ticket() >> 1;
  if (number <= other->done_) return;
  use_cuda_device(device_);
  check_cuda(cudaStreamWaitEvent(stream_, other->event_of(number), 0), name_);
  unrecorded_ = true;
}

void CudaStream::synchronize() { record().wait_host(); }

bool CudaStream::device_work_done(std::uint64_t number) {
  if (number <= done_) return true;
  const cudaError_t status = cudaEventQuery(event_of(number));
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, name_);
  // The last event in this one's place is done, and so is everything before it.
  done_ = number + (recorded_ - number) / kEvents * kEvents;
  return true;
}

bool CudaStream::is_done(std::uint64_t ticket) {
  if (of_queue(ticket)) return queue_.is_done(ticket >> 1);
  TRIDENT_CHECK(ticket >> 1 <= recorded_, "event {} of stream {}, which recorded {}", ticket >> 1, name_, recorded_);
  return device_work_done(ticket >> 1);
}

void CudaStream::wait_host(std::uint64_t ticket) {
  if (of_queue(ticket)) return queue_.wait_host(ticket >> 1);
  if (is_done(ticket)) return;
  const RangeScope range(progress_.ranges(), "wait");
  OperationLog* const log = progress_.log();
  const double start = log != nullptr ? monotonic_seconds() : 0, before = progress_.waited_seconds();
  progress_.wait_until([&] { return is_done(ticket); }, [&] { return describe(ticket); });
  waited_ += progress_.waited_seconds() - before;
  if (log != nullptr) log->add({OperationRecord::Kind::kWait, this, start, start, monotonic_seconds()});
}

std::string CudaStream::describe(std::uint64_t ticket) const {
  return fmt::format("CUDA stream {} of device {}: work up to event {} of {}", name_, device_, ticket >> 1, recorded_);
}

}  // namespace trident
