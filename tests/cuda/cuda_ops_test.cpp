// CudaOps beside its kernels: which operands and streams it takes, and scratch memory shared by streams. What the operations
// compute is tests/conformance's.
#include "device/cuda/cuda_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "core/check.h"
#include "device/cuda/cuda_stream.h"
#include "device/host/doorbell.h"
#include "device/no_allocation.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated/cudnn.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

class CudaOpsTest : public ::testing::Test {
 protected:
  const SimulatedScope scope_{{.stream_order = simulated::StreamOrder::kTargetFirst}};
  Doorbell bell_;
  Progress progress_{bell_};
  CudaOps ops_{0};
  CudaStream first_{0, "first", CudaStream::Mode::kQueue, progress_, 0},
      second_{0, "second", CudaStream::Mode::kQueue, progress_, 0};
};

TEST_F(CudaOpsTest, MistakesAreNamed) {
  const TestTensor host = numbers({4, 8}, 1);
  DeviceTensor x(host), y(host), short_one(numbers({4, 7}, 1));
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.run(first_, op::Add{y.view(), x.view(), short_one.view()}); }),
               "add: b is f32 [4, 7], expected 32 elements of f32");
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.run(first_, op::Add{y.view(), x.view(), host.view()}); }),
               "add: b lies in host memory");
  EXPECT_PRED2(contains, error_of<InternalError>([&] {
    ops_.run(first_, op::GeluForward{y.view(), host.view()});
  }), "lies in host memory");
}

TEST_F(CudaOpsTest, StreamsAreTheDevicesOwn) {
  DeviceTensor x(numbers({4, 8}, 1));
  CpuStream host("host", CpuStream::Mode::kQueue, progress_);
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.run(host, op::FillZero{x.view()}); }),
               "stream host is no CUDA stream of device 0");
  simulated::configure({.devices = 2});
  CudaStream other(1, "other", CudaStream::Mode::kQueue, progress_, 0);
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.run(other, op::FillZero{x.view()}); }),
               "stream other is no CUDA stream of device 0");
}

TEST_F(CudaOpsTest, ScratchMemoryPassesFromStreamToStream) {
  const TestTensor a = numbers({70, 40}, 1), b = numbers({70, 40}, 100);
  DeviceTensor in_a(a), in_b(b), sum_a(numbers({40}, 0)), sum_b(numbers({40}, 0));
  // The second stream is awaited first: only the event keeps the first stream's sums in front.
  for (const simulated::StreamOrder order : {simulated::StreamOrder::kTargetFirst, simulated::StreamOrder::kOthersFirst}) {
    simulated::configure({.stream_order = order});
    ops_.run(first_, op::SumRows{sum_a.view(), in_a.view(), Accumulate::kNo});
    ops_.run(second_, op::SumRows{sum_b.view(), in_b.view(), Accumulate::kNo});
    ops_.run(first_, op::SumRows{sum_a.view(), in_a.view(), Accumulate::kYes});
    second_.synchronize();
    first_.synchronize();
    for (std::int64_t c = 0; c < 40; ++c) {
      double expected_a = 0, expected_b = 0;
      for (std::int64_t r = 0; r < 70; ++r) expected_a += 2 * a.at(r * 40 + c), expected_b += b.at(r * 40 + c);
      ASSERT_EQ(sum_a.download().at(c), expected_a);
      ASSERT_EQ(sum_b.download().at(c), expected_b);
    }
  }
}

TEST_F(CudaOpsTest, EqualTypesAreCopiedBitByBit) {
  TestTensor bits(DType::kBF16, {5});
  const std::uint16_t patterns[5] = {0x7fa1, 0xff81, 0x8000, 0x0001, 0x3f80};  // not-a-numbers with payloads, and others
  std::memcpy(bits.view().data(), patterns, sizeof(patterns));
  DeviceTensor x(bits), y(numbers({5}, 0, DType::kBF16));
  ops_.run(first_, op::Convert{y.view(), x.view()});
  first_.synchronize();
  EXPECT_EQ(std::memcmp(y.download().view().data(), patterns, sizeof(patterns)), 0);
  ops_.run(first_, op::FillZero{y.view()});
  ops_.run(first_, op::FillZero{TensorView(nullptr, DType::kF32, {0}, MemoryKind::kDevice)});
  first_.synchronize();
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(y.download().at(i), 0.0f);
}

