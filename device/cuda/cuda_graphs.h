// Work that comes again with the same arguments, captured once as a CUDA graph and launched as a whole from then on.
//
// Work is traced each time: its operations are called, and instead of enqueueing anything they note themselves. The notes
// hold every argument, so a graph is launched only for exactly the work that it was captured from. The first time work comes it is
// enqueued operation by operation (libraries load their kernels then), the second time it is captured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/function_ref.h"
#include "device/buffer.h"
#include "device/cuda/call_trace.h"
#include "device/cuda/cuda_stream.h"

namespace trident {

// Used by one thread. Memory is taken while work is new, none when a graph is launched.
class CudaGraphs {
 public:
  // Different works that are remembered; any more are enqueued operation by operation.
  static constexpr std::size_t kMostWorks = 4096;
  // Words of arguments that are new each time, in all graphs together; work with any more is enqueued operation by operation.
  static constexpr std::size_t kMostNumbers = 65536;

  explicit CudaGraphs(int device) : device_(device) {}
  ~CudaGraphs();
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  // As Device::run_capturable(), on `stream`. Throws what `work` throws; InternalError if it is not the same when called again.
  void run_capturable(CudaStream& stream, FunctionRef<void()> work);

  // ---- for operations, before they enqueue anything
  // The stream that operations may use now; nullptr: any.
  const CudaStream* stream() const { return stream_; }
  // True: the operation has noted itself, and that is all it was called for.
  template <class... Args>
  bool note(const char* operation, const Args&... args) {
    if (phase_ == Phase::kNone) return false;
    notes().add(operation, args...);
    return phase_ == Phase::kNoting;
  }
  // Where the kernel of an operation that has just noted an PerLaunchArg<T> finds it; nullptr: it takes it as an argument.
  template <class T>
  const T* in_memory() const {
    return phase_ == Phase::kRunning ? reinterpret_cast<const T*>(number_memory(first_number_ + called_.last_number())) : nullptr;
  }

 private:
  enum class Phase : std::uint8_t { kNone, kNoting, kRunning };  // kRunning: what was noted, on a stream or into a graph
  struct Graph {
    cudaGraphExec_t exec = nullptr;  // null: the work came once
    std::size_t first_number = 0;    // in the memory of numbers
  };
  struct Hash {
    std::size_t operator()(const std::vector<std::uint64_t>& words) const;
  };
  class InPhase;

  CallTrace& notes() { return phase_ == Phase::kNoting ? noted_ : called_; }
  // The graph of what is noted, perhaps without `exec`; nullptr: the work is enqueued operation by operation.
  Graph* find_or_remember();
  void capture(CudaStream& stream, FunctionRef<void()> work, Graph& graph);
  void run_noted(CudaStream& stream, FunctionRef<void()> work, const Graph& graph);
  void write_numbers(CudaStream& stream, const Graph& graph);
  std::uint64_t* number_memory(std::size_t index) const { return reinterpret_cast<std::uint64_t*>(numbers_.data()) + index; }

  int device_;
  Phase phase_ = Phase::kNone;
  const CudaStream* stream_ = nullptr;
  CallTrace noted_, called_;
  std::size_t first_number_ = 0;  // of the work that runs
  std::unordered_map<std::vector<std::uint64_t>, Graph, Hash> graphs_;
  Buffer numbers_;              // kMostNumbers words, once there is a use for them
  std::size_t used_numbers_ = 0;
};

}  // namespace trident
