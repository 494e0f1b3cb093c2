#include "tests/cuda/simulated/cublaslt.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>

#include "tests/cuda/simulated/cublaslt_product.h"
#include "tests/cuda/simulated/launched_kernels.h"
#include "tests/cuda/simulated/runtime.h"

struct cublasLtContext {
  int device = 0;
};

namespace trident::simulated {

namespace {

// Under the simulation's lock.
struct CublasLtLibrary {
  std::set<cublasLtContext*> handles;
  CublasLtCounts counts;
};
CublasLtLibrary& cublaslt_library() {
  static CublasLtLibrary library;
  return library;
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kWorkspaceAlignment = 256;

constexpr AlgorithmDescriptor algorithm(std::int32_t id, std::uint32_t tile, std::int32_t splits, std::uint32_t scheme,
                                        std::uint64_t extra_workspace, std::uint32_t aligned_operands = AlgorithmDescriptor::kAll) {
  return {AlgorithmDescriptor::kMagic, tile, scheme, 16, aligned_operands, id, splits, 0, CUBLAS_VERSION, extra_workspace};
}

// From what the library would call fastest on. Even tiles go through K forwards, odd ones backwards.
constexpr std::array<AlgorithmDescriptor, 12> kAlgorithms = {{
    algorithm(66, CUBLASLT_MATMUL_TILE_128x128, 4, CUBLASLT_REDUCTION_SCHEME_INPLACE, 65536),
    algorithm(67, CUBLASLT_MATMUL_TILE_128x64, 3, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0),
    algorithm(68, CUBLASLT_MATMUL_TILE_256x128, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 48 * kMiB),
    algorithm(72, CUBLASLT_MATMUL_TILE_64x64, 12, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0),
    algorithm(69, CUBLASLT_MATMUL_TILE_64x64, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0),
    algorithm(70, CUBLASLT_MATMUL_TILE_128x256, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 1024),
    algorithm(71, CUBLASLT_MATMUL_TILE_128x128, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0),
    algorithm(20, CUBLASLT_MATMUL_TILE_64x32, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, AlgorithmDescriptor::kA),
    algorithm(21, CUBLASLT_MATMUL_TILE_64x32, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, AlgorithmDescriptor::kB),
    algorithm(22, CUBLASLT_MATMUL_TILE_64x32, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, AlgorithmDescriptor::kC),
    algorithm(23, CUBLASLT_MATMUL_TILE_64x32, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, AlgorithmDescriptor::kD),
    algorithm(13, CUBLASLT_MATMUL_TILE_32x32, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0),
}};

// Columns that begin where the first does not are as aligned as the leading dimension lets them be.
bool aligned(const MatrixDescriptor& matrix, std::uint64_t bytes, std::uint64_t base) {
  if (base % bytes != 0) return false;
  const std::uint64_t column = static_cast<std::uint64_t>(matrix.leading) * element_bytes(static_cast<std::int32_t>(matrix.type));
  return matrix.columns == 1 || column % bytes == 0;
}

std::uint64_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// Where operands lie: actual addresses, or what the heuristic may assume of them.
struct Addresses {
  std::uint64_t a, b, c, d;
};

bool takes(const AlgorithmDescriptor& algorithm, const OperationDescriptor& operation, const MatrixDescriptor& a,
           const MatrixDescriptor& b, const MatrixDescriptor& c, const MatrixDescriptor& d, const Addresses& at) {
  const auto unaligned = [&](AlgorithmDescriptor::Operand operand, const MatrixDescriptor& matrix, std::uint64_t where) {
    return (algorithm.aligned_operands & operand) != 0 && !aligned(matrix, algorithm.alignment, where);
  };
  if (unaligned(AlgorithmDescriptor::kA, a, at.a) || unaligned(AlgorithmDescriptor::kB, b, at.b) ||
      unaligned(AlgorithmDescriptor::kC, c, at.c) || unaligned(AlgorithmDescriptor::kD, d, at.d))
    return false;
  // The heuristic takes the pointers of an epilogue for examples.
  return (algorithm.aligned_operands & AlgorithmDescriptor::kD) == 0 ||
         (address(operation.bias) % algorithm.alignment == 0 && address(operation.aux) % algorithm.alignment == 0);
}

bool has_algorithm(const AlgorithmDescriptor& algorithm) {
  const auto same = [&](const AlgorithmDescriptor& known) { return std::memcmp(&known, &algorithm, sizeof(known)) == 0; };
  return std::any_of(kAlgorithms.begin(), kAlgorithms.end(), same);
}

// A split of K needs something to split, many parts a whole block each.
bool fits(const AlgorithmDescriptor& algorithm, const OperationDescriptor& operation, const MatrixDescriptor& a) {
  const std::uint64_t k = operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows;
  return algorithm.splits == 1 || k >= (algorithm.splits > 4 ? 64 : 4) * static_cast<std::uint64_t>(algorithm.splits);
}

bool is_handle(cublasLtHandle_t handle) { return cublaslt_library().handles.count(handle) != 0; }

struct Descriptors {
  const OperationDescriptor* operation;
  const MatrixDescriptor *a, *b, *c, *d;

  cublasStatus_t check() const {
    if (operation == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    return check_product(*operation, *a, *b, *c, *d);
  }
};

cublasStatus_t enter(const char* function, cublasLtHandle_t handle) {
  if (const auto failure = injected_failure(function)) return static_cast<cublasStatus_t>(*failure);
  if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  // A handle is for the device that was current when it was made.
  return current_device() == handle->device ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// Memory of another device, or of the host, or not there any more: what the kernel would find.
void require_memory(int device, const void* data, std::size_t bytes) {
  if (!is_device_memory(data, bytes) || memory_device(data) != device) throw DeviceFailure{cudaErrorIllegalAddress};
}

// The library launches this for such a product.
std::string kernel_of(const Product& p) {
  const OperationDescriptor& o = p.operation;
  std::string name = "cuBLASLt:";
  for (const auto part : {std::int64_t{p.algorithm.id}, std::int64_t{p.algorithm.tile}, std::int64_t{o.compute},
                          std::int64_t{o.transpose_a}, std::int64_t{o.transpose_b}, std::int64_t{o.epilogue},
                          std::int64_t{p.a.type}, std::int64_t{p.d.type}, static_cast<std::int64_t>(p.d.rows),
                          static_cast<std::int64_t>(p.d.columns), p.a.leading})
    name += fmt::format(" {}", part);
  return name;
}

bool overlap(const void* x, std::size_t x_bytes, const void* y, std::size_t y_bytes) {
  return address(x) < address(y) + y_bytes && address(y) < address(x) + x_bytes;
}

void execute(int device, const Product& p, const void* workspace, std::size_t workspace_size) {
  require_memory(device, p.a_data, extent_bytes(p.a));
  require_memory(device, p.b_data, extent_bytes(p.b));
  require_memory(device, p.d_data, extent_bytes(p.d));
  if (p.beta != 0) require_memory(device, p.c_data, extent_bytes(p.c));
  if (workspace_size > 0) require_memory(device, workspace, workspace_size);
  const OperationDescriptor& o = p.operation;
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && o.epilogue != CUBLASLT_EPILOGUE_DGELU) {
    const std::int64_t length = o.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n() : p.m();
    require_memory(device, o.bias, static_cast<std::size_t>(length) * element_bytes(static_cast<std::int32_t>(p.d.type)));
  }
  if (o.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || o.epilogue == CUBLASLT_EPILOGUE_DGELU) {
    MatrixDescriptor aux = p.d;
    aux.leading = o.aux_leading;
    require_memory(device, o.aux, extent_bytes(aux));
  }
  // Their kernels may load them so, whatever the heuristic promised.
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && (address(o.bias) % 16 != 0 || address(o.aux) % 16 != 0))
    throw DeviceFailure{cudaErrorMisalignedAddress};
  // Another product that uses the same workspace at the same time finds rubbish in it; so does the one that reads it now.
  if (workspace_size > 0) std::memset(const_cast<void*>(workspace), 0xAB, workspace_size);
  compute(p);
}

}  // namespace

CublasLtCounts cublaslt_counts() {
  const Call call;
  CublasLtCounts counts = cublaslt_library().counts;
  counts.handles = static_cast<std::int64_t>(cublaslt_library().handles.size());
  return counts;
}

}  // namespace trident::simulated

using namespace trident::simulated;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const LibraryCall call;
  if (const auto failure = injected_failure("cublasLtCreate")) return static_cast<cublasStatus_t>(*failure);
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (settings().driver != Driver::kPresent || settings().devices == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = *cublaslt_library().handles.insert(new cublasLtContext{current_device()}).first;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const LibraryCall call;
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (cublaslt_library().handles.erase(handle) == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS ? "success" : "simulated"; }

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  const LibraryCall call;
  if (const cublasStatus_t status = enter("cublasLtMatmulAlgoGetHeuristic", handle); status != CUBLAS_STATUS_SUCCESS) return status;
  const Descriptors ds{contents(operation), contents(a), contents(b), contents(c), contents(d)};
  const PreferenceDescriptor* limits = contents(preference);
  if (requested <= 0 || results == nullptr || returned == nullptr || limits == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = ds.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  ++cublaslt_library().counts.heuristics;
  const std::span<cublasLtMatmulHeuristicResult_t> places(results, static_cast<std::size_t>(requested));
  for (cublasLtMatmulHeuristicResult_t& place : places) place.state = CUBLAS_STATUS_NOT_INITIALIZED;
  std::size_t count = 0;
  // A proposal that came to nothing.
  if (places.size() > 1) places[count++].state = CUBLAS_STATUS_NOT_SUPPORTED;
  for (const AlgorithmDescriptor& algorithm : kAlgorithms) {
    if (count == places.size()) break;
    const bool takes_operands = takes(algorithm, *ds.operation, *ds.a, *ds.b, *ds.c, *ds.d,
                                      {limits->align_a, limits->align_b, limits->align_c, limits->align_d});
    const std::uint64_t workspace = workspace_bytes(algorithm, *ds.d);
    if (!takes_operands || !fits(algorithm, *ds.operation, *ds.a) || workspace > limits->max_workspace ||
        (algorithm.scheme & ~limits->reductions) != 0)
      continue;
    cublasLtMatmulHeuristicResult_t& place = places[count++];
    std::memset(&place, 0, sizeof(place));
    std::memcpy(&place.algo, &algorithm, sizeof(algorithm));
    place.workspaceSize = workspace;
    place.wavesCount = 1.0f;
  }
  *returned = static_cast<int>(count);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  const LibraryCall call;
  if (const cublasStatus_t status = enter("cublasLtMatmulAlgoCheck", handle); status != CUBLAS_STATUS_SUCCESS) return status;
  const Descriptors ds{contents(operation), contents(a), contents(b), contents(c), contents(d)};
  const AlgorithmDescriptor* chosen = contents(algorithm);
  if (result == nullptr || chosen == nullptr || !has_algorithm(*chosen)) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = ds.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!fits(*chosen, *ds.operation, *ds.a)) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = workspace_bytes(*chosen, *ds.d);
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_size, cudaStream_t stream) {
  const LibraryCall call;
  if (const cublasStatus_t status = enter("cublasLtMatmul", handle); status != CUBLAS_STATUS_SUCCESS) return status;
  const Descriptors ds{contents(operation), contents(a_layout), contents(b_layout), contents(c_layout), contents(d_layout)};
  const AlgorithmDescriptor* chosen = contents(algorithm);
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr || chosen == nullptr ||
      !has_algorithm(*chosen))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = ds.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  if (stream_device(stream) != handle->device || !fits(*chosen, *ds.operation, *ds.a)) return CUBLAS_STATUS_INVALID_VALUE;
  const std::size_t needed = workspace_bytes(*chosen, *ds.d);
  if (needed > 0 && (workspace_size < needed || workspace == nullptr || address(workspace) % kWorkspaceAlignment != 0))
    return CUBLAS_STATUS_INVALID_VALUE;

