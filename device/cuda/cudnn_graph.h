// cuDNN's backend API (version 9) as values with owners: descriptors, tensors, operations, and the search for an execution plan.
//
// A graph is described operation by operation and then planned for a target: the GPU of a handle, or a GPU described by its
// properties, for which plans can be made (never run) where there is no GPU.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cuda_options.h"

namespace trident {

// Nothing on success. Otherwise one line: `what` it was for, the call, cuDNN's name of the status and its last message, the
// remedy. ConfigError for what the machine or its set-up causes (no memory, libraries missing or of two versions), InternalError
// for the rest.
void check_cudnn(cudnnStatus_t status, std::string_view call, std::string_view what);

// Owner of a backend descriptor.
class CudnnDescriptor {
 public:
  // `what` names the descriptor in errors.
  CudnnDescriptor(cudnnBackendDescriptorType_t type, std::string what);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), what_(std::move(other.what_)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  cudnnBackendDescriptor_t get() const { return handle_; }
  const std::string& what() const { return what_; }

  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    return set(name, type, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  CudnnDescriptor& finalize();
  // Finalizes. A status by which cuDNN says that it does not support this is returned, with the reason; all others are checked.
  cudnnStatus_t try_finalize(std::string* why);
  // Writes at most `room` values; returns how many.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room, void* values) const;
  std::int64_t get_int64(cudnnBackendAttributeName_t name) const;

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
  std::string what_;
};

// A GPU described by cuDNN's JSON of device properties.
CudnnDescriptor cudnn_device_properties(std::string_view json, std::string_view name);

// A plan is for exactly one of the two. Both outlive all plans made with them.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* device = nullptr;
};

// A tensor of four dimensions inside a graph.
struct CudnnTensor {
  const CudnnDescriptor* descriptor = nullptr;
};

using CudnnDims = std::array<std::int64_t, 4>;

// Strides, in elements, of a dense tensor.
CudnnDims dense_strides(const CudnnDims& dims);

// The operations of a graph in the order in which they are added. Every error names the graph.
class CudnnGraph {
 public:
  explicit CudnnGraph(std::string name) : name_(std::move(name)) {}

  // A tensor in device memory, 16-byte aligned, which the caller names by `uid` (below kFirstOwnUid) when the plan is executed.
  CudnnTensor memory(std::int64_t uid, cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides);
  // A scalar in host memory, read while the plan is executed: f32 or i32.
  CudnnTensor scalar(std::int64_t uid, cudnnDataType_t type);
  // A tensor that need not exist.
  CudnnTensor intermediate(cudnnDataType_t type, const CudnnDims& dims);
  CudnnTensor intermediate(cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides);

  // c[b,n,M,N] = a[b,n,M,K] b[b,n,K,N]; a head count that divides another is repeated. Sums in f32.
  CudnnTensor matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c);
  // y = mode(x) or mode(x, b); with BINARY_SELECT y = t ? x : b. A dimension of 1 is repeated.
  CudnnTensor pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y, CudnnTensor t = {},
                        cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  // y = each element's index along `axis` of x.
  CudnnTensor index(CudnnTensor x, std::int64_t axis, CudnnTensor y);
  // Reduces the dimensions that differ; a head count is reduced in groups of neighbours.
  CudnnTensor reduce(cudnnReduceTensorOp_t op, CudnnTensor x, CudnnTensor y);
  // The same elements under y's dimensions and strides: a transposition, or another type.
  CudnnTensor reshape(CudnnTensor x, CudnnTensor y);

  const std::string& name() const { return name_; }

 private:
  friend class CudnnPlan;
  static constexpr std::int64_t kFirstOwnUid = 1000;

  enum class Storage : std::uint8_t { kMemory, kIntermediate, kByValue };
  CudnnTensor tensor(std::int64_t uid, cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides, Storage storage);
  CudnnDescriptor describe(cudnnBackendDescriptorType_t type, std::string_view what) const;
  const CudnnDescriptor& keep(CudnnDescriptor descriptor);
  void add(CudnnDescriptor operation);

  std::string name_;
  std::vector<std::unique_ptr<CudnnDescriptor>> owned_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::int64_t next_uid_ = kFirstOwnUid;
};

// An executable plan with the graph it was made from.
class CudnnPlan {
 public:
  // The first plan of cuDNN's heuristics (mode A), of engines that do not say that they are not deterministic where that is
  // required; without one nullopt, and why the last candidate was none.
  // ConfigError if the machine is to blame: cuDNN compiles kernels, for which it needs NVRTC and a driver of the right version.
  static std::optional<CudnnPlan> find(CudnnGraph graph, const CudnnTarget& target, Determinism determinism,
                                       std::string* why);

  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  std::int64_t engine() const { return engine_; }  // cuDNN's number of the engine that was chosen
  const std::string& name() const { return graph_.name(); }

  // Enqueues the plan on the handle's stream. pointers[i] is device memory (host memory for scalars) of the tensor uids[i].
  void execute(cudnnHandle_t handle, std::span<const std::int64_t> uids, std::span<void* const> pointers, void* workspace) const;

 private:
  CudnnPlan(CudnnGraph graph, CudnnDescriptor plan) : graph_(std::move(graph)), plan_(std::move(plan)) {}

  CudnnGraph graph_;  // keeps every descriptor that the plan was made from
  CudnnDescriptor plan_;
  std::int64_t workspace_bytes_ = 0;
  std::int64_t engine_ = -1;
};

}  // namespace trident
