// cuBLASLt's descriptors take what our plans write into them. Built twice: against the simulated library and, where it is
// installed, the real one, whose descriptors need neither a driver nor a GPU. So the simulation's idea of an attribute's size is
// the library's own.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

template <class T>
struct Attribute {
  T name;
  std::size_t bytes;
};

TEST(CublasLtDescriptors, OperationAttributesHaveTheirSize) {
  cublasLtMatmulDescOpaque_t operation{};
  ASSERT_EQ(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  const std::vector<Attribute<cublasLtMatmulDescAttributes_t>> attributes = {
      {CUBLASLT_MATMUL_DESC_TRANSA, 4},          {CUBLASLT_MATMUL_DESC_TRANSB, 4},
      {CUBLASLT_MATMUL_DESC_EPILOGUE, 4},        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4},
      {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8},    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 8},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8}, {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 4},
      {CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 4},    {CUBLASLT_MATMUL_DESC_SCALE_TYPE, 4},
      {CUBLASLT_MATMUL_DESC_POINTER_MODE, 4},    {CUBLASLT_MATMUL_DESC_TRANSC, 4},
      {CUBLASLT_MATMUL_DESC_FILL_MODE, 4},
  };
  const std::int64_t value = 0;
  for (const auto& [name, bytes] : attributes) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&operation, name, &value, bytes), CUBLAS_STATUS_SUCCESS) << name;
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&operation, name, &value, 12 - bytes), CUBLAS_STATUS_INVALID_VALUE) << name;
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&operation, name, nullptr, bytes), CUBLAS_STATUS_INVALID_VALUE) << name;
  }
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(&operation, static_cast<cublasLtMatmulDescAttributes_t>(999), &value, 4),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtDescriptors, PreferencesHaveTheirSize) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  const std::vector<Attribute<cublasLtMatmulPreferenceAttributes_t>> attributes = {
      {CUBLASLT_MATMUL_PREF_SEARCH_MODE, 4},           {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4}, {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4}, {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4},
  };
  const std::int64_t value = 0;
  for (const auto& [name, bytes] : attributes) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(&preference, name, &value, bytes), CUBLAS_STATUS_SUCCESS) << name;
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(&preference, name, &value, 12 - bytes), CUBLAS_STATUS_INVALID_VALUE) << name;
  }
}

TEST(CublasLtDescriptors, SpaceThatIsTooSmallIsRefused) {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t matrix{};
  cublasLtMatmulPreferenceOpaque_t preference{};
  EXPECT_EQ(cublasLtMatmulDescInit_internal(&operation, 8, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(cublasLtMatrixLayoutInit_internal(&matrix, 8, CUDA_R_32F, 4, 4, 4), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(cublasLtMatmulPreferenceInit_internal(&preference, 8), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(cublasLtMatrixLayoutInit(&matrix, CUDA_R_16BF, 8, 4, 8), CUBLAS_STATUS_SUCCESS);
}

TEST(CublasLtDescriptors, AlgorithmsAreAskedWithTheirSize) {
  const cublasLtMatmulAlgo_t none{};
  const std::int64_t eight = 0;
  std::uint32_t scheme = 0;
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&none, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, nullptr, 4, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&none, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, const_cast<std::int64_t*>(&eight), 8,
                                                 nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&none, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, 0, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtDescriptors, NothingGoesWithoutAHandle) {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t matrix{};
  cublasLtMatmulPreferenceOpaque_t preference{};
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  ASSERT_EQ(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatrixLayoutInit(&matrix, CUDA_R_32F, 4, 4, 4), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(
      cublasLtMatmulAlgoGetHeuristic(nullptr, &operation, &matrix, &matrix, &matrix, &matrix, &preference, 1, &result, &found),
      CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasLtDestroy(nullptr), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtDescriptors, StatusesHaveNames) {
  for (const auto& [status, name] : {std::pair(CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS"),
                                     {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED"},
                                     {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"},
                                     {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
                                     {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH"},
                                     {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR"},
                                     {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
                                     {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"},
                                     {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"},
                                     {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR"}}) {
    EXPECT_EQ(std::string(cublasLtGetStatusName(status)), name);
    EXPECT_FALSE(std::string(cublasLtGetStatusString(status)).empty());
  }
}

}  // namespace
