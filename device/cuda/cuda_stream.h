// CUDA streams: work of the device in order, and between it operations that the host drives (of communicators of host memory).
//
// At any time a stream is in one of two phases. In the device phase everything enqueued has been handed to CUDA. An operation of
// the host starts the host phase: it waits in a queue (device/host/cpu_stream.h) behind an event of the device's work so far, and
// advances when the rank polls. handle(), by which device work is enqueued, first lets the host wait until that queue is empty.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <string>

#include "device/host/cpu_stream.h"
#include "device/stream.h"

namespace trident {

class CudaStream final : public Stream {
 public:
  using Mode = CpuStream::Mode;  // kImmediate: enqueue() returns when the operation is complete

  // priority: 0 is the lowest, negative numbers are served first. Throws what check_cuda throws.
  CudaStream(int device, std::string name, Mode mode, Progress& progress, int priority);
  // Work that is still queued on the device goes on.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // For a kernel, a copy or a call of a library, made at once by this thread; its device is current then. To be asked for again for
  // the work of another operation: what is enqueued by a handle after record() is not what that event stands for.
  cudaStream_t handle();
  // Hands over an operation that the host drives (not owned), which starts after everything enqueued before.
  void enqueue(PendingOperation& operation);

  std::string_view name() const override { return name_; }
  int device() const { return device_; }
  // An event stands for all work before it. Only the last kEvents events of device work are told apart: an older one that is not
  // known to be done is taken for a younger one, so that waiting for it may take longer.
  Event record() override;
  // For events of any stream. Device work of CUDA streams is waited for by the device, everything else by the host: in kQueue mode
  // when the next work is enqueued by handle(), in kImmediate mode at once.
  void wait(const Event& event) override;
  void synchronize() override;
  // Throw what the work did: InternalError for a kernel that failed.
  bool is_done(std::uint64_t ticket) override;
  void wait_host(std::uint64_t ticket) override;
  double waited_seconds() const override { return waited_ + queue_.waited_seconds(); }

  static constexpr std::size_t kEvents = 1024;

 private:
  // A ticket is the number of an event of device work, or a ticket of the queue with the lowest bit set.
  static constexpr std::uint64_t kOfQueue = 1;
  static bool of_queue(std::uint64_t ticket) { return (ticket & kOfQueue) != 0; }

  bool host_phase() { return queue_.record().stream() != nullptr; }
  // Throws if any event of device work has failed; that with `number` is done.
  bool device_work_done(std::uint64_t number);
  cudaEvent_t event_of(std::uint64_t number) const { return events_[number % kEvents]; }
  Event record_device_work();
  std::string describe(std::uint64_t ticket) const;

  int device_;
  std::string name_;
  Progress& progress_;
  CpuStream queue_;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_{};
  std::uint64_t recorded_ = 0, done_ = 0;  // numbers of events of device work
  bool unrecorded_ = false;                // device work may have been enqueued since the last event
  double waited_ = 0;
};

}  // namespace trident
