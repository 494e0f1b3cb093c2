// A communicator of NCCL as an object. Its calls return before they are complete; whoever makes them lets the rank poll meanwhile.
#pragma once

#include <nccl.h>

#include <functional>
#include <string>
#include <vector>

#include "device/host/cpu_stream.h"
#include "parallel/cuda/cuda_handles.h"

namespace trident {

class NcclHandle {
 public:
  NcclHandle(int device, std::string name, int max_ctas);
  ~NcclHandle() { abort(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Joins the group of `id`; collective over it. To be completed by settle().
  ncclResult_t join(const ncclUniqueId& id, int ranks, int rank);
  // Waits while the communicator is busy with the call that returned `result`; what came of it. Throws what waiting throws.
  ncclResult_t settle(ncclResult_t result, Progress& progress);
  ncclResult_t asynchronous_error() const;
  // The library's own words about the last failure, besides its number.
  std::string explain(ncclResult_t result) const;

  // Operations of one communicator follow each other whatever stream they are on: between these two calls `stream` may be given
  // work.
  void enter(cudaStream_t stream);
  void leave(cudaStream_t stream);

  // For zero-copy transfers; given back when the communicator ends, or all of it by deregister(). Why the library does not take it; empty if
  // it does.
  std::string register_memory(void* data, std::size_t bytes, Progress& progress);
  ncclResult_t deregister(Progress& progress);

  ncclComm_t get() const { return comm_; }
  bool joined() const { return comm_ != nullptr; }
  const std::string& name() const { return name_; }
  // Together with all ranks, when all work is done.
  ncclResult_t finish(Progress& progress);
  // Kernels that wait for peers end at once; the call waits until what is queued on their streams has, in a group not before its
  // end.
  void abort() noexcept;

 private:
  int device_;
  std::string name_;
  int max_ctas_;
  ncclComm_t comm_ = nullptr;
  CudaEvent last_;
  cudaStream_t last_stream_ = nullptr;
  bool used_ = false;
  std::vector<void*> registered_;
};

}  // namespace trident
