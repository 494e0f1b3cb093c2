// cuDNN's graphs by themselves: samples of different lengths, padded or packed, which no layer asks for yet; how plans are searched
// for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "device/cuda/cudnn_attention_graphs.h"
#include "device/cuda/cudnn_handle.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/support/error_text.h"
#include "tests/support/reference_attention.h"

namespace trident {
namespace {

using namespace attention_tensor;

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// Device memory with the given values, of i32 or bf16 or f32 (TestTensor has no i32).
class Memory {
 public:
  template <class T>
  explicit Memory(const std::vector<T>& values) : buffer_(allocate_cuda(0, bytes(values), "test")) {
    check_cuda(cudaMemcpy(buffer_.data(), values.data(), static_cast<std::size_t>(bytes(values)), cudaMemcpyHostToDevice), "test");
    check_cuda(cudaDeviceSynchronize(), "test");
  }
  void* data() const { return buffer_.data(); }

 private:
  template <class T>
  static std::int64_t bytes(const std::vector<T>& values) {
    return static_cast<std::int64_t>(values.size() * sizeof(T));
  }
  Buffer buffer_;
};

// Samples of their own lengths in one shape.
struct Samples {
  SequenceLengths kind;
  AttentionShape shape;
  std::vector<std::int32_t> queries, keys;

  bool packed() const { return kind == SequenceLengths::kPacked; }
  // Elements before the first of a sample, head and row.
  std::int64_t at(const std::vector<std::int32_t>& lengths, std::int64_t heads, std::int64_t longest, std::int64_t sample,
                  std::int64_t head, std::int64_t row) const {
    const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.begin() + sample, std::int64_t{0});
    return (packed() ? (tokens + row) * heads + head : (sample * heads + head) * longest + row) * shape.head_dim;
  }
  std::int64_t query_at(std::int64_t sample, std::int64_t head, std::int64_t row) const {
    return at(queries, shape.query_heads, shape.query_length, sample, head, row);
  }
  std::int64_t key_at(std::int64_t sample, std::int64_t head, std::int64_t row) const {
    return at(keys, shape.kv_heads, shape.key_length, sample, head, row);
  }
  std::int64_t query_elements() const {
    return packed() ? query_at(shape.batch, 0, 0) : shape.batch * shape.query_heads * shape.query_length * shape.head_dim;
  }
  std::int64_t key_elements() const {
    return packed() ? key_at(shape.batch, 0, 0) : shape.batch * shape.kv_heads * shape.key_length * shape.head_dim;
  }
  std::vector<std::int32_t> offsets(const std::vector<std::int32_t>& lengths, std::int64_t heads) const {
    std::vector<std::int32_t> result = {0};
    for (const std::int32_t n : lengths) result.push_back(result.back() + n * static_cast<std::int32_t>(heads * shape.head_dim));
    return result;
  }
};

struct Named {
  std::int64_t uid;
  void* data;
};

void execute(const CudnnHandle& handle, const TestStream& stream, CudnnGraph graph, bool deterministic,
             const std::vector<Named>& tensors) {
  std::string why;
  const auto plan = CudnnPlan::find(std::move(graph), {.handle = handle.get()}, {kUnlimited, deterministic}, &why);
  ASSERT_TRUE(plan) << why;
  const DeviceTensor workspace(TestTensor(DType::kU8, {plan->workspace_bytes()}));
  std::vector<std::int64_t> uids;
  std::vector<void*> pointers;
  for (const Named& tensor : tensors) {
    uids.push_back(tensor.uid);
    pointers.push_back(tensor.data);
  }
  handle.use(stream.get());
  plan->execute(handle.get(), uids, pointers, workspace.view().data());
  stream.synchronize();
  EXPECT_TRUE(workspace.guards_intact());
}

// One sample's share of `x`, with heads as `at` says.
template <class At>
std::vector<double> cut(const TestTensor& x, std::int64_t heads, std::int64_t rows, std::int64_t width, At&& at) {
  std::vector<double> result;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t d = 0; d < width; ++d) result.push_back(x.at(at(head, row) + d));
  return result;
}

void expect_close(const char* what, const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 1e-3;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance * largest) << what << " " << i;
}

struct Results {
  TestTensor out, lse, d_q, d_k, d_v;
};

