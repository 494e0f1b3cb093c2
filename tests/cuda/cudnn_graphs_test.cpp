// cuDNN's graphs by themselves: how plans are searched for.
#include <gtest/gtest.h>

#include <cstdint>

#include "device/cuda/cudnn_attention_graphs.h"
#include "device/cuda/cudnn_handle.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

AttentionShape shape() {
  AttentionShape s;
  s.batch = 3, s.query_heads = 4, s.kv_heads = 2, s.query_length = 12, s.key_length = 16, s.head_dim = 8;
  s.dtype = DType::kBF16, s.causal = true, s.scale = 0.35f;
  return s;
}

TEST(CudnnPlan, IsDeterministicWhereThatIsRequired) {
  const CudnnHandle handle(0);
  const auto graph = [&] { return attention_backward_graph(shape(), Determinism::kRequired); };
  std::string why;
  const auto any = CudnnPlan::find(graph(), {.handle = handle.get()}, Determinism::kNotRequired, &why);
  ASSERT_TRUE(any);
  EXPECT_EQ(any->engine(), 9);  // cuDNN's favourite that can be planned
  const auto deterministic = CudnnPlan::find(graph(), {.handle = handle.get()}, Determinism::kRequired, &why);
  ASSERT_TRUE(deterministic);
  EXPECT_EQ(deterministic->engine(), 6);
}

TEST(CudnnPlan, ATargetIsAHandleOrADescribedGpu) {
  std::string why;
  EXPECT_THROW(CudnnPlan::find(attention_forward_graph(shape()), {}, Determinism::kRequired, &why), InternalError);
}

// A shape that cuDNN does not take has no plan; a machine on which cuDNN cannot make plans is an error.
TEST(CudnnPlan, WhatTheMachineLacksIsNotMistakenForTheShape) {
  const CudnnHandle handle(0);
  std::string why;
  const auto find = [&] {
    return CudnnPlan::find(attention_forward_graph(shape()), {.handle = handle.get()}, Determinism::kRequired, &why);
  };
  // Engine 9 is passed over: 1 and 6 are what is left.
  simulated::fail_next("execution plan", CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
  EXPECT_TRUE(find());  // another engine works
  simulated::fail_next("execution plan", CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, 1);
  const std::string missing = error_of<ConfigError>(find);
  EXPECT_TRUE(contains(missing, "attention forward B3 N4 K2 Sq12 Sk16 D8 causal bf16: CUDNN_STATUS_NOT_SUPPORTED")) << missing;
  EXPECT_TRUE(contains(missing, "; cuDNN compiles kernels: install NVRTC (libnvrtc)")) << missing;
  simulated::fail_next("execution plan", CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER, 1);
  EXPECT_TRUE(contains(error_of<ConfigError>(find), "; install a driver that is at least as new"));
  simulated::fail_next("execution plan", CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED);
  EXPECT_TRUE(contains(error_of<ConfigError>(find), "; all of cuDNN's libraries must be there, of one version"));
  simulated::fail_next("execution plan", CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
  EXPECT_TRUE(contains(error_of<ConfigError>(find), "; memory is used up: a smaller micro-batch"));
  simulated::fail_next("execution plan", CUDNN_STATUS_NOT_SUPPORTED_SHAPE, 1);
  EXPECT_FALSE(find());
  simulated::fail_next("execution plan", CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(contains(error_of<InternalError>(find), "; the library was called wrongly"));
  simulated::reset();
}

TEST(CudnnPlan, TensorsThatDoNotFitAreNamed) {
  CudnnGraph graph("a test's graph");
  const CudnnTensor a = graph.memory(1, CUDNN_DATA_BFLOAT16, {1, 1, 8, 16}, dense_strides({1, 1, 8, 16}));
  const CudnnTensor b = graph.memory(2, CUDNN_DATA_BFLOAT16, {1, 1, 8, 16}, dense_strides({1, 1, 8, 16}));
  graph.matmul(a, b, graph.memory(3, CUDNN_DATA_FLOAT, {1, 1, 8, 16}, dense_strides({1, 1, 8, 16})));
  const CudnnHandle handle(0);
  std::string why;
  const std::string text = error_of<InternalError>([&] {
    CudnnPlan::find(std::move(graph), {.handle = handle.get()}, Determinism::kNotRequired, &why);
  });
  EXPECT_TRUE(contains(text, "a test's graph: operation graph: cudnnBackendFinalize returned CUDNN_STATUS_BAD_PARAM")) << text;
  EXPECT_THROW(CudnnGraph("names").memory(1000, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}), InternalError);
}

}  // namespace
}  // namespace trident