// ---- products and what follows them: what they compute is tests/conformance's, here it is whether they are one product

class CudaFusedTest : public CudaOpsTest {
 protected:
  // Products enqueued by `call` with an epilogue, and without.
  template <class Call>
  std::pair<std::int64_t, std::int64_t> products_of(Call call) {
    const simulated::CublasLtCounts before = simulated::cublaslt_counts();
    call();
    first_.synchronize();
    second_.synchronize();
    const simulated::CublasLtCounts after = simulated::cublaslt_counts();
    const std::int64_t fused = after.fused - before.fused;
    return {fused, after.products - before.products - fused};
  }
  // y[4,n] = x W^T + bias, and everything else a layer does with operands of these sizes; one product each.
  std::pair<std::int64_t, std::int64_t> layer(CudaOps& ops, std::int64_t n, std::int64_t misalign = 0) {
    constexpr DType kT = DType::kBF16;
    const MatmulShape forward{4, n, 16, Transpose::kNo, Transpose::kYes, kT, kT, Accumulate::kNo};
    const MatmulShape gradient{n, 16, 4, Transpose::kYes, Transpose::kNo, kT, DType::kF32, Accumulate::kNo};
    MatmulShape backward = forward, adding = gradient;
    backward.transpose_b = Transpose::kNo, adding.accumulate = Accumulate::kYes;
    std::int64_t bytes = 16;
    for (const auto& [shape, epilogue] : {std::pair(forward, Epilogue::kBias),
                                          {forward, Epilogue::kBiasGelu},
                                          {backward, Epilogue::kGeluBackward},
                                          {gradient, Epilogue::kBiasGradient},
                                          {adding, Epilogue::kBiasGradient}})
      bytes = std::max(bytes, ops.prepare_fused(shape, epilogue).workspace);
    DeviceTensor x(numbers({4, 16}, 1, kT)), w(numbers({n, 16}, -2, kT)), y(numbers({4, n}, 0, kT)),
        act(numbers({4, n}, 0, kT), misalign), d_act(numbers({4, n}, 0, kT), misalign), wide(numbers({16, n}, 1, kT)),
        d_w(numbers({n, 16}, 0)), bias(numbers({n}, 1, kT), misalign), d_bias(numbers({n}, 0), misalign);
    const DeviceTensor workspace(TestTensor(DType::kU8, {bytes}));
    const auto operands = [&](TensorView out, ConstTensorView a, Transpose ta, ConstTensorView b, Transpose tb,
                              Accumulate accumulate) { return MatmulOperands{out, a, ta, b, tb, accumulate, workspace.view()}; };
    const MatmulOperands up = operands(y.view(), x.view(), Transpose::kNo, w.view(), Transpose::kYes, Accumulate::kNo);
    return products_of([&] {
      const NoAllocationScope step("a layer");
      ops.matmul_bias(first_, up, bias.view());
      ops.matmul_bias_gelu(first_, up, bias.view(), act.view());
      ops.matmul_gelu_backward(first_, operands(y.view(), x.view(), Transpose::kNo, wide.view(), Transpose::kNo, Accumulate::kNo),
                               act.view(), d_act.view());
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})
        ops.matmul_bias_gradient(first_, operands(d_w.view(), y.view(), Transpose::kYes, x.view(), Transpose::kNo, accumulate),
                                 d_bias.view());
    });
  }
  CudaOps fused_{0, {.matmul = {}, .fused = true, .attention = {}}};
};

TEST_F(CudaFusedTest, OneProductForBothWhereItIsAskedForAndCanBe) {
  const auto all = std::pair<std::int64_t, std::int64_t>(5, 0), none = std::pair<std::int64_t, std::int64_t>(0, 5);
  EXPECT_EQ(layer(ops_, 16), none) << "was not asked for";
  EXPECT_EQ(layer(fused_, 16), all);
  EXPECT_EQ(layer(fused_, 16, 1), none) << "vectors at odd addresses";
  EXPECT_EQ(layer(fused_, 12), (std::pair<std::int64_t, std::int64_t>(3, 2)))
      << "the library's second matrix has rows of 8 elements";
}

