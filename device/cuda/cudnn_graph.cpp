#include "device/cuda/cudnn_graph.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/check.h"
#include "device/cuda/blamed_error.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

// cuDNN's words about its last error on this thread, on one line.
std::string last_cudnn_message() {
  std::array<char, 1024> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  std::string message = text.data();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message.empty() ? "no further message" : message;
}

bool is_unsupported(cudnnStatus_t status) { return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED; }

Diagnosis diagnose(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
    case CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE:
      return {Blame::kSetup, "all of cuDNN's libraries must be there, of one version"};
    case CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING:
      return {Blame::kSetup, "cuDNN compiles kernels: install NVRTC (libnvrtc) of the CUDA version that cuDNN was made for"};
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
      return {Blame::kSetup, "install a driver that is at least as new as cuDNN's CUDA version"};
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return {Blame::kSetup, "memory is used up: a smaller micro-batch, or end the processes that nvidia-smi lists"};
    default: break;
  }
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED)
    return {Blame::kProgram, "a kernel failed, perhaps an earlier one: CUDA_LAUNCH_BLOCKING=1 shows which"};
  return {Blame::kProgram, "the library was called wrongly"};
}

[[noreturn]] void throw_cudnn_error(cudnnStatus_t status, std::string_view what, std::string_view said) {
  const auto [blame, remedy] = diagnose(status);
  throw_blamed(blame, fmt::format("{}: {}; {}", what, said, remedy));
}

}  // namespace

void check_cudnn(cudnnStatus_t status, std::string_view call, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  const AllocationExemption message;  // an error ends the step
  throw_cudnn_error(status, what, fmt::format("{} returned {}: {}", call, cudnnGetErrorString(status), last_cudnn_message()));
}

// ---- descriptors ----------------------------------------------------------------------------------------------------------------

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type, std::string what) : what_(std::move(what)) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor", what_);
}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(what_, other.what_);
  return *this;
}

CudnnDescriptor::~CudnnDescriptor() {
  if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                                      const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(handle_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    const AllocationExemption message;
    check_cudnn(status, fmt::format("cudnnBackendSetAttribute({})", static_cast<int>(name)), what_);
  }
  return *this;
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  check_cudnn(cudnnBackendFinalize(handle_), "cudnnBackendFinalize", what_);
  return *this;
}

cudnnStatus_t CudnnDescriptor::try_finalize(std::string* why) {
  const cudnnStatus_t status = cudnnBackendFinalize(handle_);
  if (!is_unsupported(status)) check_cudnn(status, "cudnnBackendFinalize", what_);
  if (status != CUDNN_STATUS_SUCCESS) *why = fmt::format("{}: {}", cudnnGetErrorString(status), last_cudnn_message());
  return status;
}

std::int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room,
                                  void* values) const {
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(handle_, name, type, room, &count, values),
              fmt::format("cudnnBackendGetAttribute({})", static_cast<int>(name)), what_);
  return count;
}

std::int64_t CudnnDescriptor::get_int64(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  get(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

CudnnDescriptor cudnn_device_properties(std::string_view json, std::string_view name) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, fmt::format("device properties of {}", name));
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()), json.data());
  device.finalize();
  return device;
}

// ---- graphs
// -----------------------------------------------------------------------------------------------------------------------

CudnnDims dense_strides(const CudnnDims& dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }

CudnnDescriptor CudnnGraph::describe(cudnnBackendDescriptorType_t type, std::string_view what) const {
  return {type, fmt::format("{}: {}", name_, what)};
}

const CudnnDescriptor& CudnnGraph::keep(CudnnDescriptor descriptor) {
  owned_.push_back(std::make_unique<CudnnDescriptor>(std::move(descriptor)));
  return *owned_.back();
}

void CudnnGraph::add(CudnnDescriptor operation) { operations_.push_back(keep(std::move(operation.finalize())).get()); }

CudnnTensor CudnnGraph::tensor(std::int64_t uid, cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides,
                               Storage storage) {
  constexpr std::int64_t kAlignment = 16;
  CudnnDescriptor t = describe(CUDNN_BACKEND_TENSOR_DESCRIPTOR, fmt::format("tensor {}", uid));
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data())
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data())
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, storage == Storage::kIntermediate)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, storage == Storage::kByValue)
      .finalize();
  return {&keep(std::move(t))};
}

CudnnTensor CudnnGraph::memory(std::int64_t uid, cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides) {
  TRIDENT_CHECK(uid >= 0 && uid < kFirstOwnUid, "tensor {} of {}", uid, name_);
  return tensor(uid, type, dims, strides, Storage::kMemory);
}

CudnnTensor CudnnGraph::scalar(std::int64_t uid, cudnnDataType_t type) {
  TRIDENT_CHECK(uid >= 0 && uid < kFirstOwnUid, "scalar {} of {}", uid, name_);
  return tensor(uid, type, {1, 1, 1, 1}, {1, 1, 1, 1}, Storage::kByValue);
}

CudnnTensor CudnnGraph::intermediate(cudnnDataType_t type, const CudnnDims& dims) {
  return intermediate(type, dims, dense_strides(dims));
}

CudnnTensor CudnnGraph::intermediate(cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides) {
  return tensor(next_uid_++, type, dims, strides, Storage::kIntermediate);
}

