// Work that is repeated: launched as a graph only when everything it was called with is the same.
#include "device/cuda/cuda_graphs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>

#include "core/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_ops.h"
#include "device/host/doorbell.h"
#include "device/no_allocation.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// A tensor and what it holds before each work.
struct Restorable {
  explicit Restorable(const TestTensor& values) : host(values.view().dtype(), values.view().shape()), device(values) {
    std::memcpy(host.view().data(), values.view().data(), static_cast<std::size_t>(values.view().num_bytes()));
  }
  TensorView view() const { return device.view(); }
  void restore() const {
    check_cuda(cudaMemcpy(view().data(), host.view().data(), static_cast<std::size_t>(view().num_bytes()), cudaMemcpyHostToDevice), "a test's tensor");
    check_cuda(cudaDeviceSynchronize(), "a test's tensor");
  }
  TestTensor host;
  DeviceTensor device;
};

class CudaGraphsTest : public ::testing::Test {
 protected:
  void adamw(TensorView param, TensorView master, TensorView m, TensorView v, ConstTensorView grad, const UpdateNumbers& numbers,
             const RoundedElements* at_random = nullptr) {
    const TensorView moments[] = {m, v};
    ops_.run(stream_, op::Update{UpdateRule::kAdamW, param, master, moments, grad, numbers, at_random});
  }
  void repeat(FunctionRef<void()> work) { ops_.graphs().run_capturable(stream_, work); }
  static std::size_t launched() { return simulated::graph_uses().launched; }
  static std::size_t instantiated() { return simulated::graph_uses().instantiated; }

  const SimulatedScope scope_{{.stream_order = simulated::StreamOrder::kTargetFirst}};
  Doorbell bell_;
  Progress progress_{bell_};
  CudaOps ops_{0, {.matmul = {}, .fused = true, .attention = {}}};
  CudaStream stream_{0, "compute", CudaStream::Mode::kImmediate, progress_, 0}, other_{0, "other", CudaStream::Mode::kQueue, progress_, 0};
};

TEST_F(CudaGraphsTest, TheFirstTimeIsEagerTheSecondIsCapturedAllOthersAreLaunched) {
  DeviceTensor x(numbers({300}, 1)), sum(numbers({300}, 0));
  int calls = 0;
  for (int i = 1; i <= 5; ++i) {
    repeat([&] {
      ++calls;
      ops_.run(stream_, op::Add{sum.view(), sum.view(), x.view()});
      ops_.run(stream_, op::AccumulateInto{sum.view(), x.view()});
    });
    EXPECT_EQ(instantiated(), i >= 2 ? 1u : 0u);
    EXPECT_EQ(launched(), static_cast<std::size_t>(i - 1));
  }
  EXPECT_EQ(calls, 2 + 2 + 3);
  EXPECT_EQ(simulated::graph_uses().operations, 4u * 2);
  stream_.synchronize();
  const TestTensor result = sum.download();
  for (std::int64_t i = 0; i < 300; ++i) EXPECT_EQ(result.at(i), static_cast<float>(i % 17) + 10 * (1 + static_cast<float>(i % 17)));
}

TEST_F(CudaGraphsTest, ALaunchAllocatesNothing) {
  DeviceTensor x(numbers({64}, 1));
  const auto work = [&] { ops_.run(stream_, op::FillZero{x.view()}); };
  repeat(work);
  repeat(work);
  const simulated::Census before = simulated::census();
  {
    const NoAllocationScope none("a launch");
    for (int i = 0; i < 10; ++i) repeat(work);
  }
  EXPECT_EQ(simulated::census().bytes, before.bytes);
  EXPECT_EQ(launched(), 11u);
  stream_.synchronize();
}

