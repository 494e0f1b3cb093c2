// A graph of the simulated cuDNN: its operations, checked for fitting together, and what they compute.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/cuda/simulated/cudnn_descriptors.h"

namespace trident::simulated {

struct CudnnTensorState {
  std::int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<std::int64_t, 4> dims{}, strides{};
  bool is_virtual = false, by_value = false;

  std::int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  // Bytes from its first to its last element.
  std::int64_t extent_bytes() const;
  bool operator==(const CudnnTensorState&) const = default;
};

struct CudnnOperationState {
  cudnnBackendDescriptorType_t kind;
  int mode = 0;  // pointwise or reduction
  std::int64_t axis = -1;
  // Tensors by name, -1: none. matmul: x, b -> y.
  std::int64_t x = -1, b = -1, t = -1, y = -1;
};

enum class SumOrder : std::uint8_t { kAscending, kRandom };

class CudnnGraphState {
 public:
  // From an operation graph that is final. Throws CudnnFailure: extents that do not fit, a name with two meanings, a virtual tensor
  // that nobody writes or reads, an operation before what it reads.
  explicit CudnnGraphState(const CudnnDescriptorState& graph);

  const std::map<std::int64_t, CudnnTensorState>& tensors() const { return tensors_; }
  // A fused attention kernel takes 16-bit operands with rows of a multiple of 8 elements, up to 256.
  bool is_fusable() const;
  // These bytes belong to virtual tensors that such a kernel keeps whole.
  std::int64_t workspace_bytes() const;

  // memory: of every tensor that is not virtual, by name.
  void run(const std::map<std::int64_t, std::byte*>& memory, SumOrder order, std::uint64_t seed) const;

 private:
  std::int64_t add_tensor(const CudnnDescriptorState& tensor);
  void add_operation(const CudnnDescriptorState& operation);
  void check_extents(const CudnnOperationState& operation) const;
  void check_order() const;

  std::map<std::int64_t, CudnnTensorState> tensors_;
  std::vector<CudnnOperationState> operations_;
};

}  // namespace trident::simulated
