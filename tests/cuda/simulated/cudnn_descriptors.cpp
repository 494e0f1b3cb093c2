#include "tests/cuda/simulated/cudnn_descriptors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

namespace trident::simulated {

namespace {

enum class Need : std::uint8_t { kRequired, kOptional };

// An attribute that a descriptor may have.
struct Known {
  cudnnBackendDescriptorType_t descriptor;
  int name;
  cudnnBackendAttributeType_t type;
  std::int64_t least, most;
  Need need;
  int refers_to = -1;  // the type of descriptor, -1: an operation
};

constexpr std::int64_t kMany = 1 << 20;
constexpr auto kReference = CUDNN_TYPE_BACKEND_DESCRIPTOR;
constexpr auto kInt64 = CUDNN_TYPE_INT64;
constexpr auto kMust = Need::kRequired;
constexpr auto kMay = Need::kOptional;
constexpr int kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR, kOperation = -1;

constexpr Known kKnown[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kInt64, 1, 1, kMust},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, kMust},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, kInt64, 4, 4, kMust},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, kInt64, 4, 4, kMust},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt64, 1, 1, kMust},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1, kMay},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, 1, kMay},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, kMust},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, kReference, 1, 1, kMust,
     CUDNN_BACKEND_MATMUL_DESCRIPTOR},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1, kMust},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, kMust},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, kInt64, 1, 1, kMay},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kReference, 1, 1, kMust,
     CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kReference, 1, 1, kMay, kTensor},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kReference, 1, 1, kMay, kTensor},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1, kMust},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, kMust},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kReference, 1, 1, kMust,
     CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kReference, 1, 1, kMust, kTensor},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, kReference, 1, kMany, kMust, kOperation},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, kMust},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kReference, 1, 1, kMust,
     CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, kMust},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kReference, 1, 1, kMust,
     CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, kMust},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kInt64, 1, kMany, kMust},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, kMany, kMust},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, kMust},
};

[[noreturn]] void reject(cudnnStatus_t status, std::string text) { throw CudnnFailure{status, std::move(text)}; }

const Known& known_attribute(const CudnnDescriptorState& descriptor, int name) {
  for (const Known& known : kKnown)
    if (known.descriptor == descriptor.type && known.name == name) return known;
  reject(CUDNN_STATUS_BAD_PARAM,
       fmt::format("descriptors of type {} have no attribute {} to set", static_cast<int>(descriptor.type), name));
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR || type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR || type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

void finalize_tensor(const CudnnDescriptorState& tensor) {
  const auto dims = tensor.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = tensor.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] < 1 || strides[i] < 1) reject(CUDNN_STATUS_BAD_PARAM, "a tensor's dimensions and strides are positive");
  const auto flag = [&](int name) { return tensor.has(name) && tensor.value<bool>(name); };
  if (flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && flag(CUDNN_ATTR_TENSOR_IS_BY_VALUE))
    reject(CUDNN_STATUS_BAD_PARAM, "a tensor that is virtual and by value");
  if (tensor.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) != 16)
    reject(CUDNN_STATUS_NOT_SUPPORTED, "an alignment other than 16");
}

}  // namespace

std::size_t attribute_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    default: return 4;
  }
}

void set_attribute(CudnnDescriptorState& descriptor, int name, cudnnBackendAttributeType_t type, std::int64_t count,
                   const void* values, std::vector<CudnnReference> references) {
  if (descriptor.final) reject(CUDNN_STATUS_BAD_PARAM, "the descriptor is final");
  const Known& known = known_attribute(descriptor, name);
  if (values == nullptr) reject(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no values");
  if (type != known.type)
    reject(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
         fmt::format("attribute {} has type {}, not {}", name, static_cast<int>(known.type), static_cast<int>(type)));
  if (count < known.least || count > known.most)
    reject(CUDNN_STATUS_BAD_PARAM, fmt::format("attribute {} with {} values", name, count));
  for (const CudnnReference& reference : references) {
    const bool fits =
        known.refers_to == kOperation ? is_operation(reference->type) : static_cast<int>(reference->type) == known.refers_to;
    if (!fits)
      reject(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
           fmt::format("attribute {} refers to a descriptor of type {}", name, static_cast<int>(reference->type)));
  }
  const auto* bytes = static_cast<const std::byte*>(values);
  descriptor.attributes[name] = {
      type, {bytes, bytes + static_cast<std::size_t>(count) * attribute_bytes(type)}, std::move(references)};
}

void finalize(CudnnDescriptorState& descriptor) {
  if (descriptor.final) reject(CUDNN_STATUS_BAD_PARAM, "the descriptor is final already");
  bool has_any = false;
  for (const Known& known : kKnown) {
    if (known.descriptor != descriptor.type) continue;
    has_any = true;
    if (known.need == kMust && !descriptor.has(known.name))
      reject(CUDNN_STATUS_BAD_PARAM,
           fmt::format("attribute {} of a descriptor of type {} is missing", known.name, static_cast<int>(descriptor.type)));
  }
  if (!has_any)
    reject(CUDNN_STATUS_NOT_SUPPORTED,
         fmt::format("descriptors of type {} are not finalized by callers", static_cast<int>(descriptor.type)));
  for (const auto& [name, attribute] : descriptor.attributes)
    for (const CudnnReference& reference : attribute.references)
      if (!reference->final)
        reject(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, fmt::format("attribute {} refers to a descriptor that is not final", name));
  if (descriptor.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) finalize_tensor(descriptor);
  if (descriptor.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR &&
      descriptor.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() !=
          descriptor.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
    reject(CUDNN_STATUS_BAD_PARAM, "unequal numbers of names and pointers");
  descriptor.final = true;
}

}  // namespace trident::simulated