// Each variant differs from the first in one argument. If it were launched with another's graph, its own result would be missing.
TEST_F(CudaGraphsTest, EveryArgumentTellsWorksApart) {
  simulated::configure({.stream_order = simulated::StreamOrder::kTargetFirst, .host_guard = simulated::HostGuard::kOff});
  const Restorable a(numbers({8, 8}, 1)), b(numbers({8, 8}, 3)), out(numbers({8, 8}, 0)), second(numbers({8, 8}, 0)), row(numbers({8}, 0));
  const DeviceTensor weight(numbers({8}, 1)), negative(numbers({8, 8}, -9));
  MatmulShape shape{8, 8, 8};
  for (const Transpose ta : {Transpose::kNo, Transpose::kYes})
    for (const Transpose tb : {Transpose::kNo, Transpose::kYes})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        shape.transpose_a = ta, shape.transpose_b = tb, shape.accumulate = accumulate;
        ops_.prepare_matmul(shape);
        for (const Epilogue e : {Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward, Epilogue::kBiasGradient})
          ops_.prepare_fused(shape, e);
      }
  ops_.prepare_matmul({3, 8, 8});
  DeviceTensor workspace(TestTensor(DType::kU8, Shape{1 << 20}));
  const auto matmul = [&](const Restorable& to, const Restorable& x, Transpose ta, const Restorable& y, Transpose tb, Accumulate accumulate) {
    return [&, ta, tb, accumulate] { ops_.run(stream_, op::Matmul{{to.view(), x.view(), ta, y.view(), tb, accumulate,
                                                                   workspace.view()}}); };
  };
  constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
  const auto product = [&](const Restorable& to, Transpose ta, Accumulate accumulate) -> MatmulOperands {
    return {to.view(), a.view(), ta, b.view(), kNo, accumulate, workspace.view()};
  };
  const std::vector<std::function<void()>> works = {
      matmul(out, a, kNo, b, kNo, Accumulate::kNo),   matmul(second, a, kNo, b, kNo, Accumulate::kNo),
      matmul(out, b, kNo, b, kNo, Accumulate::kNo),   matmul(out, a, kNo, a, kNo, Accumulate::kNo),
      matmul(out, a, kYes, b, kNo, Accumulate::kNo),  matmul(out, a, kNo, b, kYes, Accumulate::kNo),
      matmul(out, a, kNo, b, kNo, Accumulate::kYes),
      [&] {
        ops_.run(stream_, op::Matmul{{out.view().rows(0, 3), a.view().rows(0, 3), kNo, b.view(), kNo, Accumulate::kNo,
                                      workspace.view()}});
      },
      [&] { ops_.run(stream_, op::RmsNormForward{{out.view(), row.view(), a.view(), weight.view(), 1e-5f}}); },
      [&] { ops_.run(stream_, op::RmsNormForward{{out.view(), row.view(), a.view(), weight.view(), 1e-1f}}); },
      [&] { ops_.run(stream_, op::SumRows{row.view(), a.view(), Accumulate::kNo}); },
      [&] { ops_.run(stream_, op::SumRows{row.view(), a.view(), Accumulate::kYes}); },
      [&] { ops_.run(stream_, op::FillZero{a.view().rows(0, 2)}); },
      [&] { ops_.run(stream_, op::FillZero{a.view().rows(0, 3)}); },
      [&] { ops_.run(stream_, op::FillZero{a.view().rows(1, 2)}); },
      [&] { ops_.matmul_bias(stream_, product(out, kNo, Accumulate::kNo), weight.view()); },
      [&] { ops_.matmul_bias(stream_, product(out, kNo, Accumulate::kNo), b.view().range(8, 8)); },
      [&] { ops_.matmul_bias_gelu(stream_, product(out, kNo, Accumulate::kNo), weight.view(), second.view()); },
      [&] { ops_.matmul_bias_gelu(stream_, product(second, kNo, Accumulate::kNo), weight.view(), out.view()); },
      [&] { ops_.matmul_gelu_backward(stream_, product(second, kNo, Accumulate::kNo), negative.view(), out.view()); },
      [&] { ops_.matmul_gelu_backward(stream_, product(second, kNo, Accumulate::kNo), b.view(), out.view()); },
      [&] { ops_.matmul_bias_gradient(stream_, product(out, kYes, Accumulate::kNo), row.view()); },
      [&] { ops_.matmul_bias_gradient(stream_, product(out, kYes, Accumulate::kYes), row.view()); },
      [&] { ops_.matmul_bias_gradient(stream_, product(out, kYes, Accumulate::kYes), second.view().range(0, 8)); },
      [&] { ops_.run(stream_, op::GeluForward{out.view(), a.view()}); },
      [&] { ops_.run(stream_, op::GeluBackward{out.view(), a.view(), b.view()}); },
      [&] { ops_.run(stream_, op::Add{out.view(), a.view(), b.view()}); },
      [&] { ops_.run(stream_, op::Convert{out.view(), a.view()}); },
  };
  const auto all = [&](const std::function<void(const std::function<void()>&)>& run) {
    std::vector<std::vector<float>> results;
    for (const auto& work : works) {
      for (const Restorable* t : {&a, &b, &out, &second, &row}) t->restore();
      run(work);
      stream_.synchronize();
      std::vector<float>& result = results.emplace_back();
      for (const Restorable* t : {&a, &out, &second, &row}) {
        const TestTensor back = t->device.download();
        for (std::int64_t i = 0; i < back.view().num_elements(); ++i) result.push_back(back.at(i));
      }
    }
    return results;
  };
  const std::int64_t fused = simulated::cublaslt_counts().fused;
  const auto eager = all([](const auto& work) { work(); });
  EXPECT_EQ(simulated::cublaslt_counts().fused, fused + 9);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(all([&](const auto& work) { repeat(work); }), eager) << round;
  EXPECT_EQ(instantiated(), works.size());
  EXPECT_EQ(launched(), 2 * works.size());
}

