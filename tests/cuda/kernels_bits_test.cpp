// Kernels whose results have the host's bits, and what no kernel's result depends on.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "tests/cuda/kernel_table.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/device/row_kernels/fused_passes.h"
#include "tests/device/row_kernels/kernel_fixture.h"

namespace trident::testing {
namespace {

constexpr RowType kF32 = RowType::kF32;

// The host's kernels that have a fused multiply-add, as a GPU has.
const RowKernels& host_table() { return row_kernels(supported_levels().back()); }

class CudaKernelBits : public ::testing::TestWithParam<std::tuple<RowType, Placement>> {
 protected:
  const RowType t_ = std::get<0>(GetParam());
  const RowKernels& k_ = cuda_kernel_table(std::get<1>(GetParam()));
  const SimulatedScope scope_;
  Random random_{11};

  // Whether this operation, run by both tables on copies of the operand, leaves the same bits in it.
  template <class Run>
  void expect_bits_of_host(const Operand& start, const char* what, const Run& run) {
    Operand here(start), there(start);
    run(host_table(), here);
    run(k_, there);
    EXPECT_EQ(here.bits(), there.bits()) << what;
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaKernelBits,
                         ::testing::Combine(::testing::ValuesIn(kRowTypes),
                                            ::testing::Values(Placement::kAligned, Placement::kMisaligned)));

TEST_P(CudaKernelBits, OfElementwiseKernelsAreTheHosts) {
  for (const Index n : {1, 63, 1000, 4099}) {
    Operand a(t_, random_.values(t_, n)), b(t_, random_.values(t_, n)), m(kF32, random_.values(kF32, n)),
        x(kF32, random_.values(kF32, n));
    Values positive = random_.values(kF32, n);
    for (double& v : positive) v = std::abs(v);
    Operand v(kF32, positive), out(t_, n), sums(kF32, Values(static_cast<std::size_t>(2 * n)));
    expect_bits_of_host(out, "add", [&](const RowKernels& k, Operand& to) { k.add(t_, to.data(), a.data(), b.data(), n); });
    expect_bits_of_host(m, "accumulate", [&](const RowKernels& k, Operand& to) { k.accumulate(to.floats(), x.floats(), n); });
    expect_bits_of_host(out, "convert", [&](const RowKernels& k, Operand& to) { k.convert(t_, to.data(), kF32, x.data(), n); });
    expect_bits_of_host(m, "convert", [&](const RowKernels& k, Operand& to) { k.convert(kF32, to.data(), t_, a.data(), n); });
    const UpdateNumbers step{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.7f, 1.3f, 2.9f};
    for (const UpdateRule rule : kUpdateRules)
      for (Operand* const looked_at : {&m, &v, &x, &out})
        expect_bits_of_host(*looked_at, "update", [&](const RowKernels& k, Operand& to) {
          Operand mean(m), square(v), master(x), param(out);
          const auto pick = [&](const Operand* it, Operand& copy) { return it == looked_at ? to.data() : copy.data(); };
          const UpdateStates states{{static_cast<float*>(pick(&m, mean)), static_cast<float*>(pick(&v, square))}};
          k.update(rule, t_, pick(&out, param), static_cast<float*>(pick(&x, master)), states, m.floats(), n, step, nullptr);
        });
    std::vector<double> here(static_cast<std::size_t>((n + 63) / 64)), there(here);
    host_table().sum_squares(here.data(), x.floats(), n);
    k_.sum_squares(there.data(), x.floats(), n);
    EXPECT_EQ(here, there) << "sum_squares";
  }
}

TEST_P(CudaKernelBits, OfRopeAndDropoutAreTheHosts) {
  const Index batch = 2, heads = 3, sequence = 4, dim = 40, half = 16;
  Operand x(t_, random_.values(t_, batch * heads * sequence * dim));
  Operand cos(kF32, random_.values(kF32, 9 * half)), sin(kF32, random_.values(kF32, 9 * half));
  const auto position = random_.integers(batch * sequence, 0, 8);
  for (const Transpose inverse : {Transpose::kNo, Transpose::kYes})
    expect_bits_of_host(x, "rope", [&](const RowKernels& k, Operand& to) {
      k.rope(t_, to.data(), cos.floats(), sin.floats(), position.data(), batch, heads, sequence, dim, half, inverse);
    });
  const std::vector<std::int64_t> samples{123456789, 7};
  const DropoutSpec spec{0.3f, {77, 99}, 4096, 12};
  for (const Index width : {8, 13, 100}) {
    Operand y(t_, random_.values(t_, sequence * batch * width));
    expect_bits_of_host(y, "dropout", [&](const RowKernels& k, Operand& to) {
      k.dropout(t_, to.data(), to.data(), samples.data(), sequence, batch, width, spec);
    });
  }
}

TEST_P(CudaKernelBits, OfFusedPassesAreThoseOfTheTwo) { expect_fused_passes(k_, t_); }

TEST_P(CudaKernelBits, OfARowDoNotDependOnItsNeighbours) {
  // Widths for rows in a warp's registers, in a block's, and read twice.
  for (const Index width : {24, 96, 2064, 8208}) {
    const Index rows = 3;
    Operand x(t_, random_.values(t_, rows * width)), weight(t_, random_.values(t_, width)), bias(t_, random_.values(t_, width));
    Operand y(t_, rows * width), mean(kF32, rows), rstd(kF32, rows);
    k_.layer_norm_forward(t_, y.data(), mean.floats(), rstd.floats(), x.data(), weight.data(), bias.data(), rows, width, 1e-5f);
    for (Index r = 0; r < rows; ++r) {
      Operand alone(t_, width), m(kF32, 1), s(kF32, 1);
      k_.layer_norm_forward(t_, alone.data(), m.floats(), s.floats(), x.at(r * width), weight.data(), bias.data(), 1, width, 1e-5f);
      ASSERT_EQ(alone.bits(), y.bits(r * width, width)) << "row " << r << " of width " << width;
    }
  }
}

TEST_P(CudaKernelBits, ThreadsMayTakeTurnsInAnyOrder) {
  const Index rows = 30, width = 72;
  Operand x(t_, random_.values(t_, rows * width)), d_y(t_, random_.values(t_, rows * width)), weight(t_, random_.values(t_, width));
  Operand rstd(kF32, random_.values(kF32, rows, 1.0, 0.1));
  std::vector<std::string> bits;
  for (const auto order : {simulated::FiberOrder::kForward, simulated::FiberOrder::kReverse, simulated::FiberOrder::kRandom,
                           simulated::FiberOrder::kWarpByWarp}) {
    simulated::configure({.seed = bits.size() + 1, .fiber_order = order});
    Operand d_x(t_, rows * width), d_weight(kF32, width), table(kF32, Values(static_cast<std::size_t>(5 * width), 1.0));
    k_.rms_norm_backward(t_, d_x.data(), d_weight.floats(), d_y.data(), x.data(), weight.data(), rstd.floats(), rows, width,
                         Accumulate::kNo, Accumulate::kNo);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * i % 5);
    k_.embedding_backward(t_, table.floats(), d_y.data(), tokens.data(), rows, width, 0, 5);
    bits.push_back(d_x.bits() + d_weight.bits() + table.bits());
  }
  for (const std::string& other : bits) EXPECT_EQ(other, bits[0]);
}

TEST_P(CudaKernelBits, WhatIsNotFiniteStaysSo) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  Operand x(t_, {nan, inf, -inf, 1.0, nan, 2.0, -3.0, 0.0}), out(t_, 8), gelu(t_, 8);
  k_.add(t_, out.data(), x.data(), x.data(), 8);
  const Values sum = out.values();
  EXPECT_TRUE(std::isnan(sum[0]));
  EXPECT_EQ(sum[1], inf);
  EXPECT_EQ(sum[2], -inf);
  // NaNs are passed over, and a row of nothing else has no largest logit.
  float row_max[2] = {7, 7}, sum_exp[2], target_logit[2];
  const std::int32_t targets[2] = {-1, -1};
  Operand rows(t_, {nan, 1.0, nan, -inf, nan, 2.5, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan});
  k_.cross_entropy_stats(t_, row_max, sum_exp, target_logit, rows.data(), targets, 2, {8, 0, 8});
  EXPECT_EQ(row_max[0], 2.5f);
  EXPECT_EQ(row_max[1], -inf);
  k_.gelu_forward(t_, gelu.data(), x.data(), 8);
  EXPECT_TRUE(std::isnan(gelu.values()[0]));
  EXPECT_EQ(gelu.values()[1], inf);
}

// Values that are rounded at random have the host's bits, beyond the largest bf16 too, whatever the order of threads.
TEST(CudaStochasticRounding, HasTheBitsOfTheHostInAnyOrderOfThreads) {
  const SimulatedScope scope;
  const Index n = 5003;
  Random random(21);
  Values weights = random.values(kF32, n);
  for (std::size_t i = 0; i < 40; ++i) weights[i * 101] = (i % 2 == 0 ? 1 : -1) * (255 + 0.025 * static_cast<double>(i)) * 0x1p120;
  const Operand master(kF32, weights), m(kF32, random.values(kF32, n)), v(kF32, Values(static_cast<std::size_t>(n), 0.3)),
      param(RowType::kBF16, n);
  Operand grad(kF32, random.values(kF32, n));
  const UpdateNumbers step{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.7f, 1.3f, 2.9f, {5, 3}};
  for (const UpdateRule rule : kUpdateRules)
    for (const RoundedElements& elements :
         {RoundedElements{{1, 2}, 12, 0, 1, 1}, {{1, 2}, 7, 0, 1, 1}, {{3, 4}, Index{1} << 40, 12, 60, 92}, {{3, 4}, 3, 1, 7, 9}}) {
      const auto bits = [&](const RowKernels& k) {
        Operand p(param), w(master), mean(m), square(v);
        k.update(rule, RowType::kBF16, p.data(), w.floats(), {{mean.floats(), square.floats()}}, grad.floats(), n, step,
                 &elements);
        return p.bits() + w.bits() + mean.bits() + square.bits();
      };
      const std::string host = bits(host_table());
      for (const Placement placement : {Placement::kAligned, Placement::kMisaligned})
        for (const auto order : {simulated::FiberOrder::kForward, simulated::FiberOrder::kReverse, simulated::FiberOrder::kRandom,
                                 simulated::FiberOrder::kWarpByWarp}) {
          simulated::configure({.seed = 3, .fiber_order = order});
          ASSERT_EQ(bits(cuda_kernel_table(placement)), host)
              << "from " << elements.first_index << ", " << elements.columns << " columns";
        }
    }
}

}  // namespace
}  // namespace trident::testing
