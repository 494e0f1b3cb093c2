// Row kernels on the team: the numbers of the plain kernels, and the same bits with any number of threads.
#include "device/cpu/team_kernels.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/cpu_features.h"
#include "device/cpu/team.h"
#include "tests/device/row_kernels/kernel_fixture.h"

namespace trident::testing {
namespace {

class TeamOf {
 public:
  explicit TeamOf(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~TeamOf() { omp_set_num_threads(before_); }
  TeamOf(const TeamOf&) = delete;
  TeamOf& operator=(const TeamOf&) = delete;

 private:
  int before_;
};

TEST(Team, RunsEveryTaskOnceOnMembersOfItsOwn) {
  for (const int threads : {1, 2, 3}) {
    const TeamOf team(threads);
    ASSERT_EQ(team_size(), threads);
    std::vector<int> runs(1000, 0);
    std::vector<std::atomic<int>> busy(3);
    std::atomic<bool> shared = false;
    on_team(1000, [&](std::int64_t i, std::int64_t member) {
      if (member >= threads || ++busy[static_cast<std::size_t>(member)] != 1) shared = true;
      on_team(2, [&](std::int64_t, std::int64_t inner) {
        if (inner != 0) shared = true;
        ++runs[static_cast<std::size_t>(i)];
      });
      --busy[static_cast<std::size_t>(member)];
    });
    EXPECT_EQ(runs, std::vector<int>(1000, 2));
    EXPECT_FALSE(shared);
  }
}

// Sizes that are worth several threads, and that nothing divides.
constexpr Index kRows = 701, kWidth = 203, kCount = kRows * kWidth;
constexpr RowType kF32 = RowType::kF32;

// Holds what every kernel of a table makes of the same operands, by its name.
class Results {
 public:
  Results(const RowKernels& k, RowType t) : k_(k), t_(t) {
    norms();
    backward_norms();
    elements();
    heads();
    rows();
    losses();
    updates();
  }
  std::vector<std::pair<std::string, std::string>> bits;

 private:
  Operand random(RowType type, Index count, double mean = 0.0) { return {type, random_.values(type, count, mean)}; }
  void keep(const char* name, std::initializer_list<const Operand*> results) {
    std::string all;
    for (const Operand* result : results) all += result->bits();
    bits.emplace_back(name, all);
  }

