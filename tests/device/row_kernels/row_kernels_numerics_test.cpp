// Accuracy and special values: exp, activations at their ends, bf16 rounding, sums of squares, norms of hard rows, Philox.
#include <bit>
#include <cstdint>
#include <limits>

#include "core/check.h"
#include "core/dtype.h"
#include "core/philox.h"
#include "kernel_fixture.h"

namespace trident::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

class RowKernelNumerics : public ::testing::TestWithParam<IsaLevel> {
 protected:
  const RowKernels& k_ = row_kernels(GetParam());

  // exp of each value, through the gradient of a vocabulary of one column, whose target is another.
  std::vector<float> exponentials(const std::vector<float>& x) {
    const auto n = static_cast<Index>(x.size());
    const std::vector<float> zero(x.size()), one(x.size(), 1.0f);
    const std::vector<std::int32_t> targets(x.size(), 1);
    std::vector<float> result = x;
    k_.cross_entropy_backward(RowType::kF32, result.data(), zero.data(), one.data(), targets.data(), n, {1, 0, 1}, 1.0f, nullptr);
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(All, RowKernelNumerics, ::testing::ValuesIn(supported_levels()),
                         [](const auto& info) { return std::string(trident::to_string(info.param)); });

TEST_P(RowKernelNumerics, ExpIsAccurateWhereResultsAreNormal) {
  std::vector<float> x;
  for (double v = -87.3; v < 88.72; v += 1.37e-4) x.push_back(static_cast<float>(v));
  const std::vector<float> y = exponentials(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(double{x[i]});
    worst = std::max(worst, std::abs(y[i] - exact) / exact);
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_GT(worst, 1e-8) << "nothing was compared";
}

TEST_P(RowKernelNumerics, ExpOfSpecialValues) {
  const std::vector<float> y = exponentials({0.0f, -kInfinity, kInfinity, 89.0f, 1e30f, -1e30f, -104.0f, kNan, -95.0f, -0.0f});
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], kInfinity);
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_EQ(y[4], kInfinity);
  EXPECT_EQ(y[5], 0.0f);
  EXPECT_LT(y[6], 1e-44f);
  EXPECT_TRUE(std::isnan(y[7]));
  EXPECT_NEAR(y[8], std::exp(-95.0), 2e-45);  // denormal
  EXPECT_EQ(y[9], 1.0f);
}

TEST_P(RowKernelNumerics, ActivationsAtTheirEnds) {
  std::vector<float> x{-kInfinity, kInfinity, kNan, 1e30f, -1e30f, 100.0f, -100.0f, 0.0f, -20.0f, 20.0f, 1e-30f}, y(x.size()),
      d(x.size());
  std::vector<float> ones(x.size(), 1.0f);
  k_.gelu_forward(RowType::kF32, y.data(), x.data(), static_cast<Index>(x.size()));
  k_.gelu_backward(RowType::kF32, d.data(), ones.data(), x.data(), static_cast<Index>(x.size()));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_TRUE(std::isnan(y[2]) && std::isnan(d[2]));
  EXPECT_EQ(y[3], 1e30f);
  EXPECT_EQ(d[3], 1.0f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_EQ(d[4], 0.0f);
  EXPECT_EQ(y[5], 100.0f);
  EXPECT_EQ(y[6], 0.0f);
  EXPECT_EQ(y[7], 0.0f);
  EXPECT_EQ(d[7], 0.5f);
  EXPECT_EQ(y[8], 0.0f);
  EXPECT_EQ(y[9], 20.0f);
  EXPECT_EQ(y[10], 0.5e-30f);
  // silu(+-100) times an up value.
  const std::vector<float> gate_up{100.0f, -100.0f, kNan, 2.0f, 2.0f, 2.0f};
  k_.swiglu_forward(RowType::kF32, y.data(), gate_up.data(), 1, 3);
  EXPECT_EQ(y[0], 200.0f);
  EXPECT_NEAR(y[1], 0.0f, 1e-40f);
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST_P(RowKernelNumerics, GeluKeepsRelativeAccuracyInTheTail) {
  for (const float x : {-3.0f, -4.0f, -5.0f, -1e-3f, 1e-3f}) {
    float y = 0;
    k_.gelu_forward(RowType::kF32, &y, &x, 1);
    const double u = 0.79788456080286535588 * (double{x} + 0.044715 * double{x} * x * x), exact = x / (1 + std::exp(-2 * u));
    EXPECT_NEAR(y, exact, 3e-6 * std::abs(exact)) << x;
  }
}

TEST_P(RowKernelNumerics, ConversionToBf16HasTheBitsOfToBf16) {
  // Every upper half (all exponents, NaNs, denormals, infinities) with lower halves around the rounding boundary.
  std::vector<float> x;
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
  std::vector<std::uint16_t> y(x.size());
  k_.convert(RowType::kBF16, y.data(), RowType::kF32, x.data(), static_cast<Index>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i], to_bf16(x[i]).bits) << std::hex << "0x" << std::bit_cast<std::uint32_t>(x[i]);
}

TEST_P(RowKernelNumerics, ConversionFromBf16IsExact) {
  std::vector<std::uint16_t> x(0x10000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint32_t> y(x.size());
  k_.convert(RowType::kF32, y.data(), RowType::kBF16, x.data(), static_cast<Index>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], static_cast<std::uint32_t>(i) << 16);
}

TEST_P(RowKernelNumerics, ConversionToF16HasTheBitsOfToF16) {
  // Every half and the boundaries between it and its neighbour, with the floats beside them; then every kind of f32.
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0x8000u; ++bits) {
    const float low = to_float(f16{static_cast<std::uint16_t>(bits)}), high = to_float(f16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = bits == 0x7bffu ? 65520.0f : (low + high) / 2;
    for (const float v : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInfinity)})
      for (const float s : {1.0f, -1.0f}) x.push_back(s * v);
  }
  for (std::uint32_t upper = 0; upper < 0x10000u; upper += 8)
    for (const std::uint32_t lower : {0x0001u, 0xffffu}) x.push_back(std::bit_cast<float>(upper << 16 | lower));
  std::vector<std::uint16_t> y(x.size());
  k_.convert(RowType::kF16, y.data(), RowType::kF32, x.data(), static_cast<Index>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i], to_f16(x[i]).bits) << std::hex << "0x" << std::bit_cast<std::uint32_t>(x[i]);
}

