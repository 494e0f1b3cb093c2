// A library, its products and a stream for tests of products by cuBLASLt; operands, and runs against a scalar reference.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "device/cuda/cublaslt_handle.h"
#include "device/cuda/cublaslt_matmul.h"
#include "device/no_allocation.h"
#include "tests/cuda/device_tensor.h"
#include "tests/support/reference_attention.h"

namespace trident {

inline constexpr Transpose kN = Transpose::kNo, kT = Transpose::kYes;
inline constexpr DType kH = DType::kBF16, kF16 = DType::kF16, kW = DType::kF32;

struct MatmulFixture {
  explicit MatmulFixture(const CublasLtOptions& options = {}, int device = 0) : handle(device), matmul(handle, options) {}
  CublasLtHandle handle;
  CublasLtMatmul matmul;
  TestStream stream;
};

inline Shape stored(std::int64_t rows, std::int64_t columns, Transpose t) {
  return t == kT ? Shape{columns, rows} : Shape{rows, columns};
}

struct Operands {
  TestTensor a, b, old;

  static Operands integers(const MatmulShape& s) {
    return {std::move(TestTensor(s.in, stored(s.m, s.k, s.transpose_a)).integers("a")),
            std::move(TestTensor(s.in, stored(s.k, s.n, s.transpose_b)).integers("b")),
            std::move(TestTensor(s.out, {s.m, s.n}).integers("old"))};
  }
  static Operands random(const MatmulShape& s) {
    return {std::move(TestTensor(s.in, stored(s.m, s.k, s.transpose_a)).randomize("a")),
            std::move(TestTensor(s.in, stored(s.k, s.n, s.transpose_b)).randomize("b")),
            std::move(TestTensor(s.out, {s.m, s.n}).randomize("old"))};
  }
  // In double, not rounded.
  std::vector<double> reference(const MatmulShape& s) const {
    std::vector<double> out = old.values();
    reference::matmul(out.data(), a.values().data(), s.transpose_a == kT, b.values().data(), s.transpose_b == kT, s.m, s.n, s.k,
                      s.accumulate == Accumulate::kYes);
    return out;
  }
};

// Elements by which operands are shifted.
struct Shifts {
  std::int64_t out = 0, a = 0, b = 0;
};

inline TestTensor run(MatmulFixture& f, const MatmulShape& s, const Operands& x, Shifts shifts = {}) {
  TestTensor start(s.out, {s.m, s.n});
  for (std::int64_t i = 0; i < s.m * s.n; ++i) start.set(i, s.accumulate == Accumulate::kYes ? x.old.at(i) : kNaN);
  const int device = f.handle.device();
  const DeviceTensor out(start, shifts.out, device), a(x.a, shifts.a, device), b(x.b, shifts.b, device);
  const std::int64_t bytes = f.matmul.prepare(s);
  const DeviceTensor workspace(TestTensor(DType::kU8, {bytes}), 0, device);
  {
    const NoAllocationScope step("matmul");
    f.matmul.run(f.stream.get(), {out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view()});
  }
  f.stream.synchronize();
  EXPECT_TRUE(out.guards_intact()) << describe(s);
  EXPECT_TRUE(workspace.guards_intact()) << describe(s);
  return out.download();
}

// Integer operands: every order of summation gives the same, exact result, rounded once.
inline void check_exact(MatmulFixture& f, const MatmulShape& s, Shifts shifts = {}) {
  const Operands x = Operands::integers(s);
  const std::vector<double> expected = x.reference(s);
  const TestTensor out = run(f, s, x, shifts);
  TestTensor rounded(s.out, {1});
  for (std::int64_t i = 0; i < s.m * s.n; ++i) {
    const double exact = expected[static_cast<std::size_t>(i)];
    rounded.set(0, exact);
    ASSERT_EQ(out.at(i), rounded.at(0)) << describe(s) << " element " << i;
  }
}

}  // namespace trident
