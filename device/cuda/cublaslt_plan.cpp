#include "device/cuda/cublaslt_plan.h"

#include <utility>

#include "core/check.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

constexpr cudaDataType_t kScaleType = CUDA_R_32F;  // of alpha and beta

template <class T>
cublasStatus_t set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value));
}

template <class T>
cublasStatus_t set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  return cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
}

}  // namespace

void CublasLtPlan::check(cublasStatus_t status, const char* function) const {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const AllocationExemption message;
  check_cublas(status, fmt::format("{} for {}", function, what_), handle_.device());
}

CublasLtPlan::CublasLtPlan(const CublasLtHandle& handle, const MatmulLayout& layout, std::string what)
    : handle_(handle), layout_(layout), what_(std::move(what)) {
  check(cublasLtMatmulDescInit(&operation_, layout.compute, kScaleType), "cublasLtMatmulDescInit");
  const auto attribute = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(set(operation_, name, value), "cublasLtMatmulDescSetAttribute");
  };
  attribute(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(layout.transpose_a));
  attribute(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(layout.transpose_b));
  attribute(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(layout.epilogue));
  if (layout.multiprocessors > 0) attribute(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, layout.multiprocessors);
  if (layout.bias_length > 0) attribute(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(layout.d.type));
  if (layout.aux_leading > 0) {
    attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, layout.aux_leading);
    attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, static_cast<std::int32_t>(layout.d.type));
  }
  for (const auto& [matrix, m] : {std::pair(&a_, &layout.a), {&b_, &layout.b}, {&d_, &layout.d}}) {
    check(cublasLtMatrixLayoutInit(matrix, m->type, static_cast<std::uint64_t>(m->rows), static_cast<std::uint64_t>(m->columns),
                                   m->leading),
          "cublasLtMatrixLayoutInit");
  }
}

void CublasLtPlan::set_epilogue_pointers(const void* bias, const void* aux) {
  if (layout_.bias_length > 0) check(set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias), "setting the bias pointer");
  if (layout_.aux_leading > 0) check(set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux), "setting the aux pointer");
}

// The heuristic reads from these pointers how they are aligned, and nothing else.
void CublasLtPlan::assume_alignment(std::uint32_t bytes) {
  const auto* const example = reinterpret_cast<const void*>(std::uintptr_t{256} + bytes);
  set_epilogue_pointers(example, example);
}

std::vector<Algorithm> CublasLtPlan::ask(const AlgorithmLimits& limits, int count) {
  assume_alignment(limits.alignments.out);
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(set(preference, name, value), "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(limits.workspace_limit));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, limits.allowed_reductions);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, limits.alignments.in);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, limits.alignments.in);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, limits.alignments.out);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, limits.alignments.out);

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
  int found = 0;
  const AllocationExemption library;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), &operation_, &a_, &b_, &d_, &d_, &preference, count, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};  // as it says "none"
  check(status, "cublasLtMatmulAlgoGetHeuristic");

  std::vector<Algorithm> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result : std::span(results).first(static_cast<std::size_t>(found))) {
    const Algorithm algorithm{result.algo, static_cast<std::int64_t>(result.workspaceSize)};
    if (result.state == CUBLAS_STATUS_SUCCESS && within(algorithm, limits)) algorithms.push_back(algorithm);
  }
  if (!algorithms.empty() || found == 0 || limits.allowed_reductions == CUBLASLT_REDUCTION_SCHEME_NONE) return algorithms;
  AlgorithmLimits whole = limits;  // all of them split the sum too finely
  whole.allowed_reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
  return ask(whole, count);
}

bool CublasLtPlan::within(const Algorithm& algorithm, const AlgorithmLimits& limits) const {
  const auto told = [&](cublasLtMatmulAlgoConfigAttributes_t name, auto& value) {
    return cublasLtMatmulAlgoConfigGetAttribute(&algorithm.data, name, &value, sizeof(value), nullptr) == CUBLAS_STATUS_SUCCESS;
  };
  std::uint32_t scheme = 0;
  std::int32_t parts = 0;
  if (!told(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme) || !told(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, parts)) return false;
  // More parts of a sum than its last block has terms may leave that block out (facebookexperimental/triton, pull request 2767).
  const std::int64_t k = layout_.transpose_a == CUBLAS_OP_N ? layout_.a.columns : layout_.a.rows;
  for (const std::int64_t block : {16, 32, 64, 128})
    if (k % block != 0 && parts > k % block) return false;
  return reduction_allowed(limits.allowed_reductions, scheme) && algorithm.workspace_bytes <= limits.workspace_limit;
}

bool CublasLtPlan::accepts(Algorithm& algorithm, const AlgorithmLimits& limits) {
  assume_alignment(limits.alignments.out);
  cublasLtMatmulHeuristicResult_t result{};
  const AllocationExemption library;
  if (cublasLtMatmulAlgoCheck(handle_.get(), &operation_, &a_, &b_, &d_, &d_, &algorithm.data, &result) != CUBLAS_STATUS_SUCCESS)
    return false;
  algorithm.workspace_bytes = static_cast<std::int64_t>(result.workspaceSize);
  return within(algorithm, limits);
}

void CublasLtPlan::run(const MatmulPointers& pointers, cudaStream_t stream, const Algorithm& algorithm) {
  set_epilogue_pointers(pointers.bias, pointers.aux);
  const AllocationExemption library;  // may load a kernel
  check(cublasLtMatmul(handle_.get(), &operation_, &layout_.alpha, pointers.b, &a_, pointers.a, &b_, &layout_.beta, pointers.out,
                       &d_, pointers.out, &d_, &algorithm.data, pointers.workspace,
                       static_cast<std::size_t>(algorithm.workspace_bytes), stream),
        "cublasLtMatmul");
}

}  // namespace trident