TEST_F(CudaGraphsTest, UpdatesHaveOtherNumbersEachTime) {
  const TestTensor start = numbers({70}, 1), gradient = numbers({70}, -3);
  DeviceTensor weights(start), m(numbers({70}, 0)), v(numbers({70}, 1)), expected_weights(start), expected_m(numbers({70}, 0)), expected_v(numbers({70}, 1)),
      grad(gradient);
  const auto step = [&](DeviceTensor& w, DeviceTensor& mean, DeviceTensor& square, int number) {
    UpdateNumbers numbers{.lr = 1e-2f / static_cast<float>(number), .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    for (int half = 0; half < 2; ++half) {
      numbers.weight_decay = half == 0 ? 0.1f : 0.0f;
      const auto part = [&](DeviceTensor& t) { return t.view().range(35 * half, 35); };
      adamw(part(w), part(w), part(mean), part(square), part(grad), numbers);
    }
  };
  for (int number = 1; number <= 4; ++number) {
    step(expected_weights, expected_m, expected_v, number);
    repeat([&] { step(weights, m, v, number); });
  }
  stream_.synchronize();
  EXPECT_EQ(instantiated(), 1u);
  EXPECT_EQ(launched(), 3u);
  const TestTensor expected = expected_weights.download(), result = weights.download();
  for (std::int64_t i = 0; i < 70; ++i) EXPECT_EQ(result.at(i), expected.at(i)) << i;
}

// The update's number is read when the graph runs; key and place tell works apart.
TEST_F(CudaGraphsTest, UpdatesRoundWithTheirOwnNumber) {
  const RoundedElements original{{1, 2}, 3, 4, 10, 20};
  std::vector<RoundedElements> places(7, original);
  places[1].key[0] = 9;
  places[2].key[1] = 9;
  places[3].first_index = 5;
  places[4].first_column = 5;
  places[5].columns = 9;
  places[6].stride = 21;
  const TestTensor start = numbers({70}, 1), gradient = numbers({70}, -3);
  const auto run = [&](bool repeated) {
    DeviceTensor weights(start), m(numbers({70}, 0)), v(numbers({70}, 1)), grad(gradient), param(TestTensor(DType::kBF16, Shape{70}));
    std::vector<std::vector<double>> results;
    for (int number = 1; number <= 3; ++number)
      for (const RoundedElements& place : places) {
        const auto work = [&] {
          UpdateNumbers step{.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
          step.set_update(static_cast<std::uint64_t>(number) << 31);  // both words of it
          adamw(param.view(), weights.view(), m.view(), v.view(), grad.view(), step, &place);
        };
        if (repeated)
          repeat(work);
        else
          work();
        stream_.synchronize();
        results.push_back(param.download().values());
      }
    return results;
  };
  const auto eager = run(false);
  EXPECT_EQ(run(true), eager);
  EXPECT_EQ(instantiated(), places.size());
  EXPECT_EQ(launched(), 2 * places.size());
}

// A loss scale that grows and shrinks, a key of dropout for each step, samples of each micro-batch: one graph of all.
TEST_F(CudaGraphsTest, ScalesAndDrawsAreOthersEachTime) {
  simulated::configure({.stream_order = simulated::StreamOrder::kTargetFirst, .host_guard = simulated::HostGuard::kOff});
  TestTensor targets(DType::kI32, Shape{4}), samples(DType::kI64, Shape{2, 1});
  for (int i = 0; i < 4; ++i) targets.view().as<std::int32_t>()[i] = i;
  for (int i = 0; i < 2; ++i) samples.view().as<std::int64_t>()[i] = i;
  const TestTensor logits = numbers({4, 9}, -3);
  const Restorable expected(logits), result(logits);
  const DeviceTensor there(targets), drawn(samples), row_max(numbers({4}, 1)), sum_exp(numbers({4}, 9));
  const auto form = [&](TensorView x, float scale, std::uint32_t step, std::int64_t sample) {
    ops_.run(stream_, op::CrossEntropyBackward{x, row_max.view(), sum_exp.view(), there.view(), 0, 9, scale});
    const TensorView rows(x.data(), DType::kF32, {4, 1, 9}, x.where());
    ops_.run(stream_, op::Dropout{rows, rows, drawn.view().rows(sample, 1).flat(), {.probability = 0.5f, .key = {step, 7},
                                  .sequence = 4}});
    ops_.run(stream_, op::CrossEntropyBackward{x, row_max.view(), sum_exp.view(), there.view(), 0, 9, 2 * scale});
  };
  std::uint32_t step = 0;
  std::vector<std::vector<double>> all;
  for (const float scale : {65536.0f, 32768.0f, 16384.0f, 32768.0f, 1.0f}) {
    for (const std::int64_t sample : {0, 1}) {
      expected.restore(), result.restore();
      form(expected.view(), scale, ++step, sample);
      repeat([&] { form(result.view(), scale, step, sample); });
      stream_.synchronize();
      all.push_back(expected.device.download().values());
      EXPECT_EQ(result.device.download().values(), all.back()) << scale << ", sample " << sample;
    }
  }
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_NE(all[i], all[i - 1]) << "nothing changed";
  EXPECT_EQ(instantiated(), 1u);
  EXPECT_EQ(launched(), 9u);
}

TEST_F(CudaGraphsTest, WhatIsNewEachTimeMustBeTheSameWhenCalledAgain) {
  DeviceTensor x(numbers({4, 1, 8}, 1)), samples(TestTensor(DType::kI64, Shape{1}));
  std::uint32_t calls = 0;
  EXPECT_PRED2(contains, error_of<InternalError>([&] {
                 repeat([&] {
                   ops_.run(stream_, op::Dropout{x.view(), x.view(), samples.view(), {.probability = 0.5f, .key = {++calls, 0},
                                                 .sequence = 4}});
                 });
               }),
               "was noted as 1 operations and called 1 then, or the same with other arguments");
  stream_.synchronize();
}

TEST_F(CudaGraphsTest, WorkThatDoesNothingIsLeftAlone) {
  for (int i = 0; i < 4; ++i) repeat([] {});
  EXPECT_EQ(instantiated(), 0u);
}

// Thousands of updates at a time; when no more fit, work is eager, what was there before is not.
TEST_F(CudaGraphsTest, MoreNumbersThanThereIsRoomForAreEager) {
  simulated::configure({.stream_order = simulated::StreamOrder::kEager, .host_guard = simulated::HostGuard::kOff});
  constexpr int kCalls = 2048, kWords = sizeof(UpdateNumbers) / sizeof(std::uint64_t),
                kFit = static_cast<int>(CudaGraphs::kMostNumbers) / (kWords * kCalls);
  DeviceTensor w(numbers({kFit + 2}, 1)), m(numbers({1}, 0)), v(numbers({1}, 1)), grad(numbers({1}, 1));
  const auto work = [&](int i) {
    repeat([&] {
      const TensorView one = w.view().range(i, 1);
      for (int call = 0; call < kCalls; ++call) adamw(one, one, m.view(), v.view(), grad.view(), {.lr = 1e-3f, .eps = 1e-8f});
    });
  };
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < kFit + 1; ++i) work(i);
  EXPECT_EQ(instantiated(), static_cast<std::size_t>(kFit));
  stream_.synchronize();
  EXPECT_NE(w.download().at(kFit), numbers({kFit + 2}, 1).at(kFit)) << "it was done all the same";
}

TEST_F(CudaGraphsTest, MoreWorksThanAreRememberedAreEager) {
  simulated::configure({.stream_order = simulated::StreamOrder::kEager, .host_guard = simulated::HostGuard::kOff});
  DeviceTensor x(numbers({static_cast<std::int64_t>(CudaGraphs::kMostWorks) + 3}, 1));
  const auto zero = [&](std::size_t elements) { repeat([&] {
    ops_.run(stream_, op::FillZero{x.view().range(0, static_cast<std::int64_t>(elements))}); });
  };
  for (std::size_t i = 1; i <= CudaGraphs::kMostWorks + 2; ++i) zero(i);
  zero(CudaGraphs::kMostWorks);
  EXPECT_EQ(launched(), 1u);
  zero(CudaGraphs::kMostWorks + 1);
  EXPECT_EQ(launched(), 1u);
  stream_.synchronize();
  EXPECT_EQ(x.download().at(static_cast<std::int64_t>(CudaGraphs::kMostWorks) + 1), 0) << "it was done all the same";
}

// Scratch memory that another stream used is waited for in front of the graph.
TEST_F(CudaGraphsTest, ScratchMemoryComesFromAnotherStream) {
  DeviceTensor a(numbers({70, 40}, 1)), b(numbers({70, 40}, 100)), sum_a(numbers({40}, 0)), sum_b(numbers({40}, 0));
  for (int i = 0; i < 3; ++i) {
    ops_.run(other_, op::SumRows{sum_b.view(), b.view(), Accumulate::kNo});
    repeat([&] { ops_.run(stream_, op::SumRows{sum_a.view(), a.view(), Accumulate::kNo}); });
    stream_.synchronize();
    other_.synchronize();
    float of_a = 0, of_b = 0;
    for (std::int64_t row = 0; row < 70; ++row) of_a += 1 + static_cast<float>(40 * row % 17), of_b += 100 + static_cast<float>(40 * row % 17);
    EXPECT_EQ(sum_a.download().at(0), of_a);
    EXPECT_EQ(sum_b.download().at(0), of_b);
  }
  EXPECT_EQ(launched(), 2u);
}

TEST_F(CudaGraphsTest, WorkThatThrowsLeavesTheStreamUsable) {
  DeviceTensor x(numbers({64}, 1));
  for (const int throws_in_call : {1, 2, 3, 4}) {  // noted, enqueued, noted, captured
    SCOPED_TRACE(throws_in_call);
    int calls = 0;
    const auto work = [&] {
      ops_.run(stream_, op::FillZero{x.view().range(0, throws_in_call)});
      if (++calls == throws_in_call) throw DataError("planted");
    };
    EXPECT_THROW(
        {
          repeat(work);
          repeat(work);
        },
        DataError);
    ops_.run(stream_, op::FillZero{x.view()});
    stream_.synchronize();
    calls = 10;
    repeat(work);
    repeat(work);
    stream_.synchronize();
  }
  EXPECT_EQ(simulated::census().graphs, instantiated()) << "what was captured before work threw is gone";
}

TEST_F(CudaGraphsTest, WorkThatIsNotTheSameWhenCalledAgainIsRefused) {
  DeviceTensor x(numbers({64}, 1));
  for (const int other_call : {2, 4}) {  // when it is enqueued, and when it is captured
    int calls = 0;
    const auto work = [&] { ops_.run(stream_, op::FillZero{x.view().range(other_call, ++calls == other_call ? 2 : 1)}); };
    EXPECT_PRED2(contains, error_of<InternalError>([&] {
                   repeat(work);
                   repeat(work);
                 }),
                 "was noted as 1 operations and called 1 then, or the same with other arguments");
    stream_.synchronize();
  }
}

TEST_F(CudaGraphsTest, WorkKeepsToItsStreamAndToOperations) {
  DeviceTensor x(numbers({64}, 1));
  EXPECT_PRED2(contains, error_of<InternalError>([&] { repeat([&] { ops_.run(other_, op::FillZero{x.view()}); }); }),
               "an operation on stream other within work that is to be repeated on compute");
  EXPECT_PRED2(contains, error_of<InternalError>([&] { repeat([&] { repeat([] {}); }); }), "lies within other such work");
  CudaDevice device(0, bell_, {}, {.graphs = true});
  float number = 0;
  EXPECT_PRED2(contains, error_of<InternalError>([&] {
                 device.run_capturable([&] { device.read(device.compute_stream(), &number, x.view().range(0, 1)); });
               }),
               "the host reads or writes memory of CUDA device 0 within work that is to be repeated");
}

TEST_F(CudaGraphsTest, ErrorsOfTheLibraryAreThrown) {
  DeviceTensor x(numbers({64}, 1));
  int size = 0;
  for (const char* call : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"}) {
    SCOPED_TRACE(call);
    ++size;
    const auto work = [&] { ops_.run(stream_, op::FillZero{x.view().range(0, size)}); };
    repeat(work);
    simulated::fail_next(call, cudaErrorMemoryAllocation);
    EXPECT_PRED2(contains, error_of<ConfigError>([&] { repeat(work); }), "cudaErrorMemoryAllocation");
    if (std::string_view(call) != "cudaStreamEndCapture") repeat(work);  // after that one the stream goes on capturing
    else {
      cudaGraph_t left = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(stream_.handle(), &left), cudaSuccess);
      ASSERT_EQ(cudaGraphDestroy(left), cudaSuccess);
    }
  }
  stream_.synchronize();
}

}  // namespace
}  // namespace trident