CudnnTensor CudnnGraph::matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c) {
  CudnnDescriptor product = describe(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul");
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finalize();
  CudnnDescriptor op = describe(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul operation");
  op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c.descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(product)));
  add(std::move(op));
  return c;
}

CudnnTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y, CudnnTensor t,
                                  cudnnDataType_t precision) {
  CudnnDescriptor function = describe(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, fmt::format("pointwise {}", static_cast<int>(mode)));
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision)
      .finalize();
  CudnnDescriptor op =
      describe(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, fmt::format("pointwise operation {}", static_cast<int>(mode)));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(function)))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.descriptor)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y.descriptor);
  if (b.descriptor != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b.descriptor);
  if (t.descriptor != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t.descriptor);
  add(std::move(op));
  return y;
}

CudnnTensor CudnnGraph::index(CudnnTensor x, std::int64_t axis, CudnnTensor y) {
  CudnnDescriptor function = describe(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "index");
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis)
      .finalize();
  CudnnDescriptor op = describe(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "index operation");
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(function)))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.descriptor)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y.descriptor);
  add(std::move(op));
  return y;
}

CudnnTensor CudnnGraph::reduce(cudnnReduceTensorOp_t op, CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor reduction = describe(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  CudnnDescriptor operation = describe(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction operation");
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(reduction)))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.descriptor)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y.descriptor);
  add(std::move(operation));
  return y;
}

CudnnTensor CudnnGraph::reshape(CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor op = describe(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape operation");
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.descriptor).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y.descriptor);
  add(std::move(op));
  return y;
}

// ---- plans
// --------------------------------------------------------------------------------------------------------------------------

namespace {

struct Engine {
  std::int64_t number = -1;
  bool deterministic = true;
};

Engine engine_of(const CudnnDescriptor& config) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, fmt::format("{}: engine", config.what()));
  cudnnBackendDescriptor_t raw = engine.get();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  Engine result{.number = engine.get_int64(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)};
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes.data());
  for (std::int64_t i = 0; i < count; ++i)
    if (notes[static_cast<std::size_t>(i)] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) result.deterministic = false;
  return result;
}

// cuDNN's proposals for a graph, best first.
std::vector<CudnnDescriptor> engine_configs(const CudnnDescriptor& graph, const CudnnTarget& target) {
  constexpr std::int64_t kMost = 16;
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, fmt::format("{}: heuristics", graph.what()));
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.device != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  std::string why;
  if (heuristics.try_finalize(&why) != CUDNN_STATUS_SUCCESS) return {};
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < kMost; ++i)
    raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, fmt::format("{}: proposal {}", graph.what(), i)).get());
  const std::int64_t count =
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, static_cast<void*>(raw.data()));
  configs.erase(configs.begin() + static_cast<std::ptrdiff_t>(count), configs.end());
  return configs;
}

}  // namespace

std::optional<CudnnPlan> CudnnPlan::find(CudnnGraph graph, const CudnnTarget& target, Determinism determinism,
                                         std::string* why) {
  TRIDENT_CHECK((target.handle != nullptr) != (target.device != nullptr), "{}: a plan is for a handle or a described GPU",
                graph.name());
  CudnnDescriptor operations = graph.describe(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
  operations.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(graph.operations_.size()),
                 graph.operations_.data());
  if (target.handle != nullptr) operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  if (operations.try_finalize(why) != CUDNN_STATUS_SUCCESS) return std::nullopt;
  const CudnnDescriptor& kept = graph.keep(std::move(operations));

  *why = "cuDNN proposes no engine";
  std::optional<std::pair<cudnnStatus_t, std::string>> blamed_on_machine;
  for (CudnnDescriptor& config : engine_configs(kept, target)) {
    const Engine engine = engine_of(config);
    if (determinism == Determinism::kRequired && !engine.deterministic) {
      *why = fmt::format("engine {} is not deterministic", engine.number);
      continue;
    }
    CudnnDescriptor plan = graph.describe(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "execution plan");
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (target.handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    if (target.device != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device);
    if (const cudnnStatus_t status = plan.try_finalize(why); status != CUDNN_STATUS_SUCCESS) {
      if (diagnose(status).blame != Blame::kProgram) blamed_on_machine = {status, *why};
      continue;
    }
    const std::int64_t bytes = plan.get_int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    graph.keep(std::move(config));
    CudnnPlan found(std::move(graph), std::move(plan));
    found.workspace_bytes_ = bytes;
    found.engine_ = engine.number;
    return found;
  }
  if (blamed_on_machine) throw_cudnn_error(blamed_on_machine->first, graph.name(), blamed_on_machine->second);
  return std::nullopt;
}

void CudnnPlan::execute(cudnnHandle_t handle, std::span<const std::int64_t> uids, std::span<void* const> pointers,
                        void* workspace) const {
  TRIDENT_CHECK(uids.size() == pointers.size(), "{}: {} tensors, {} pointers", name(), uids.size(), pointers.size());
  // cuDNN's descriptors live on its heap, and this one cannot be used twice: attributes of a final descriptor are fixed.
  const AllocationExemption library;
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, name());
  const auto count = static_cast<std::int64_t>(uids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
      .finalize();
  check_cudnn(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute", name());
}

}  // namespace trident