TEST_P(RowKernelNumerics, ConversionFromF16IsThatOfToFloat) {
  std::vector<std::uint16_t> x(0x10000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint32_t> y(x.size());
  k_.convert(RowType::kF32, y.data(), RowType::kF16, x.data(), static_cast<Index>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], std::bit_cast<std::uint32_t>(to_float(f16{x[i]}))) << i;
}

TEST_P(RowKernelNumerics, SumsOfSquaresAreTheSameBitsOnEveryLevel) {
  Random random(8);
  const Values values = random.values(RowType::kF32, 64 * 5 + 29, 0.0, 1e3);
  const std::vector<float> x(values.begin(), values.end());
  std::vector<double> y(6), baseline(6);
  k_.sum_squares(y.data(), x.data(), static_cast<Index>(x.size()));
  row_kernels(IsaLevel::kBaseline).sum_squares(baseline.data(), x.data(), static_cast<Index>(x.size()));
  EXPECT_EQ(y, baseline);
}

TEST_P(RowKernelNumerics, SumOfSquaresShowsNonFiniteAndHugeElements) {
  std::vector<float> x(200, 1.0f);
  x[70] = kNan;
  x[130] = -kInfinity;
  x[199] = std::numeric_limits<float>::max();
  std::vector<double> y(4);
  k_.sum_squares(y.data(), x.data(), 200);
  EXPECT_EQ(y[0], 64.0);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isinf(y[2]));
  EXPECT_EQ(y[3], double{x[199]} * x[199] + 7.0);
}

TEST_P(RowKernelNumerics, LayerNormOfALargeMeanDoesNotCancel) {
  std::vector<float> x(256), y(256), mean(1), rstd(1);
  const std::vector<float> one(256, 1.0f), zero(256);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 4096.0f + (i % 2 ? 1.0f : -1.0f);
  k_.layer_norm_forward(RowType::kF32, y.data(), mean.data(), rstd.data(), x.data(), one.data(), zero.data(), 1, 256, 0.0f);
  EXPECT_EQ(mean[0], 4096.0f);
  EXPECT_EQ(rstd[0], 1.0f);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], i % 2 ? 1.0f : -1.0f);
}

TEST_P(RowKernelNumerics, RmsNormRoundsTheNormalizedValueBeforeTheWeight) {
  for (const RowType t : {RowType::kBF16, RowType::kF16}) {
    Random random(12);
    Operand x(t, random.values(t, 40)), weight(t, random.values(t, 40));
    Operand y(t, 40), rstd(RowType::kF32, 1);
    k_.rms_norm_forward(t, y.data(), rstd.floats(), x.data(), weight.data(), 1, 40, 1e-6f);
    const Values xs = x.values(), ws = weight.values(), ys = y.values();
    for (std::size_t i = 0; i < 40; ++i) {
      const float normalized = rounded(t, static_cast<float>(xs[i]) * *rstd.floats());
      ASSERT_EQ(ys[i], rounded(t, normalized * static_cast<float>(ws[i]))) << to_string(t);
    }
  }
}