// The library's refusals are answered by doing the two one by one.
TEST_F(CudaFusedTest, OneByOneWhereTheLibraryHasNoAlgorithm) {
  const MatmulShape shape{4, 16, 8, Transpose::kNo, Transpose::kYes, DType::kF32, DType::kF32, Accumulate::kNo};
  fused_.prepare_matmul(shape);
  simulated::fail_next("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
  const DeviceTensor workspace(TestTensor(DType::kU8, {fused_.prepare_fused(shape, Epilogue::kBias).workspace + 16}));
  const TestTensor x = numbers({4, 8}, 1), w = numbers({16, 8}, -3), bias = numbers({16}, 100);
  DeviceTensor d_x(x), d_w(w), d_bias(bias), y(numbers({4, 16}, 0));
  EXPECT_EQ(products_of([&] {
              fused_.matmul_bias(
                  first_, {y.view(), d_x.view(), Transpose::kNo, d_w.view(), Transpose::kYes, Accumulate::kNo, workspace.view()},
                  d_bias.view());
            }),
            (std::pair<std::int64_t, std::int64_t>(0, 1)));
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t c = 0; c < 16; ++c) {
      double expected = bias.at(c);
      for (std::int64_t k = 0; k < 8; ++k) expected += x.at(r * 8 + k) * w.at(c * 8 + k);
      ASSERT_EQ(y.download().at(r * 16 + c), expected);
    }
}

// Bias gradients that are added lie in scratch memory first.
TEST_F(CudaFusedTest, AddedBiasGradientsPassTheScratchMemoryOn) {
  const MatmulShape shape{8, 16, 70, Transpose::kYes, Transpose::kNo, DType::kF32, DType::kF32, Accumulate::kYes};
  const std::int64_t bytes = fused_.prepare_fused(shape, Epilogue::kBiasGradient).workspace + 16;
  const TestTensor a = numbers({70, 8}, 1), b = numbers({70, 8}, 100);
  DeviceTensor d_a(a), d_b(b), x(numbers({70, 16}, 1)), weight_a(numbers({8, 16}, 0)), weight_b(numbers({8, 16}, 0));
  const DeviceTensor workspace_a(TestTensor(DType::kU8, {bytes})), workspace_b(TestTensor(DType::kU8, {bytes}));
  for (const simulated::StreamOrder order : {simulated::StreamOrder::kTargetFirst, simulated::StreamOrder::kOthersFirst}) {
    simulated::configure({.stream_order = order});
    DeviceTensor bias_a(numbers({8}, 1)), bias_b(numbers({8}, 1));
    const auto add = [&](Stream& stream, const DeviceTensor& d_y, const DeviceTensor& weight, const DeviceTensor& bias,
                         const DeviceTensor& workspace) {
      fused_.matmul_bias_gradient(
          stream, {weight.view(), d_y.view(), Transpose::kYes, x.view(), Transpose::kNo, Accumulate::kYes, workspace.view()},
          bias.view());
    };
    EXPECT_EQ(products_of([&] {
                add(first_, d_a, weight_a, bias_a, workspace_a);
                add(second_, d_b, weight_b, bias_b, workspace_b);
                add(first_, d_a, weight_a, bias_a, workspace_a);
              }),
              (std::pair<std::int64_t, std::int64_t>(3, 0)));
    for (std::int64_t c = 0; c < 8; ++c) {
      double expected_a = 1 + static_cast<double>(c), expected_b = expected_a;
      for (std::int64_t r = 0; r < 70; ++r) expected_a += 2 * a.at(r * 8 + c), expected_b += b.at(r * 8 + c);
      ASSERT_EQ(bias_a.download().at(c), expected_a);
      ASSERT_EQ(bias_b.download().at(c), expected_b);
    }
  }
}