Results run(const Samples& samples, AttentionDeterminism determinism, const TestTensor& q, const TestTensor& k, const TestTensor& v,
            const TestTensor& d_out) {
  const CudnnHandle handle(0);
  const TestStream stream;
  const AttentionShape& s = samples.shape;
  TestTensor nan_q(DType::kBF16, q.view().shape()), nan_k(DType::kBF16, k.view().shape()),
      nan_lse(DType::kF32, {s.batch, s.query_heads, s.query_length});
  for (TestTensor* x : {&nan_q, &nan_k, &nan_lse}) x->fill(std::numeric_limits<double>::quiet_NaN());
  const DeviceTensor dq(q), dk(k), dv(v), d_d_out(d_out), out(nan_q), lse(nan_lse), d_q(nan_q), d_k(nan_k), d_v(nan_k);
  const DeviceTensor delta(nan_lse), sum(TestTensor(DType::kF32, {s.batch, s.query_heads, s.query_length, s.head_dim}));
  const Memory queries(samples.queries), keys(samples.keys), query_offsets(samples.offsets(samples.queries, s.query_heads)),
      key_offsets(samples.offsets(samples.keys, s.kv_heads));
  float scale = s.scale, minus_infinity = -std::numeric_limits<float>::infinity(), one = 1.0f;
  std::vector<Named> tensors = {{kQ, dq.view().data()},
                                {kK, dk.view().data()},
                                {kV, dv.view().data()},
                                {kOut, out.view().data()},
                                {kLse, lse.view().data()},
                                {kScale, &scale},
                                {kMinusInfinity, &minus_infinity},
                                {kQueryLengths, queries.data()},
                                {kKeyLengths, keys.data()}};
  if (samples.packed()) tensors.insert(tensors.end(), {{kQueryOffsets, query_offsets.data()}, {kKeyOffsets, key_offsets.data()}});
  execute(handle, stream, attention_forward_graph(s, samples.kind), true, tensors);
  tensors.insert(tensors.end(), {{kOne, &one},
                                 {kDOut, d_d_out.view().data()},
                                 {kDelta, delta.view().data()},
                                 {kDQ, d_q.view().data()},
                                 {kDK, d_k.view().data()},
                                 {kDV, d_v.view().data()}});
  const bool deterministic = determinism == AttentionDeterminism::kYes;
  if (!deterministic) tensors.push_back({kDQSum, sum.view().data()});
  execute(handle, stream, attention_backward_graph(s, samples.kind, determinism), deterministic, tensors);
  for (const DeviceTensor* x : {&out, &lse, &d_q, &d_k, &d_v, &delta, &sum}) EXPECT_TRUE(x->guards_intact());
  return {out.download(), lse.download(), d_q.download(), d_k.download(), d_v.download()};
}

void check(const Samples& samples, AttentionDeterminism determinism) {
  const AttentionShape& s = samples.shape;
  TestTensor q(DType::kBF16, {samples.query_elements()}), d_out(DType::kBF16, {samples.query_elements()});
  TestTensor k(DType::kBF16, {samples.key_elements()}), v(DType::kBF16, {samples.key_elements()});
  q.randomize("q", 2), k.randomize("k", 2), v.randomize("v"), d_out.randomize("d_out");
  const Results got = run(samples, determinism, q, k, v, d_out);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    SCOPED_TRACE(b);
    const std::int64_t queries = samples.queries[static_cast<std::size_t>(b)], keys = samples.keys[static_cast<std::size_t>(b)];
    const auto of_query = [&](const TestTensor& x) {
      return cut(x, s.query_heads, queries, s.head_dim,
                 [&](std::int64_t head, std::int64_t row) { return samples.query_at(b, head, row); });
    };
    const auto of_key = [&](const TestTensor& x) {
      return cut(x, s.kv_heads, keys, s.head_dim,
                 [&](std::int64_t head, std::int64_t row) { return samples.key_at(b, head, row); });
    };
    const auto of_row = [&](std::int64_t head, std::int64_t row) { return (b * s.query_heads + head) * s.query_length + row; };
    const reference::Attention r{1, s.query_heads, s.kv_heads, queries, keys, s.head_dim, 0, 0, s.scale, s.causal};
    const std::vector<double> q1 = of_query(q), k1 = of_key(k), v1 = of_key(v), d1 = of_query(d_out);
    std::vector<double> out(q1.size()), lse(static_cast<std::size_t>(s.query_heads * queries)), d_q(q1.size()), d_k(k1.size()),
        d_v(k1.size());
    reference::attention_forward(r, out.data(), lse.data(), q1.data(), k1.data(), v1.data());
    reference::attention_backward(r, d_q.data(), d_k.data(), d_v.data(), d1.data(), out.data(), q1.data(), k1.data(), v1.data(),
                                  lse.data());
    expect_close("out", of_query(got.out), out, 2e-2);
    expect_close("lse", cut(got.lse, s.query_heads, queries, 1, of_row), lse, 4e-6);
    expect_close("d_q", of_query(got.d_q), d_q, 2e-2);
    expect_close("d_k", of_key(got.d_k), d_k, 2e-2);
    expect_close("d_v", of_key(got.d_v), d_v, 2e-2);
  }
}

