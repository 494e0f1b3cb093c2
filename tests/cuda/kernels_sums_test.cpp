// Kernels that the host's table has no cases for: sums over rows in parts, the loss, sums over ranks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "core/exact_sum.h"
#include "device/cuda/kernels/kernels.h"
#include "tests/cuda/kernel_table.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/cuda/staged_operands.h"
#include "tests/device/row_kernels/kernel_fixture.h"

namespace trident::simulated {

void PrintTo(FiberOrder order, std::ostream* out) {
  *out << (order == FiberOrder::kReverse ? "threads backwards" : "warp by warp");
}

}  // namespace trident::simulated

namespace trident::testing {
namespace {

using cuda_kernels::SumOperation;
using cuda_kernels::SumType;
using simulated::FiberOrder;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class CudaKernelSums : public ::testing::TestWithParam<std::tuple<Placement, FiberOrder>> {
 protected:
  const Placement placement_ = std::get<0>(GetParam());
  const SimulatedScope scope_{{.fiber_order = std::get<1>(GetParam())}};
};

INSTANTIATE_TEST_SUITE_P(All, CudaKernelSums,
                         ::testing::Values(std::tuple{Placement::kAligned, FiberOrder::kWarpByWarp},
                                           std::tuple{Placement::kMisaligned, FiberOrder::kReverse}));

// The order of the sum is the kernel's own, so small whole numbers: any order gives the same bits.
TEST_P(CudaKernelSums, OfRowsAreExact) {
  for (const RowType t : kRowTypes)
    for (const Index rows : {0, 1, 13, 65, 300})
      for (const Index width : {0, 1, 8, 33, 264})
        for (const Index partial_rows : {2, 64}) {
          Random random(static_cast<unsigned>(rows + width));
          const auto whole = random.integers(rows * width, -64, 64);
          const auto before = random.integers(width, -64, 64);
          for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
            Values expected(static_cast<std::size_t>(width));
            if (accumulate == Accumulate::kYes) expected.assign(before.begin(), before.end());
            for (Index i = 0; i < rows * width; ++i)
              expected[static_cast<std::size_t>(i % width)] += whole[static_cast<std::size_t>(i)];
            Operand x(t, Values(whole.begin(), whole.end())), out(RowType::kF32, Values(before.begin(), before.end()));
            {
              StagedOperands s(placement_);
              const Index floats = std::max(partial_rows * width, Index{2});
              cuda_kernels::sum_rows(s.stream(), t, s.out(out.floats(), width), s.in(t, x.data(), rows * width), nullptr, rows,
                                     width, accumulate, {s.scratch(floats), floats});
            }
            ASSERT_EQ(out.values(), expected) << rows << " rows of " << width << ", " << to_string(t);
          }
        }
}

TEST_P(CudaKernelSums, TheLossIsAddedInRowOrder) {
  for (const Index rows : {0, 1, 31, 200, 1024, 2500}) {
    Random random(static_cast<unsigned>(rows));
    Values sums = random.values(RowType::kF32, rows, 30.0, 5.0), logits = random.values(RowType::kF32, rows, -2.0);
    const auto targets = random.integers(rows, -1, 3);
    double expected = 0, weighted = 0;
    Operand weights(RowType::kF32, random.values(RowType::kF32, rows));
    std::vector<float> terms(targets.size()), found(targets.size(), -1.0f);
    for (std::size_t r = 0; r < targets.size(); ++r) {
      if (targets[r] < 0) sums[r] = r % 2 == 0 ? kNaN : 0.0;  // of a row that does not count
      if (targets[r] < 0) continue;
      expected += std::log(sums[r]) - logits[r];
      weighted += double{weights.floats()[r]} * (std::log(sums[r]) - logits[r]);
      terms[r] = static_cast<float>(std::log(sums[r]) - logits[r]);
    }
    Operand s(RowType::kF32, sums), l(RowType::kF32, logits);
    EXPECT_EQ(cuda_cross_entropy_loss(placement_, nullptr, s.floats(), l.floats(), targets.data(), rows), expected)
        << rows << " rows";
    EXPECT_EQ(cuda_cross_entropy_loss(placement_, found.data(), s.floats(), l.floats(), targets.data(), rows), expected);
    EXPECT_EQ(found, terms) << rows << " rows";
    EXPECT_EQ(cuda_cross_entropy_loss(placement_, found.data(), s.floats(), l.floats(), targets.data(), rows, weights.floats()),
              weighted);
    EXPECT_EQ(found, terms) << "losses of rows are those without their weights";
  }
}

// Limb by limb what the host adds; value() says the rest.
TEST_P(CudaKernelSums, ExactSumsAreTheHosts) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Index count : {0, 1, 5, 300, 5000}) {
    std::mt19937_64 engine(static_cast<unsigned>(count));
    std::vector<double> x(static_cast<std::size_t>(count));
    for (double& v : x)
      v = std::ldexp(static_cast<double>(static_cast<std::int64_t>(engine())), static_cast<int>(engine() % 1800) - 1100);
    for (const bool finite : {true, false}) {
      if (!finite && count >= 300) x[7] = inf, x[9] = -inf, x[200] = inf, x[201] = std::numeric_limits<double>::quiet_NaN();
      ExactSum start;
      start.add(0.1);
      ExactSum expected = start, actual = start;
      expected.add(x);
      {
        StagedOperands s(placement_);
        cuda_kernels::add_exact(s.stream(), s.out(actual.limbs().data(), static_cast<Index>(ExactSum::kLimbs)),
                                s.in(x.data(), count), count);
      }
      expected.normalise();
      actual.normalise();
      ASSERT_TRUE(std::ranges::equal(actual.limbs(), expected.limbs())) << count << " elements";
    }
  }
}

