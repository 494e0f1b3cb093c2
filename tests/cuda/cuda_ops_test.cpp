// CudaOps beside its kernels: which operands and streams it takes, and scratch memory shared by streams. What the operations
// compute is tests/conformance's.
#include "device/cuda/cuda_ops.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/check.h"
#include "device/cpu/doorbell.h"
#include "device/cuda/cuda_stream.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

class CudaOpsTest : public ::testing::Test {
 protected:
  TestTensor numbers(Shape shape, float first, DType dtype = DType::kF32) const {
    TestTensor t(dtype, shape);
    for (std::int64_t i = 0; i < shape.num_elements(); ++i) t.set(i, first + static_cast<float>(i % 17));
    return t;
  }

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
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.add(first_, y.view(), x.view(), short_one.view()); }),
               "add: b is f32 [4, 7], expected 32 elements of f32");
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.add(first_, y.view(), x.view(), host.view()); }),
               "add: b lies in host memory");
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.gelu_forward(first_, y.view(), host.view()); }), "lies in host memory");
}

TEST_F(CudaOpsTest, StreamsAreTheDevicesOwn) {
  DeviceTensor x(numbers({4, 8}, 1));
  CpuStream host("host", CpuStream::Mode::kQueue, progress_);
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.fill_zero(host, x.view()); }),
               "stream host is no CUDA stream of device 0");
  simulated::configure({.devices = 2});
  CudaStream other(1, "other", CudaStream::Mode::kQueue, progress_, 0);
  EXPECT_PRED2(contains, error_of<InternalError>([&] { ops_.fill_zero(other, x.view()); }),
               "stream other is no CUDA stream of device 0");
}

TEST_F(CudaOpsTest, ScratchMemoryPassesFromStreamToStream) {
  const TestTensor a = numbers({70, 40}, 1), b = numbers({70, 40}, 100);
  DeviceTensor in_a(a), in_b(b), sum_a(numbers({40}, 0)), sum_b(numbers({40}, 0));
  // The second stream is awaited first: only the event keeps the first stream's sums in front.
  for (const simulated::StreamOrder order : {simulated::StreamOrder::kTargetFirst, simulated::StreamOrder::kOthersFirst}) {
    simulated::configure({.stream_order = order});
    ops_.sum_rows(first_, sum_a.view(), in_a.view(), Accumulate::kNo);
    ops_.sum_rows(second_, sum_b.view(), in_b.view(), Accumulate::kNo);
    ops_.sum_rows(first_, sum_a.view(), in_a.view(), Accumulate::kYes);
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
  ops_.convert(first_, y.view(), x.view());
  first_.synchronize();
  EXPECT_EQ(std::memcmp(y.download().view().data(), patterns, sizeof(patterns)), 0);
  ops_.fill_zero(first_, y.view());
  ops_.fill_zero(first_, TensorView(nullptr, DType::kF32, {0}, MemoryKind::kDevice));
  first_.synchronize();
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(y.download().at(i), 0.0f);
}

}  // namespace
}  // namespace trident
