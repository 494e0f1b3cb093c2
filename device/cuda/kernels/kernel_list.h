// Every kernel of this program, so that a GPU can have all of them before it needs the first.
//
// CUDA brings a kernel to the GPU when it is first asked for, and may wait until the GPU is idle to do so. Where a kernel of NCCL waits for
// a peer, and the peer's host waits in the same way, that never is.
#pragma once

namespace trident::cuda_kernels {

// A kernel of the list, which is complete when the program's own code begins and does not change after.
class ListedKernel {
 public:
  explicit ListedKernel(const void* function) noexcept : function_(function), next_(first_) { first_ = this; }
  ListedKernel(const ListedKernel&) = delete;
  ListedKernel& operator=(const ListedKernel&) = delete;

  static const ListedKernel* first() { return first_; }
  const ListedKernel* next() const { return next_; }
  const void* function() const { return function_; }

 private:
  static const ListedKernel* first_;
  const void* function_;
  const ListedKernel* next_;
};

// A kernel as launch() takes it: what is named with this is in the list, whether it is ever launched or not.
template <auto kernel>
const ListedKernel kListed(reinterpret_cast<const void*>(kernel));
template <auto kernel>
auto listed() {
  static_cast<void>(&kListed<kernel>);
  return kernel;
}

}  // namespace trident::cuda_kernels