  Product p{*ds.operation, *ds.a, *ds.b, *ds.c, *ds.d, *chosen, a, b, c, d};
  std::memcpy(&p.alpha, alpha, sizeof(float));
  std::memcpy(&p.beta, beta, sizeof(float));
  if (p.beta != 0 && c == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  // In place means the same matrix; the inputs are another.
  if (c == d && std::memcmp(ds.c, ds.d, sizeof(*ds.c)) != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (overlap(d, extent_bytes(p.d), a, extent_bytes(p.a)) || overlap(d, extent_bytes(p.d), b, extent_bytes(p.b)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const std::uint64_t c_address = p.beta != 0 ? address(c) : 0;  // else it is not read
  if (!takes(*chosen, p.operation, p.a, p.b, p.c, p.d, {address(a), address(b), c_address, address(d)}))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  p.number = static_cast<std::uint64_t>(cublaslt_library().counts.products++);
  cublaslt_library().counts.fused += p.operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  cublaslt_library().counts.last_algorithm = chosen->id;
  cublaslt_library().counts.last_multiprocessors = p.operation.multiprocessors;
  note_library_kernel(handle->device, kernel_of(p));
  enqueue(stream, "cublasLtMatmul", [p, device = handle->device, workspace, needed] { execute(device, p, workspace, needed); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
