#include "tests/cuda/simulated/cublaslt_descriptors.h"

#include <cstdint>
#include <cstring>

#include "tests/cuda/simulated/runtime.h"

namespace trident::simulated {

namespace {

template <class Descriptor, class Opaque>
const Descriptor* as(const Opaque* opaque) {
  static_assert(sizeof(Descriptor) <= sizeof(Opaque));
  const auto* descriptor = reinterpret_cast<const Descriptor*>(opaque);
  return opaque != nullptr && descriptor->magic == Descriptor::kMagic ? descriptor : nullptr;
}

template <class Descriptor, class Opaque>
cublasStatus_t make(Opaque* opaque, std::size_t size, const Descriptor& content, const char* function) {
  if (const auto failure = injected_failure(function)) return static_cast<cublasStatus_t>(*failure);
  if (opaque == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (size < sizeof(Opaque)) return CUBLAS_STATUS_ALLOC_FAILED;
  std::memset(opaque, 0xEE, sizeof(Opaque));
  new (opaque) Descriptor(content);
  return CUBLAS_STATUS_SUCCESS;
}

// Where an attribute is kept, and how large it is.
struct Field {
  void* data = nullptr;
  std::size_t bytes = 0;
};

template <class T>
Field field(T& member) {
  return {&member, sizeof(member)};
}

cublasStatus_t set(Field to, const void* value, std::size_t bytes, const char* function) {
  if (const auto failure = injected_failure(function)) return static_cast<cublasStatus_t>(*failure);
  if (to.data == nullptr || value == nullptr || bytes != to.bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to.data, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

Field find(OperationDescriptor& d, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return field(d.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return field(d.scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return field(d.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA: return field(d.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return field(d.transpose_b);
    case CUBLASLT_MATMUL_DESC_TRANSC: return field(d.transpose_c);
    case CUBLASLT_MATMUL_DESC_FILL_MODE: return field(d.fill);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return field(d.epilogue);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return field(d.multiprocessors);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return field(d.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return field(d.bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return field(d.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return field(d.aux_leading);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return field(d.aux_type);
    default: return {};
  }
}

Field find(PreferenceDescriptor& d, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return field(d.search);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return field(d.max_workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return field(d.reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return field(d.align_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return field(d.align_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return field(d.align_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return field(d.align_d);
    default: return {};
  }
}

}  // namespace

const OperationDescriptor* contents(const cublasLtMatmulDescOpaque_t* operation) { return as<OperationDescriptor>(operation); }
const MatrixDescriptor* contents(const cublasLtMatrixLayoutOpaque_t* matrix) { return as<MatrixDescriptor>(matrix); }
const PreferenceDescriptor* contents(const cublasLtMatmulPreferenceOpaque_t* preference) {
  return as<PreferenceDescriptor>(preference);
}
const AlgorithmDescriptor* contents(const cublasLtMatmulAlgo_t* algorithm) { return as<AlgorithmDescriptor>(algorithm); }

std::size_t element_bytes(std::int32_t cuda_type) {
  if (cuda_type == CUDA_R_32F) return 4;
  return cuda_type == CUDA_R_16BF || cuda_type == CUDA_R_16F ? 2 : 0;
}

}  // namespace trident::simulated

using namespace trident::simulated;

extern "C" {

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  const Call call;
  const OperationDescriptor content{OperationDescriptor::kMagic,
                                    compute,
                                    scale,
                                    CUBLASLT_POINTER_MODE_HOST,
                                    CUBLAS_OP_N,
                                    CUBLAS_OP_N,
                                    CUBLAS_OP_N,
                                    CUBLAS_FILL_MODE_FULL,
                                    CUBLASLT_EPILOGUE_DEFAULT,
                                    -1,
                                    -1,
                                    0,
                                    nullptr,
                                    nullptr,
                                    0};
  return make(operation, size, content, "cublasLtMatmulDescInit");
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const Call call;
  if (contents(operation) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return set(find(*reinterpret_cast<OperationDescriptor*>(operation), attribute), value, bytes, "cublasLtMatmulDescSetAttribute");
}

// Columns that would overlap are refused when the layout is used.
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matrix, size_t size, cudaDataType type, uint64_t rows,
                                                 uint64_t columns, int64_t leading) {
  const Call call;
  const MatrixDescriptor content{
      MatrixDescriptor::kMagic, static_cast<std::uint32_t>(type), CUBLASLT_ORDER_COL, 1, rows, columns, leading};
  return make(matrix, size, content, "cublasLtMatrixLayoutInit");
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  const Call call;
  const PreferenceDescriptor content{
      PreferenceDescriptor::kMagic, CUBLASLT_SEARCH_BEST_FIT, 0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256};
  return make(preference, size, content, "cublasLtMatmulPreferenceInit");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  const Call call;
  if (contents(preference) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return set(find(*reinterpret_cast<PreferenceDescriptor*>(preference), attribute), value, bytes,
             "cublasLtMatmulPreferenceSetAttribute");
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value, size_t bytes,
                                                    size_t* written) {
  const Call call;
  if (const auto failure = injected_failure("cublasLtMatmulAlgoConfigGetAttribute")) return static_cast<cublasStatus_t>(*failure);
  const AlgorithmDescriptor* d = contents(algorithm);
  if (d == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const void* from = nullptr;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID: from = &d->id; break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID: from = &d->tile; break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: from = &d->splits; break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: from = &d->scheme; break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
  constexpr std::size_t kBytes = 4;  // of each of them
  if (bytes == 0 && written == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0 && (value == nullptr || bytes != kBytes)) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0) std::memcpy(value, from, kBytes);
  if (written != nullptr) *written = kBytes;
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