  void norms() {
    Operand x = random(t_, kCount), d_y = random(t_, kCount), weight = random(t_, kWidth), bias = random(t_, kWidth);
    Operand y(t_, kCount), rstd(kF32, kRows), mean(kF32, kRows), squares = random(kF32, kRows, 300.0);
    k_.rms_norm_forward(t_, y.data(), rstd.floats(), x.data(), weight.data(), kRows, kWidth, 1e-6f);
    keep("rms_norm_forward", {&y, &rstd});
    k_.layer_norm_forward(t_, y.data(), mean.floats(), rstd.floats(), x.data(), weight.data(), bias.data(), kRows, kWidth, 1e-6f);
    keep("layer_norm_forward", {&y, &mean, &rstd});
    for (const void* summed_bias : {static_cast<const void*>(bias.data()), static_cast<const void*>(nullptr)}) {
      Operand sum = x;
      k_.residual_rms_norm(t_, y.data(), rstd.floats(), sum.data(), summed_bias, d_y.data(), weight.data(), kRows, kWidth, 1e-6f);
      keep("residual_rms_norm", {&sum, &y, &rstd});
      k_.residual_layer_norm(t_, y.data(), mean.floats(), rstd.floats(), sum.data(), summed_bias, d_y.data(), weight.data(),
                             bias.data(), kRows, kWidth, 1e-6f);
      keep("residual_layer_norm", {&sum, &y, &mean, &rstd});
    }
    k_.rms_norm_apply(t_, y.data(), rstd.floats(), x.data(), weight.data(), squares.floats(), kRows, kWidth, 2 * kWidth, 1e-6f);
    keep("rms_norm_apply", {&y, &rstd});
    k_.rms_norm_squares(t_, squares.floats(), x.data(), kRows, kWidth);
    keep("rms_norm_squares", {&squares});
    k_.rms_norm_dots(t_, squares.floats(), d_y.data(), x.data(), weight.data(), kRows, kWidth);
    keep("rms_norm_dots", {&squares});
  }
  void backward_norms() {
    Operand x = random(t_, kCount), d_y = random(t_, kCount), weight = random(t_, kWidth), d_x = random(t_, kCount);
    Operand rstd = random(kF32, kRows, 1.0), mean = random(kF32, kRows), dots = random(kF32, kRows);
    Operand d_weight = random(kF32, kWidth), d_bias = random(kF32, kWidth), factor = random(kF32, kWidth);
    for (const Accumulate accumulate : {Accumulate::kYes, Accumulate::kNo}) {
      k_.rms_norm_backward(t_, d_x.data(), d_weight.floats(), d_y.data(), x.data(), weight.data(), rstd.floats(), kRows, kWidth,
                           accumulate, accumulate);
      keep("rms_norm_backward", {&d_x, &d_weight});
      k_.rms_norm_apply_backward(t_, d_x.data(), d_weight.floats(), d_y.data(), x.data(), weight.data(), rstd.floats(),
                                 dots.floats(), kRows, kWidth, 2 * kWidth, accumulate, accumulate);
      keep("rms_norm_apply_backward", {&d_x, &d_weight});
      k_.layer_norm_backward(t_, d_x.data(), d_weight.floats(), d_bias.floats(), d_y.data(), x.data(), weight.data(), mean.floats(),
                             rstd.floats(), kRows, kWidth, accumulate, accumulate);
      keep("layer_norm_backward", {&d_x, &d_weight, &d_bias});
      for (const void* times : {static_cast<const void*>(nullptr), static_cast<const void*>(d_y.data())}) {
        k_.sum_rows(t_, d_bias.floats(), x.data(), times, kRows, kWidth, accumulate);
        keep("sum_rows", {&d_bias});
      }
      k_.scale_columns(t_, d_x.data(), x.data(), factor.floats(), 0.5f, kRows, kWidth, accumulate);
      keep("scale_columns", {&d_x});
    }
  }
  void elements() {
    Operand x = random(t_, kCount), d_out = random(t_, kCount), out(t_, kCount), wide = random(kF32, kCount);
    k_.gelu_forward(t_, out.data(), x.data(), kCount);
    keep("gelu_forward", {&out});
    k_.gelu_backward(t_, out.data(), d_out.data(), x.data(), kCount);
    keep("gelu_backward", {&out, &d_out});
    k_.clip_forward(t_, out.data(), x.data(), kCount, 0.7f);
    keep("clip_forward", {&out});
    k_.clip_backward(t_, out.data(), d_out.data(), x.data(), kCount, 0.7f);
    keep("clip_backward", {&out});
    k_.add(t_, out.data(), d_out.data(), x.data(), kCount);
    keep("add", {&out});
    k_.convert(t_, out.data(), kF32, wide.data(), kCount);
    keep("convert", {&out});
    k_.convert(kF32, wide.data(), t_, x.data(), kCount);
    keep("convert", {&wide});
    Operand more = random(kF32, kCount);
    k_.accumulate(wide.floats(), more.floats(), kCount);
    keep("accumulate", {&wide});
    std::vector<double> squares((kCount + 63) / 64);
    k_.sum_squares(squares.data(), more.floats(), kCount);
    bits.emplace_back("sum_squares", std::string(reinterpret_cast<char*>(squares.data()), 8 * squares.size()));
    k_.fill_zero(more.at(1), 4 * (kCount - 2) + 3);  // not a whole number of elements
    keep("fill_zero", {&more});
  }
  void heads() {
    constexpr Index kBatch = 3, kHeads = 5, kDim = 16, kColumns = 2 * kHeads * kDim, kHalf = 6;
    const Index sequence = kRows, count = kBatch * kHeads * sequence * kDim;
    Operand rows = random(t_, sequence * kBatch * kColumns), split(t_, count);
    Operand cos = random(kF32, sequence * kHalf), sin = random(kF32, sequence * kHalf);
    const auto position = random_.integers(kBatch * sequence, 0, static_cast<std::int32_t>(sequence) - 1);
    k_.split_heads(t_, split.data(), rows.data(), kBatch, kHeads, sequence, kDim, kColumns, 48);
    keep("split_heads", {&split});
    k_.rope(t_, split.data(), cos.floats(), sin.floats(), position.data(), kBatch, kHeads, sequence, kDim, kHalf, Transpose::kYes);
    keep("rope", {&split});
    k_.merge_heads(t_, rows.data(), split.data(), kBatch, kHeads, sequence, kDim, kColumns, 16);
    keep("merge_heads", {&rows});
    k_.split_rotated_heads(t_, split.data(), rows.data(), kBatch, kHeads, sequence, kDim, kColumns, 48, cos.floats(), sin.floats(),
                           position.data(), kHalf);
    keep("split_rotated_heads", {&split});
    k_.merge_rotated_heads(t_, rows.data(), split.data(), kBatch, kHeads, sequence, kDim, kColumns, 16, cos.floats(), sin.floats(),
                           position.data(), kHalf);
    keep("merge_rotated_heads", {&rows});
    constexpr Index kSamples = 3, kLength = 230;
    const std::vector<std::int64_t> samples{7, 0, 3'000'000'019};
    Operand x = random(t_, kLength * kSamples * kWidth), out(t_, kLength * kSamples * kWidth);
    k_.dropout(t_, out.data(), x.data(), samples.data(), kLength, kSamples, kWidth, {0.3f, {1, 2}, 500, 11});
    keep("dropout", {&out});
  }
  void rows() {
    Operand x = random(t_, kCount), bias = random(t_, kWidth), gate_up = random(t_, 2 * kCount), out(t_, kCount);
    k_.swiglu_forward(t_, out.data(), gate_up.data(), kRows, kWidth);
    keep("swiglu_forward", {&out});
    k_.swiglu_backward(t_, gate_up.data(), x.data(), Operand(gate_up).data(), kRows, kWidth);
    keep("swiglu_backward", {&gate_up, &x});
    k_.add_bias(t_, x.data(), bias.data(), kRows, kWidth);
    keep("add_bias", {&x});
    k_.add_bias_residual(t_, x.data(), bias.data(), out.data(), kRows, kWidth);
    keep("add_bias_residual", {&x});
    k_.bias_gelu(t_, out.data(), x.data(), bias.data(), kRows, kWidth);
    keep("bias_gelu", {&out, &x});
    constexpr Index kTable = 450;
    const auto tokens = random_.integers(kRows, 90, 600);
    Operand table = random(t_, kTable * kWidth), d_table = random(kF32, kTable * kWidth);
    k_.embedding_forward(t_, out.data(), tokens.data(), table.data(), kRows, kWidth, 100, kTable);
    keep("embedding_forward", {&out});
    k_.embedding_backward(t_, d_table.floats(), out.data(), tokens.data(), kRows, kWidth, 100, kTable);
    keep("embedding_backward", {&d_table});
  }
  void losses() {
    const VocabularyShard shard{kWidth, 100, 295, 5.0f};
    const auto targets = random_.integers(kRows, -20, 320);
    Operand logits = random(t_, kCount), most(kF32, kRows), sum(kF32, kRows), target(kF32, kRows);
    k_.cross_entropy_stats(t_, most.floats(), sum.floats(), target.floats(), logits.data(), targets.data(), kRows, shard);
    keep("cross_entropy_stats", {&most, &sum, &target});
    Operand whole = logits;
    k_.cross_entropy_gradient(t_, whole.data(), sum.floats(), target.floats(), targets.data(), kRows, shard, 0.3f, nullptr);
    keep("cross_entropy_gradient", {&whole, &sum, &target});
    k_.cross_entropy_stats(t_, most.floats(), sum.floats(), target.floats(), logits.data(), targets.data(), kRows, shard);
    k_.cross_entropy_backward(t_, logits.data(), most.floats(), sum.floats(), targets.data(), kRows, shard, 0.3f, nullptr);
    keep("cross_entropy_backward", {&logits});
  }
  void updates() {
    const RoundedElements parts{{11, 12}, (Index{1} << 36) + 64, 13, 36, 100}, rows{{11, 12}, 500, 3, 100, 100};
    for (const UpdateRule rule : kUpdateRules) {
      for (const RoundedElements* at_random : {static_cast<const RoundedElements*>(nullptr), &parts, &rows}) {
        if (at_random != nullptr && t_ != RowType::kBF16) continue;
        Operand param(t_, kCount), master = random(kF32, kCount), m = random(kF32, kCount), v = random(kF32, kCount, 9.0);
        Operand grad = random(kF32, kCount);
        const UpdateNumbers step{1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.7f, 1.3f, 1.9f, {5, 0}};
        k_.update(rule, t_, param.data(), master.floats(), {{m.floats(), num_states(rule) > 1 ? v.floats() : nullptr}},
                  grad.floats(), kCount, step, at_random);
        keep("update", {&param, &master, &m, &v});
      }
    }
  }

  const RowKernels& k_;
  RowType t_;
  Random random_{3};
};

class TeamKernels : public ::testing::TestWithParam<RowType> {};
INSTANTIATE_TEST_SUITE_P(All, TeamKernels, ::testing::ValuesIn(kRowTypes), ::testing::PrintToStringParamName());

// Beyond 2 * kRowsOfASum rows, sums over rows are formed in another order than by one call.
TEST_P(TeamKernels, HaveTheBitsOfPlainKernelsWhateverTheThreads) {
  const IsaLevel level = detect_cpu_features().level;
  const Results plain(row_kernels(level), GetParam());
  std::vector<Results> on_team;
  for (const int threads : {1, 2, 3}) {
    const TeamOf team(threads);
    on_team.emplace_back(team_kernels(level), GetParam());
  }
  for (std::size_t i = 0; i < plain.bits.size(); ++i) {
    const auto& [name, bits] = plain.bits[i];
    const bool sums = name.ends_with("norm_backward") || name.ends_with("apply_backward") || name == "sum_rows";
    EXPECT_TRUE(sums || on_team[0].bits[i].second == bits) << name << " on the team is not the plain kernel";
    EXPECT_EQ(on_team[0].bits[i].second.size(), bits.size()) << name;
    for (const std::size_t more : {1, 2})
      EXPECT_TRUE(on_team[0].bits[i] == on_team[more].bits[i])
          << name << " with " << more + 1 << " threads has other bits than with one";
  }
  std::set<std::string> names;
  for (const auto& [name, bits] : plain.bits) names.insert(name);
  EXPECT_EQ(sizeof(RowKernels), (1 + names.size()) * sizeof(void (*)())) << "a kernel is not looked at";
}

TEST(TeamKernelSums, AddRowsUpInBlocksOfSixtyFourOrMore) {
  const RowKernels &plain = row_kernels(IsaLevel::kBaseline), &team = team_kernels(IsaLevel::kBaseline);
  for (const Index rows : {0, 1, 127, 128, 301}) {
    for (const Index width : {1, 130, 40'000}) {  // the widest has no second block
      Random random(static_cast<unsigned>(rows));
      Operand in(kF32, random.values(kF32, rows * width)), sums(kF32, random.values(kF32, width)), expected = sums;
      const TeamOf two(2);
      team.sum_rows(kF32, sums.floats(), in.data(), nullptr, rows, width, Accumulate::kYes);
      plain.sum_rows(kF32, expected.floats(), in.data(), nullptr, rows, width, Accumulate::kYes);
      if (rows < 2 * kRowsOfASum || width > 30'000) {
        EXPECT_EQ(sums.bits(), expected.bits()) << rows << " rows of " << width;
      }
      expect_close(sums.values(), expected.values(), kF32, "sums", 1e-5);
    }
  }
}

}  // namespace
}  // namespace trident::testing