Samples samples(SequenceLengths kind, std::int64_t kv_heads, bool causal) {
  AttentionShape s;
  s.batch = 3, s.query_heads = 4, s.kv_heads = kv_heads, s.query_length = 12, s.key_length = 16, s.head_dim = 8;
  s.dtype = DType::kBF16, s.causal = causal, s.scale = 0.35f;
  return {kind, s, {12, 7, 1}, {9, 16, 3}};
}

TEST(CudnnGraphs, SamplesOfTheirOwnLengths) {
  for (const SequenceLengths kind : {SequenceLengths::kPadded, SequenceLengths::kPacked})
    for (const AttentionDeterminism determinism : {AttentionDeterminism::kYes, AttentionDeterminism::kNo})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(::testing::Message() << (kind == SequenceLengths::kPacked ? "packed " : "padded ")
                                        << (causal ? "causal" : "full"));
        check(samples(kind, 2, causal), determinism);
        check(samples(kind, 4, causal), determinism);
      }
}

// ---- plans
// ------------------------------------------------------------------------------------------------------------------------------

TEST(CudnnPlan, KeepsItsLimits) {
  const CudnnHandle handle(0);
  const AttentionShape s = samples(SequenceLengths::kFull, 2, true).shape;
  const auto graph = [&] { return attention_backward_graph(s, SequenceLengths::kFull, AttentionDeterminism::kYes); };
  std::string why;
  const auto any = CudnnPlan::find(graph(), {.handle = handle.get()}, {kUnlimited, false}, &why);
  ASSERT_TRUE(any);
  EXPECT_EQ(any->engine(), 9);  // cuDNN's favourite that can be planned
  const auto deterministic = CudnnPlan::find(graph(), {.handle = handle.get()}, {any->workspace_bytes(), true}, &why);
  ASSERT_TRUE(deterministic);
  EXPECT_EQ(deterministic->engine(), 6);
  EXPECT_FALSE(CudnnPlan::find(graph(), {.handle = handle.get()}, {any->workspace_bytes() - 1, true}, &why));
  EXPECT_EQ(why, fmt::format("engine 6 wants a workspace of {} bytes, {} are allowed", any->workspace_bytes(),
                             any->workspace_bytes() - 1));
}

TEST(CudnnPlan, ATargetIsAHandleOrADescribedGpu) {
  std::string why;
  const AttentionShape s = samples(SequenceLengths::kFull, 2, true).shape;
  EXPECT_THROW(CudnnPlan::find(attention_forward_graph(s, SequenceLengths::kFull), {}, {kUnlimited, true}, &why), InternalError);
}

// A shape that cuDNN does not take has no plan; a machine on which cuDNN cannot make plans is an error.
TEST(CudnnPlan, WhatTheMachineLacksIsNotMistakenForTheShape) {
  const CudnnHandle handle(0);
  const AttentionShape s = samples(SequenceLengths::kFull, 2, true).shape;
  std::string why;
  const auto find = [&] {
    return CudnnPlan::find(attention_forward_graph(s, SequenceLengths::kFull), {.handle = handle.get()}, {kUnlimited, true}, &why);
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
    CudnnPlan::find(std::move(graph), {.handle = handle.get()}, {kUnlimited, false}, &why);
  });
  EXPECT_TRUE(contains(text, "a test's graph: operation graph: cudnnBackendFinalize returned CUDNN_STATUS_BAD_PARAM")) << text;
  EXPECT_THROW(CudnnGraph("names").memory(1000, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}), InternalError);
}

}  // namespace
}  // namespace trident
