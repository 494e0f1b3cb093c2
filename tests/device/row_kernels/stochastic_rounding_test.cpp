// Updates whose bf16 parameters are rounded up or down at random: which bits, for which element, and what comes of it on average.
#include <cstdint>

#include "kernel_fixture.h"
#include "tests/support/stochastic_rounding.h"

namespace trident::testing {
namespace {

constexpr RowType kF32 = RowType::kF32, kBF16 = RowType::kBF16;
constexpr UpdateNumbers kStep{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 1.3f, 1.9f, {12, 0}};

struct State {
  explicit State(const Values& weights, unsigned seed = 3)
      : master(kF32, weights), m(kF32, Random(seed).values(kF32, size(weights))), v(kF32, Values(weights.size(), 0.3)),
        grad(kF32, Random(seed + 1).values(kF32, size(weights))), param(kBF16, size(weights)), count(size(weights)) {}
  static Index size(const Values& values) { return static_cast<Index>(values.size()); }
  void update(const RowKernels& k, const UpdateNumbers& step, const RoundedElements& elements) {
    k.update(UpdateRule::kAdamW, kBF16, param.data(), master.floats(), {{m.floats(), v.floats()}}, grad.floats(), count, step,
             &elements);
  }
  std::uint16_t bits(Index i) const {
    std::uint16_t bits{};
    std::memcpy(&bits, param.bits(i, 1).data(), sizeof bits);
    return bits;
  }
  Operand master, m, v, grad, param;
  Index count;
};

void expect_formula(const State& state, const UpdateNumbers& step, const RoundedElements& elements) {
  const Values master = state.master.values();
  for (Index i = 0; i < state.count; ++i) {
    const auto x = static_cast<float>(master[static_cast<std::size_t>(i)]);
    const std::uint32_t random = rounding_bits(elements, step.update_number(), tensor_element(elements, i));
    ASSERT_EQ(state.bits(i), rounded_at_random(x, random).bits)
        << "element " << i << " of " << state.count << ": " << x << " and " << random;
  }
}

class StochasticRounding : public ::testing::TestWithParam<IsaLevel> {
 protected:
  const RowKernels& k_ = row_kernels(GetParam());
};
INSTANTIATE_TEST_SUITE_P(All, StochasticRounding, ::testing::ValuesIn(supported_levels()),
                         [](const auto& info) { return std::string(trident::to_string(info.param)); });

TEST_P(StochasticRounding, IsWhatItsFormulaSays) {
  const Index far = Index{1} << 37;  // the counter's second word counts
  const RoundedElements cases[] = {{{1, 2}, 0, 0, 1, 1},        {{3, 4}, 5, 0, 7, 7},       {{5, 6}, far + 3, 2, 64, 64},
                                   {{7, 8}, 0, 3, 5, 13},       {{7, 8}, 24, 0, 24, 48},    {{9, 1}, 1, 0, 1, 3},
                                   {{2, 3}, far, 17, 300, 512}, {{2, 3}, 999, 40, 41, 1000}};
  for (const RoundedElements& elements : cases)
    for (const Index count : {0, 1, 3, 8, 31, 129, 700}) {
      for (const std::uint64_t update : {std::uint64_t{1}, std::uint64_t{12}, (std::uint64_t{5} << 32) + 7}) {
        UpdateNumbers step = kStep;
        step.set_update(update);
        State state(Random(7).values(kF32, count));
        state.update(k_, step, elements);
        expect_formula(state, step, elements);
      }
    }
}

TEST_P(StochasticRounding, LeavesMasterAndMomentsToAdamW) {
  const Index count = 333;
  const Values w = Random(8).values(kF32, count);
  State rounded(w), nearest(w);
  rounded.update(k_, kStep, {{1, 2}, 3, 4, 50, 70});
  nearest.param = Operand(kBF16, count);
  k_.update(UpdateRule::kAdamW, kBF16, nearest.param.data(), nearest.master.floats(), {{nearest.m.floats(), nearest.v.floats()}},
            nearest.grad.floats(), count, kStep, nullptr);
  EXPECT_EQ(rounded.master.bits(), nearest.master.bits());
  EXPECT_EQ(rounded.m.bits(), nearest.m.bits());
  EXPECT_EQ(rounded.v.bits(), nearest.v.bits());
  int different = 0;
  for (Index i = 0; i < count; ++i) different += rounded.bits(i) != nearest.bits(i) ? 1 : 0;
  EXPECT_GT(different, count / 8);  // a quarter of them, on average
}

TEST_P(StochasticRounding, OfPartsIsThatOfTheWhole) {
  const Index columns = 12, rows = 9, count = rows * columns;
  const RoundedElements all{{4, 4}, 100, 0, columns, 30};
  const Values w = Random(9).values(kF32, count);
  State whole(w);
  whole.update(k_, kStep, all);
  State parts(w);
  for (Index first = 0; first < count; first += 7) {
    const Index n = std::min<Index>(7, count - first);
    const RoundedElements part{{4, 4}, 100 + first / columns * 30, first % columns, columns, 30};
    k_.update(UpdateRule::kAdamW, kBF16, parts.param.at(first), parts.master.floats() + first,
              {{parts.m.floats() + first, parts.v.floats() + first}}, parts.grad.floats() + first, n, kStep, &part);
  }
  EXPECT_EQ(parts.param.bits(), whole.param.bits());
  EXPECT_EQ(parts.master.bits(), whole.master.bits());
}

// Weights that the update leaves as they are.
State unchanged(const Values& weights) {
  State state(weights);
  const Values zero(weights.size(), 0.0);
  state.m = Operand(kF32, zero);
  state.grad = Operand(kF32, zero);
  return state;
}
constexpr UpdateNumbers kNoChange{0.0f, 0.9f, 0.95f, 1e-8f, 0.0f, 1.0f, 1.0f, 1.0f, 1};

TEST_P(StochasticRounding, KeepsWhatNeedsNoRounding) {
  const Values exact{0.0, -0.0, 1.0, -1.0, 1.0078125, 255 * 0x1p120, -255 * 0x1p120, 0x1p-126, 0x1p-133, -0x1p-133};
  for (std::uint64_t update = 1; update < 60; ++update) {
    State state = unchanged(exact);
    UpdateNumbers step = kNoChange;
    step.set_update(update);
    state.update(k_, step, {{1, 2}, static_cast<Index>(update), 0, 1, 1});
    ASSERT_EQ(state.param.bits(), Operand(kBF16, exact).bits()) << "update " << update;
  }
}

// Beyond the largest bf16 there is no neighbour to go up to: what is nearer to it than half a step stays finite.
TEST_P(StochasticRounding, BeyondTheLargestIsToNearest) {
  const float largest = 255 * 0x1p120f, step = 0x1p120f;
  const float nan = std::nanf("7"), infinity = HUGE_VALF;
  const Values weights{double{std::nextafter(largest, infinity)},
                       double{largest + 0.25f * step},
                       double{std::nextafter(largest + 0.5f * step, 0.0f)},
                       double{largest + 0.5f * step},
                       double{largest + 0.75f * step},
                       3.4028234663852886e38,
                       -double{largest + 0.25f * step},
                       -double{largest + 0.5f * step}};
  for (std::uint64_t update = 1; update < 60; ++update) {
    State state = unchanged(weights);
    UpdateNumbers numbers = kNoChange;
    numbers.set_update(update);
    state.update(k_, numbers, {{1, 2}, 0, 0, 1, 1});
    ASSERT_EQ(state.param.bits(), Operand(kBF16, weights).bits()) << "update " << update;
  }
  EXPECT_EQ(to_bf16(static_cast<float>(weights[2])).bits, 0x7f7f);
  EXPECT_EQ(to_bf16(static_cast<float>(weights[3])).bits, 0x7f80);
  // An update that overflows, in both directions, and one that is NaN.
  State state(Values{3e38, -3e38, 1.0, 2.0});
  state.m = Operand(kF32, Values{-1.0, 1.0, double{nan}, 0.0});
  state.v = Operand(kF32, Values{0.0, 0.0, 0.0, 0.0});
  state.grad = Operand(kF32, Values{0.0, 0.0, 0.0, 0.0});
  state.update(k_, {1e38f, 0.9f, 0.95f, 1e-1f, 0.0f, 1.0f, 1.0f, 1.0f, {9, 0}}, {{1, 2}, 0, 0, 1, 1});
  EXPECT_EQ(state.bits(0), 0x7f80);
  EXPECT_EQ(state.bits(1), 0xff80);
  EXPECT_TRUE(std::isnan(to_float(bf16{state.bits(2)})));
  EXPECT_EQ(state.bits(3), to_bf16(2.0f).bits);
}

// A number that lies share / 65536 of the way from one bf16 to the next goes up in that share of cases. Of n
// independent cases a share p deviates by 5 standard deviations, sqrt(p (1 - p) / n), less than once in a
// million times; the numbers are fixed, so it never does.
TEST_P(StochasticRounding, IsRightOnAverage) {
  const Index count = 5000;
  const std::uint64_t updates = 20;
  const double n = static_cast<double>(count) * static_cast<double>(updates);
  double sign = 1.0;
  for (const double share : {1.0, 655.0, 16384.0, 32768.0, 49152.0, 65535.0}) {
    sign = -sign;
    const double p = share / 65536, weight = sign * 0x1p-10 * (1 + p / 128);
    double up = 0, both = 0, total = 0;
    std::vector<bool> before(static_cast<std::size_t>(count));
    State state = unchanged(Values(static_cast<std::size_t>(count), weight));
    for (std::uint64_t update = 1; update <= updates; ++update) {
      UpdateNumbers step = kNoChange;
      step.set_update(update);
      state.update(k_, step, {{17, 18}, 0, 0, 1, 1});
      const Values stored = state.param.values();
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const bool is_up = std::abs(stored[i]) > 0x1p-10;
        ASSERT_EQ(stored[i], sign * 0x1p-10 * (is_up ? 1 + 1.0 / 128 : 1.0));
        up += is_up ? 1 : 0;
        both += is_up && before[i] ? 1 : 0;
        before[i] = is_up;
        total += stored[i];
      }
    }
    const double deviation = std::sqrt(p * (1 - p) / n), of_both = std::sqrt(p * p * (1 - p * p) / n);
    EXPECT_NEAR(up / n, p, 5 * deviation) << share;
    EXPECT_NEAR(total / n, weight, 5 * deviation * 0x1p-17) << share;
    // In two updates on end: as often as independent numbers. Pairs that overlap depend on one
    // another: not more than doubles the deviation.
    const double pairs = n - static_cast<double>(count);
    EXPECT_NEAR(both / pairs, p * p, 5 * 2 * of_both * std::sqrt(n / pairs)) << share;
  }
}

}  // namespace
}  // namespace trident::testing
