// The simulated cuBLASLt refuses what the real one refuses: what the tests of products rest on.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/check.h"
#include "device/cuda/cublaslt_handle.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated/runtime.h"

namespace trident {
namespace {

// C[8,6] = A[8,4] B[4,6] by columns; tests change one thing at a time and ask again.
struct ProductCall {
  CublasLtHandle handle{0};
  TestStream stream;
  DeviceTensor a{TestTensor(DType::kF32, {64})}, b{TestTensor(DType::kF32, {64})}, d{TestTensor(DType::kF32, {64})},
      workspace{TestTensor(DType::kU8, {8192})};
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a_layout{}, b_layout{}, c_layout{}, d_layout{};
  cublasLtMatmulPreferenceOpaque_t preference{};
  float alpha = 1, beta = 0;
  const void* a_data = a.view().data();
  const void* b_data = b.view().data();
  const void* c_data = d.view().data();
  void* d_data = d.view().data();
  void* workspace_data = workspace.view().data();
  std::size_t workspace_bytes = 8192;
  cublasLtMatmulAlgo_t algorithm{};

  ProductCall() {
    EXPECT_EQ(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    layout(a_layout, 8, 4);
    layout(b_layout, 4, 6);
    layout(c_layout, 8, 6);
    layout(d_layout, 8, 6);
    EXPECT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
    limit(8192);
    algorithm = proposals().at(0).algo;
  }

  static void layout(cublasLtMatrixLayoutOpaque_t& matrix, std::uint64_t rows, std::uint64_t columns,
                     std::optional<std::int64_t> leading = {}, cudaDataType type = CUDA_R_32F) {
    EXPECT_EQ(cublasLtMatrixLayoutInit(&matrix, type, rows, columns, leading.value_or(static_cast<std::int64_t>(rows))),
              CUBLAS_STATUS_SUCCESS);
  }
  void limit(std::uint64_t bytes) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
              CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value));
  }
  cublasStatus_t ask(std::vector<cublasLtMatmulHeuristicResult_t>& results, int& found) {
    return cublasLtMatmulAlgoGetHeuristic(handle.get(), &operation, &a_layout, &b_layout, &c_layout, &d_layout, &preference,
                                          static_cast<int>(results.size()), results.data(), &found);
  }
  // Returns the proposals that came to something.
  std::vector<cublasLtMatmulHeuristicResult_t> proposals() {
    std::vector<cublasLtMatmulHeuristicResult_t> results(16);
    int found = 0;
    EXPECT_EQ(ask(results, found), CUBLAS_STATUS_SUCCESS);
    results.resize(static_cast<std::size_t>(found));
    std::erase_if(results, [](const auto& r) { return r.state != CUBLAS_STATUS_SUCCESS; });
    return results;
  }
  cublasStatus_t heuristic() {
    std::vector<cublasLtMatmulHeuristicResult_t> results(16);
    int found = 0;
    return ask(results, found);
  }
  cublasStatus_t run() {
    return cublasLtMatmul(handle.get(), &operation, &alpha, a_data, &a_layout, b_data, &b_layout, &beta, c_data, &c_layout, d_data,
                          &d_layout, &algorithm, workspace_data, workspace_bytes, stream.get());
  }
  cudaError_t run_and_wait() {
    EXPECT_EQ(run(), CUBLAS_STATUS_SUCCESS);
    return cudaStreamSynchronize(stream.get());
  }
};

TEST(SimulatedCublasLt, DescriptorsAreInitialised) {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatmulPreferenceOpaque_t preference{};
  const std::int64_t none = 0;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &none, 4), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none, 8),
            CUBLAS_STATUS_INVALID_VALUE);
  const ProductCall call;
  std::int32_t splits = 0;
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&call.algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, nullptr, 0, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, 4u);
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&call.algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, 4, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(splits, 1);
}