// ---- sums over ranks

template <class T>
std::vector<T> rank_sum(Placement placement, SumType type, const std::vector<std::vector<T>>& of_rank, SumOperation operation,
                        bool in_place) {
  const auto count = static_cast<Index>(of_rank[0].size());
  std::vector<std::vector<T>> values = of_rank;
  std::vector<T> out = of_rank[0];
  {
    StagedOperands s(placement);
    std::vector<const void*> sources;
    for (const auto& v : values) sources.push_back(s.in(v.data(), count));
    T* const to = in_place ? s.out(values.back().data(), count) : s.out(out.data(), count);
    cuda_kernels::rank_order_sum(s.stream(), type, to, sources.data(), static_cast<int>(sources.size()), count, operation);
  }
  return in_place ? values.back() : out;
}

template <class T, class Make>
std::vector<std::vector<T>> values_of_ranks(Index ranks, Index count, Make make) {
  std::vector<std::vector<T>> all(static_cast<std::size_t>(ranks), std::vector<T>(static_cast<std::size_t>(count)));
  for (auto& v : all)
    for (T& x : v) x = make();
  return all;
}

// In rank order, in the type itself.
template <class T, class Make>
void expect_rank_sums(Placement placement, SumType type, Make make) {
  for (const Index ranks : {1, 2, 5, 8})
    for (const Index count : {0, 1, 7, 8, 200, 2049})
      for (const bool in_place : {false, true}) {
        const auto values = values_of_ranks<T>(ranks, count, make);
        std::vector<T> sum = values[0], largest = values[0];
        for (std::size_t r = 1; r < values.size(); ++r)
          for (std::size_t i = 0; i < sum.size(); ++i) {
            sum[i] = sum[i] + values[r][i];
            largest[i] = std::max(largest[i], values[r][i]);
          }
        ASSERT_EQ(rank_sum(placement, type, values, SumOperation::kSum, in_place), sum) << ranks << " ranks, " << count;
        ASSERT_EQ(rank_sum(placement, type, values, SumOperation::kMax, in_place), largest) << ranks << " ranks, " << count;
      }
}

TEST_P(CudaKernelSums, OfRanksAreTakenInRankOrder) {
  std::mt19937_64 engine(3);
  std::normal_distribution<float> normal;
  expect_rank_sums<float>(placement_, SumType::kF32, [&] { return normal(engine); });
  expect_rank_sums<double>(placement_, SumType::kF64, [&] { return double{normal(engine)}; });
  expect_rank_sums<std::int32_t>(placement_, SumType::kI32, [&] { return static_cast<std::int32_t>(engine() % 1000000) - 500000; });
  expect_rank_sums<std::int64_t>(placement_, SumType::kI64, [&] { return static_cast<std::int64_t>(engine() >> 8); });
}

void sums_of_ranks_are_rounded_once(Placement placement, SumType type, RowType t) {
  std::mt19937 engine(4);
  std::normal_distribution<float> normal;
  for (const Index count : {1, 8, 200, 2049}) {
    const auto values = values_of_ranks<std::uint16_t>(5, count, [&] { return half_bits(t, normal(engine)); });
    const auto sums = rank_sum(placement, type, values, SumOperation::kSum, false);
    const auto largest = rank_sum(placement, type, values, SumOperation::kMax, true);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float sum = half_value(t, values[0][i]), most = sum;
      for (std::size_t r = 1; r < values.size(); ++r) {
        sum += half_value(t, values[r][i]);
        most = std::max(most, half_value(t, values[r][i]));
      }
      ASSERT_EQ(sums[i], half_bits(t, sum)) << "sum " << i << " of " << count;
      ASSERT_EQ(largest[i], half_bits(t, most)) << "maximum " << i << " of " << count;
    }
  }
}
TEST_P(CudaKernelSums, OfRanksIn16BitsAreRoundedOnce) {
  sums_of_ranks_are_rounded_once(placement_, SumType::kBF16, RowType::kBF16);
  sums_of_ranks_are_rounded_once(placement_, SumType::kF16, RowType::kF16);
}

TEST_P(CudaKernelSums, AMaximumOverRanksIsNaNWhereOneIs) {
  const std::vector<std::vector<float>> values{{1, kNaN, 2, 3}, {4, 5, kNaN, 6}, {0, 7, 8, -1}};
  const auto largest = rank_sum(placement_, SumType::kF32, values, SumOperation::kMax, false);
  EXPECT_EQ(largest[0], 4.0f);
  EXPECT_TRUE(std::isnan(largest[1]));
  EXPECT_TRUE(std::isnan(largest[2]));
  EXPECT_EQ(largest[3], 6.0f);
}

}  // namespace
}  // namespace trident::testing