TEST_P(RowKernelNumerics, MaximumOfMinusInfinitiesAndNaN) {
  const std::vector<float> rows{-kInfinity, -kInfinity, kNan, 2.0f};
  std::vector<float> row_max(2), sum(2), target(2);
  const std::vector<std::int32_t> targets{-1, 1};
  k_.cross_entropy_stats(RowType::kF32, row_max.data(), sum.data(), target.data(), rows.data(), targets.data(), 2, {2, 0, 2});
  EXPECT_EQ(row_max[0], -kInfinity);
  EXPECT_EQ(sum[0], 0.0f);
  EXPECT_EQ(row_max[1], 2.0f);
  EXPECT_TRUE(std::isnan(sum[1])) << "the NaN shows in the sum";
}

// Minus infinities, and NaNs, that fill whole tiles of a row.
TEST_P(RowKernelNumerics, LogitsThatDoNotCountFillTilesOfARow) {
  std::vector<float> row(13000, -kInfinity), row_max(1), sum(1), target(1);
  const std::vector<std::int32_t> targets{12000};
  const auto statistics = [&] {
    k_.cross_entropy_stats(RowType::kF32, row_max.data(), sum.data(), target.data(), row.data(), targets.data(), 1,
                           {13000, 0, 13000});
  };
  row[9000] = 3.0f;
  row[12000] = row[12999] = 4.0f;
  statistics();
  EXPECT_EQ(row_max[0], 4.0f);
  EXPECT_NEAR(sum[0], 2 + std::exp(-1.0), 1e-6);
  EXPECT_EQ(target[0], 0.0f);
  row[0] = kNan;
  statistics();
  EXPECT_TRUE(std::isnan(sum[0]));
}

TEST_P(RowKernelNumerics, DropoutKeepsExactlyTheNumbersAboveTheProbability) {
  const PhiloxKey key{77, 88};
  const std::vector<std::int64_t> samples{0};
  const std::vector<float> ones(1000, 1.0f);
  std::vector<float> y(1000);
  // A probability that is one of the numbers drawn: that element is dropped, because keeping needs more.
  const float probability = uniform_at(key, 417);
  k_.dropout(RowType::kF32, y.data(), ones.data(), samples.data(), 1, 1, 1000, {probability, {key[0], key[1]}, 1, 0});
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(y[i], uniform_at(key, i) > probability ? 1.0f / (1.0f - probability) : 0.0f) << i;
  EXPECT_EQ(y[417], 0.0f);
}

TEST_P(RowKernelNumerics, EmptyOperandsMayBeNull) {
  k_.fill_zero(nullptr, 0);
  k_.convert(RowType::kF32, nullptr, RowType::kF32, nullptr, 0);
  k_.add(RowType::kBF16, nullptr, nullptr, nullptr, 0);
  k_.accumulate(nullptr, nullptr, 0);
  k_.sum_squares(nullptr, nullptr, 0);
  k_.sum_rows(RowType::kF32, nullptr, nullptr, nullptr, 0, 0, Accumulate::kNo);
  k_.embedding_forward(RowType::kF32, nullptr, nullptr, nullptr, 0, 0, 0, 0);
  k_.cross_entropy_backward(RowType::kF32, nullptr, nullptr, nullptr, nullptr, 0, {0, 0, 0}, 1.0f, nullptr);
}

TEST(RowType, OfComputeTypes) {
  EXPECT_EQ(row_type(DType::kF32), RowType::kF32);
  EXPECT_EQ(row_type(DType::kBF16), RowType::kBF16);
  EXPECT_EQ(row_type(DType::kF16), RowType::kF16);
  EXPECT_THROW(row_type(DType::kI32), InternalError);
}

TEST(RowKernelTable, EveryKernelIsThereAtEveryLevel) {
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    const RowKernels& table = row_kernels(level);
    EXPECT_EQ(table.level, level);
    void* pointers[sizeof(RowKernels) / sizeof(void*)];
    std::memcpy(pointers, &table, sizeof(table));
    for (std::size_t i = 1; i < std::size(pointers); ++i) EXPECT_NE(pointers[i], nullptr) << "kernel number " << i;
  }
}

TEST(RowKernelTable, UnknownLevelIsAnError) { EXPECT_THROW(row_kernels(static_cast<IsaLevel>(9)), InternalError); }

}  // namespace
}  // namespace trident::testing