TEST(SimulatedCublasLt, LayoutsMustFit) {
  const auto with = [](auto change) {
    ProductCall call;
    change(call);
    const cublasStatus_t asked = call.heuristic();
    EXPECT_EQ(call.run(), asked);
    return asked;
  };
  EXPECT_EQ(with([](ProductCall&) {}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with([](ProductCall& c) { c.layout(c.a_layout, 8, 4, 7); }), CUBLAS_STATUS_INVALID_VALUE) << "columns overlap";
  EXPECT_EQ(with([](ProductCall& c) { c.layout(c.a_layout, 8, 5); }), CUBLAS_STATUS_INVALID_VALUE) << "k differs";
  EXPECT_EQ(with([](ProductCall& c) { c.layout(c.d_layout, 6, 8); }), CUBLAS_STATUS_INVALID_VALUE) << "D is transposed";
  EXPECT_EQ(with([](ProductCall& c) { c.layout(c.c_layout, 8, 7); }), CUBLAS_STATUS_INVALID_VALUE) << "C is no D";
  EXPECT_EQ(with([](ProductCall& c) { c.layout(c.a_layout, 0, 4); }), CUBLAS_STATUS_INVALID_VALUE) << "empty";
  EXPECT_EQ(with([](ProductCall& c) { c.layout(c.a_layout, std::uint64_t{1} << 31, 4); }), CUBLAS_STATUS_NOT_SUPPORTED)
      << "33 bits";
  EXPECT_EQ(with([](ProductCall& c) { c.a_layout = {}; }), CUBLAS_STATUS_INVALID_VALUE) << "never initialised";
  EXPECT_EQ(with([](ProductCall& c) { c.set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_T}); }),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST(SimulatedCublasLt, TypesMustBeSupported) {
  const auto with = [](cudaDataType a, cudaDataType b, cudaDataType d, cublasComputeType_t compute,
                       cudaDataType scale = CUDA_R_32F) {
    ProductCall call;
    call.layout(call.a_layout, 8, 4, 8, a);
    call.layout(call.b_layout, 4, 6, 4, b);
    call.layout(call.c_layout, 8, 6, 8, d);
    call.layout(call.d_layout, 8, 6, 8, d);
    EXPECT_EQ(cublasLtMatmulDescInit(&call.operation, compute, scale), CUBLAS_STATUS_SUCCESS);
    return call.heuristic();
  };
  const cublasComputeType_t f32 = CUBLAS_COMPUTE_32F, tf32 = CUBLAS_COMPUTE_32F_FAST_TF32;
  EXPECT_EQ(with(CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, f32), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, tf32), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, f32), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, f32), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, f32), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with(CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF, f32), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, tf32), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_16F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with(CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, f32, CUDA_R_16BF), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(SimulatedCublasLt, EpiloguesNeedTheirOperands) {
  ProductCall call;
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "no bias";
  const DeviceTensor bias(TestTensor(DType::kF32, {8})), aux(TestTensor(DType::kF32, {64}));
  call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.view().data());
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "no aux";
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.view().data());
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "no leading dimension";
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{12});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "no multiple of 8";
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{8});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, std::int32_t{CUDA_R_16BF});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_NOT_SUPPORTED) << "aux of another type than D";
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, std::int32_t{-1});
  call.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{CUDA_R_16BF});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_NOT_SUPPORTED) << "bias of another type than D";
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_DGELU});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS) << "it has no bias";
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(nullptr));
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "no aux";
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_RELU});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_NOT_SUPPORTED) << "not simulated";
  EXPECT_EQ(cudaStreamSynchronize(call.stream.get()), cudaSuccess);
}

TEST(SimulatedCublasLt, AlgorithmsAreKnownAndHaveTheirWorkspaceAndAlignment) {
  ProductCall call;
  ASSERT_GT(call.proposals().at(0).workspaceSize, 0u);
  call.workspace_bytes = 16;
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "too small a workspace";
  call.workspace_bytes = 4096;
  call.workspace_data = call.workspace.view().data() + 128;
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "workspace not aligned";
  call.workspace_data = call.workspace.view().data();
  EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  call.a_data = call.a.view().data() + 4;
  EXPECT_EQ(call.run(), CUBLAS_STATUS_NOT_SUPPORTED) << "an algorithm for aligned operands";
  const std::uint32_t four = 4;
  cublasLtMatmulPreferenceSetAttribute(&call.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four, sizeof(four));
  call.algorithm = call.proposals().at(0).algo;
  EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  call.algorithm.data[1] ^= 1;
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "no algorithm of this version";
  call.algorithm = {};
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cudaStreamSynchronize(call.stream.get()), cudaSuccess);
}