TEST_F(CudaFusedTest, MistakesAreNamed) {
  DeviceTensor x(numbers({4, 16}, 1)), y(numbers({4, 16}, 1)), w(numbers({16, 16}, 1)), bias(numbers({16}, 1));
  const auto product = [&](Transpose ta, Accumulate accumulate) -> MatmulOperands {
    return {y.view(), x.view(), ta, w.view(), Transpose::kYes, accumulate, {}};
  };
  EXPECT_PRED2(contains,
               error_of<InternalError>([&] { fused_.matmul_bias(first_, product(Transpose::kNo, Accumulate::kYes), bias.view()); }),
               "matmul_bias: it overwrites");
  EXPECT_PRED2(contains, error_of<InternalError>([&] {
                 fused_.matmul_bias_gelu(first_, product(Transpose::kNo, Accumulate::kYes), bias.view(), y.view());
               }),
               "matmul_bias_gelu: it overwrites");
  EXPECT_PRED2(contains, error_of<InternalError>([&] {
                 fused_.matmul_gelu_backward(first_, product(Transpose::kNo, Accumulate::kYes), x.view(), x.view());
               }),
               "matmul_gelu_backward: it overwrites");
  EXPECT_PRED2(contains, error_of<InternalError>([&] {
                 fused_.matmul_bias_gradient(first_, product(Transpose::kNo, Accumulate::kNo), bias.view());
               }),
               "matmul_bias_gradient: a is the transposed gradient");
  EXPECT_PRED2(contains,
               error_of<InternalError>([&] { fused_.matmul_bias(first_, product(Transpose::kNo, Accumulate::kNo), bias.view()); }),
               "was not prepared");
}

// Where a sample begins is an argument of the kernel: other positions are other work.
TEST_F(CudaOpsTest, AttentionOverACacheIsOtherWorkAtOtherPositions) {
  const AttentionShape shape{.batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 1, .key_length = 4, .head_dim = 2};
  TestTensor query(DType::kF32, {1, 1, 1, 2}), rows(DType::kF32, {1, 1, 4, 2});
  for (std::int64_t i = 0; i < 8; ++i) rows.set(i, static_cast<float>(i));
  query.set(0, 1.0f);
  query.set(1, 1.0f);
  const DeviceTensor q(query), k(rows), v(rows), out(query), lse(TestTensor(DType::kF32, {1, 1, 1}));
  CudaOps ops(0);
  const auto attend = [&](std::int64_t first) {
    ops.graphs().run_capturable(first_, [&] {
      ops.run(first_, op::CachedAttention{shape, {&first, 1}, out.view(), lse.view(), q.view(), k.view(), v.view(), {}});
    });
    first_.synchronize();
    return out.download().at(0);
  };
  const std::size_t before = simulated::graph_uses().launched;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(attend(0), 0.0f);
  EXPECT_EQ(simulated::graph_uses().launched - before, 2u);
  EXPECT_GT(attend(3), 5.0f);
  EXPECT_EQ(simulated::graph_uses().launched - before, 2u);
}

// ---- first runs of what was announced

struct Announced {
  explicit Announced(CudaOps& ops) {
    ops.prepare_matmul(shape);
    ops.prepare_fused(shape, Epilogue::kBias);
    attention.batch = 1, attention.query_heads = attention.kv_heads = 2, attention.query_length = attention.key_length = 16;
    attention.head_dim = 64, attention.dtype = DType::kBF16;
    ops.attention_workspace(attention);
  }
  MatmulShape shape{16, 32, 64, Transpose::kNo, Transpose::kNo, DType::kBF16, DType::kBF16, Accumulate::kNo};
  AttentionShape attention;
};

CudaOpsOptions fusing() {
  CudaOpsOptions options;
  options.fused = true;
  return options;
}

TEST_F(CudaOpsTest, EverythingAnnouncedIsRunOnceAndNothingOfItLasts) {
  CudaOps ops(0, fusing());
  const Announced announced(ops);
  const auto memory = simulated::census();
  const auto products = simulated::cublaslt_counts();
  const auto executions = simulated::cudnn_counts().executions;
  ops.run_announced(first_);
  EXPECT_EQ(simulated::cublaslt_counts().products - products.products, 3) << "two products, the plain one for each alignment";
  EXPECT_EQ(simulated::cublaslt_counts().fused - products.fused, 1);
  EXPECT_EQ(simulated::cudnn_counts().executions - executions, 2) << "forward and backward";
  EXPECT_EQ(simulated::census().allocations, memory.allocations);
  ops.run_announced(first_);
  EXPECT_EQ(simulated::cublaslt_counts().products - products.products, 3) << "once";
  MatmulShape later = announced.shape;
  later.m = 48;
  ops.prepare_matmul(later);
  ops.run_announced(first_);
  EXPECT_EQ(simulated::cublaslt_counts().products - products.products, 5) << "what came later alone";
  EXPECT_EQ(simulated::cudnn_counts().executions - executions, 2);
}