// Leading dimensions that are no multiple of 16 bytes leave the second column unaligned, whatever the pointers are.
TEST(SimulatedCublasLt, LeadingDimensionsCountForAlignment) {
  ProductCall call;
  const std::size_t before = call.proposals().size();
  call.layout(call.a_layout, 8, 4, 9);
  EXPECT_LT(call.proposals().size(), before);
  EXPECT_GE(call.proposals().size(), 1u);
}

TEST(SimulatedCublasLt, HeuristicsKeepToTheirLimits) {
  ProductCall call;
  call.layout(call.a_layout, 8, 64);
  call.layout(call.b_layout, 64, 6);
  call.limit(std::uint64_t{1} << 30);
  const auto schemes = [&] {
    std::vector<std::uint32_t> found;
    for (const auto& r : call.proposals()) {
      cublasLtMatmulAlgoConfigGetAttribute(&r.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &found.emplace_back(), 4, nullptr);
    }
    return found;
  };
  EXPECT_EQ(schemes(), (std::vector<std::uint32_t>{CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0,
                                                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0, 0, 0, 0, 0, 0, 0}));
  call.limit(std::uint64_t{32} << 20);
  EXPECT_EQ(schemes().size(), 10u);
  const std::uint32_t none = 0;
  cublasLtMatmulPreferenceSetAttribute(&call.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof(none));
  EXPECT_EQ(schemes(), std::vector<std::uint32_t>(7));
  call.limit(0);
  EXPECT_EQ(schemes().size(), 6u);
  std::vector<cublasLtMatmulHeuristicResult_t> nowhere;
  int found = 0;
  EXPECT_EQ(call.ask(nowhere, found), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(SimulatedCublasLt, ResultsOverlapNothingElse) {
  ProductCall call;
  call.d_data = const_cast<void*>(call.a_data), call.c_data = call.d_data;
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "D is A";
  call.d_data = call.d.view().data(), call.c_data = call.d_data;
  call.layout(call.c_layout, 8, 6, 9);
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "in place with another layout";
  call.beta = 1, call.c_data = nullptr;
  EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "nothing to add to";
}

TEST(SimulatedCublasLt, HandlesAndStreamsBelongToTheirDevice) {
  simulated::configure({.devices = 2});
  {
    ProductCall call;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(call.run(), CUBLAS_STATUS_INVALID_VALUE) << "another device is current";
    const TestStream elsewhere;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cublasLtMatmul(call.handle.get(), &call.operation, &call.alpha, call.a_data, &call.a_layout, call.b_data,
                             &call.b_layout, &call.beta, call.c_data, &call.c_layout, call.d_data, &call.d_layout, &call.algorithm,
                             call.workspace_data, call.workspace_bytes, elsewhere.get()),
              CUBLAS_STATUS_INVALID_VALUE)
        << "a stream of another device";
  }
  EXPECT_EQ(cublasLtCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  simulated::reset();
}

// An error that a kernel would run into on the GPU comes back from the stream.
TEST(SimulatedCublasLt, MemoryMustBeTheDevices) {
  const auto with = [](auto change) {
    cudaError_t error = cudaSuccess;
    {
      ProductCall call;
      change(call);
      error = call.run_and_wait();
      simulated::reset();
    }
    return error;
  };
  alignas(256) static float host[64];
  EXPECT_EQ(with([](ProductCall&) {}), cudaSuccess);
  EXPECT_EQ(with([](ProductCall& c) { c.a_data = host; }), cudaErrorIllegalAddress);
  EXPECT_EQ(with([](ProductCall& c) { c.b_data = host; }), cudaErrorIllegalAddress);
  EXPECT_EQ(with([](ProductCall& c) { c.d_data = host, c.c_data = host; }), cudaErrorIllegalAddress);
  EXPECT_EQ(with([](ProductCall& c) { c.c_data = host; }), cudaSuccess) << "C is not read when beta is 0";
  EXPECT_EQ(with([](ProductCall& c) { c.c_data = host, c.beta = 1; }), cudaErrorIllegalAddress);
  EXPECT_EQ(with([](ProductCall& c) { c.a_data = c.a.view().data() + 512; }), cudaErrorIllegalAddress) << "beyond the end";
  EXPECT_EQ(with([](ProductCall& c) { c.workspace_data = host; }), cudaErrorIllegalAddress);
  EXPECT_EQ(with([](ProductCall& c) {
              c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
              void* const bias = host;
              c.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
            }),
            cudaErrorIllegalAddress);
}

}  // namespace
}  // namespace trident