TEST_F(CudaOpsTest, FirstRunsLeaveNumbersAsTheyWere) {
  const auto multiplied = [&](bool first) {
    CudaOps ops(0);
    const Announced announced(ops);
    if (first) ops.run_announced(first_);
    const MatmulShape& s = announced.shape;
    DeviceTensor a(numbers({s.m, s.k}, 0.3F, s.in)), b(numbers({s.k, s.n}, -1.7F, s.in)), out(numbers({s.m, s.n}, 0, s.out));
    DeviceTensor workspace(TestTensor(DType::kU8, {ops.prepare_matmul(s)}));
    ops.run(first_, op::Matmul{{out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view()}});
    first_.synchronize();
    return out.download().values();
  };
  EXPECT_EQ(multiplied(true), multiplied(false));
}

TEST_F(CudaOpsTest, WithoutMemoryForTheirOperandsNothingIsRun) {
  const Announced announced(ops_);
  const auto products = simulated::cublaslt_counts().products;
  simulated::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
  ops_.run_announced(first_);
  EXPECT_EQ(simulated::cublaslt_counts().products, products);
  simulated::Settings full = simulated::settings();
  full.used_bytes = full.total_bytes - 1024;
  simulated::configure(full);
  ops_.run_announced(first_);
  EXPECT_EQ(simulated::cublaslt_counts().products, products) << "another's memory";
  full.used_bytes = 0;
  simulated::configure(full);
  ops_.run_announced(first_);
  EXPECT_GT(simulated::cublaslt_counts().products, products);
}

// Three plans: of a product alone, for aligned operands and for others, and with its bias. Only the first has to be.
TEST_F(CudaOpsTest, WhatTheLibraryRefusesAfterAllIsNotUsed) {
  int ended = 0, one_by_one = 0;
  for (int refused = 0; refused < 3; ++refused) {
    CudaOps ops(0, fusing());
    const MatmulShape s{16, 32, 64, Transpose::kNo, Transpose::kNo, DType::kBF16, DType::kBF16, Accumulate::kNo};
    DeviceTensor workspace(TestTensor(DType::kU8, {ops.prepare_fused(s, Epilogue::kBias).workspace}));
    simulated::fail_next("cublasLtMatmul", CUBLAS_STATUS_NOT_SUPPORTED, refused);
    try {
      ops.run_announced(first_);
    } catch (const ConfigError& error) {
      EXPECT_PRED2(contains, std::string(error.what()), "matmul 16x32x64 nn bf16->bf16");
      first_.synchronize();
      ++ended;
      continue;
    }
    DeviceTensor a(numbers({s.m, s.k}, 1, s.in)), b(numbers({s.k, s.n}, 1, s.in)), bias(numbers({s.n}, 1, s.out));
    DeviceTensor out(numbers({s.m, s.n}, 0, s.out));
    FusedMatmul fused;
    fused.product = {out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view()};
    fused.epilogue = Epilogue::kBias;
    fused.bias = bias.view();
    if (!ops.try_fused(first_, fused)) ++one_by_one;
    first_.synchronize();
  }
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(one_by_one, 1);
}

// ---- multiprocessors left to communication

TEST_F(CudaOpsTest, ProductsTakeAsManyMultiprocessorsAsTheyMay) {
  const auto told = [&](std::int32_t multiprocessors) {
    CudaOpsOptions options;
    options.matmul.multiprocessors = multiprocessors;
    CudaOps ops(0, options);
    const Announced announced(ops);
    ops.run_announced(first_);
    return simulated::cublaslt_counts().last_multiprocessors;
  };
  EXPECT_EQ(told(0), 0);
  EXPECT_EQ(told(124), 124);
}

}  // namespace
}  // namespace trident
