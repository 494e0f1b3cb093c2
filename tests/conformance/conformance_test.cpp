// The suite itself: it covers every operation, draws what it says, and notices what a device can get wrong.
#include "tests/conformance/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "device/cpu/cpu_device.h"
#include "device/operations.h"
#include "tests/conformance/builders.h"
#include "tests/conformance/case_table.h"
#include "tests/support/error_text.h"

namespace trident::conformance {
namespace {

template <class Operation>
void add_names(std::set<std::string>& names) {
  if constexpr (requires { Operation::kName; }) names.emplace(Operation::kName.name);
}

TEST(CaseTable, HasEveryOperationOfTheInterface) {
  std::set<std::string> operations, covered;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (add_names<std::remove_pointer_t<std::variant_alternative_t<i, AnyOperation>>>(operations), ...);
  }(std::make_index_sequence<std::variant_size_v<AnyOperation>>());
  EXPECT_EQ(operations.size(), std::variant_size_v<AnyOperation> - 3)
      << "but op::Update, with its rules' names, and two with those of what they do more than: BiasGelu, CrossEntropyGradient";
  for (const UpdateRule rule : kUpdateRules) operations.emplace(to_string(rule));
  for (const Epilogue epilogue : {Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward, Epilogue::kBiasGradient})
    operations.emplace(op::Fused{{.epilogue = epilogue, .product = {}}}.name().name);
  for (const OpCase& c : all_cases()) covered.insert(c.op);
  EXPECT_EQ(covered, operations);
}

TEST(CaseTable, NamesAreUnique) {
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) EXPECT_TRUE(names.insert(c.name()).second) << c.name();
}

TEST(CaseTable, EveryOperationHasAnEmptyAndALargeCase) {
  std::map<std::string, std::pair<bool, bool>> found;  // empty, large
  for (const OpCase& c : all_cases()) {
    auto& [empty, large] = found[c.op];
    empty =
        empty || std::any_of(c.operands.begin(), c.operands.end(), [](const Operand& o) { return o.shape.num_elements() == 0; });
    large = large || c.variant.starts_with("large_") || c.bytes_moved() > 50000;
  }
  for (const auto& [op, has] : found) {
    EXPECT_TRUE(has.first) << op << " has no empty case";
    EXPECT_TRUE(has.second) << op << " has no large case";
  }
}

TEST(CaseTable, TheRatesHaveEveryOperationToo) {
  std::set<std::string> measured, tested;
  for (const OpCase& c : perf_cases(DType::kBF16, {})) measured.insert(c.op);
  for (const OpCase& c : all_cases()) tested.insert(c.op);
  EXPECT_EQ(measured, tested);
}

TEST(Filter, PatternsAndExceptionsChoose) {
  const std::string name = "rms_norm_forward/bf16/large_5x8";
  for (const char* yes : {"", "rms_norm_forward", "*norm*", "add:rms_*", "*/bf16/*", "-add", "rms_*-*/f32/*"})
    EXPECT_TRUE(matches(yes, name)) << yes;
  for (const char* no : {"rms_norm", "add", "*/f32/*", "-*/large_*", "rms_*-rms_norm_forward", "-add:rms_*"})
    EXPECT_FALSE(matches(no, name)) << no;
}

TEST(DrawnOperands, FollowFromTheSeedAndFitTheirDtypes) {
  const OpCase c = add(DType::kBF16, 70000, Alias::kNone);
  const std::vector<Values> a = draw_operands(c, 5), b = draw_operands(c, 5), other = draw_operands(c, 6);
  EXPECT_EQ(a, b);
  EXPECT_NE(a[1], other[1]);
  EXPECT_NE(a[1], a[2]);
  EXPECT_EQ(a[1], decode(DType::kBF16, encode(DType::kBF16, a[1])));
  EXPECT_EQ(a[1][0], a[1][65521]);
  EXPECT_EQ(std::count(a[0].begin(), a[0].end(), 0.0), 70000) << "outputs begin as zeros";
  double sum = 0, squares = 0;
  for (const double x : a[1]) sum += x, squares += x * x;
  EXPECT_NEAR(sum / 70000, 0, 0.02);
  EXPECT_NEAR(squares / 70000, 1, 0.02);
}

TEST(DrawnOperands, IntegersReachBothEnds) {
  OpCase c = sum_rows(DType::kF32, 10, 100, Accumulate::kNo, integers(-2, 3));
  const Values drawn = draw_operands(c, 1)[1];
  EXPECT_EQ(*std::min_element(drawn.begin(), drawn.end()), -2);
  EXPECT_EQ(*std::max_element(drawn.begin(), drawn.end()), 3);
}

// ---- what the suite must notice: an addition that goes wrong in one way at a time

using Views = std::span<const TensorView>;
using Fault = std::function<void(Views v)>;

CaseResult run_faulty(const Fault& fault) {
  Doorbell bell;
  CpuDevice device(bell, {});
  OpCase c = add(DType::kF32, 100, Alias::kNone);
  const auto right = c.run;
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    right(ops, stream, v, workspace);
    fault(v);
  };
  return run_case(device, c, 1);
}

void expect_failure(const Fault& fault, const std::string& text) {
  const CaseResult result = run_faulty(fault);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  expect_parts(result.what, {text});
}

float* floats(const TensorView& view) { return view.as<float>(); }

TEST(Suite, PassesWhatIsRight) {
  const CaseResult result = run_faulty([](Views) {});
  EXPECT_EQ(result.outcome, Outcome::kPassed) << result.what;
  EXPECT_LT(result.share(), 1);
  EXPECT_GT(result.allowed, 0);
}

TEST(Suite, NoticesAWrongElement) {
  expect_failure([](Views v) { floats(v[0])[99] += 1e-3f; }, "out[99] of [100] is");
  EXPECT_GT(run_faulty([](Views v) { floats(v[0])[99] += 1e-3f; }).share(), 1);
}
TEST(Suite, NoticesAnElementThatWasNotWritten) {
  expect_failure([](Views v) { std::memset(floats(v[0]) + 50, 0xff, 4); }, "out[50] of [100] is");
}
TEST(Suite, NoticesInfinity) {
  expect_failure([](Views v) { floats(v[0])[3] = INFINITY; }, "out[3] of [100] is inf");
}
TEST(Suite, NoticesWritesBesideAnOperand) {
  expect_failure([](Views v) { floats(v[0])[100] = 0; }, "bytes beside out were written");
  expect_failure([](Views v) { floats(v[1])[-1] = 0; }, "bytes beside out were written");  // in front of b
  expect_failure([](Views v) { floats(v[2])[100] = 0; }, "bytes beside a were written");
}
TEST(Suite, NoticesAWrittenInput) {
  expect_failure([](Views v) { floats(v[2])[7] = 0; }, "a, an input, was written");
}
TEST(Suite, NoticesOtherBitsTheSecondTime) {
  int calls = 0;
  expect_failure([&](Views v) { floats(v[0])[42] = std::nextafter(floats(v[0])[42], ++calls % 2 == 1 ? -9.0f : 9.0f); },
                 "out[42] of [100] has other bits in a second call");
}
TEST(Suite, NoticesAllocationInAStep) {
  expect_failure([](Views) { allocate_host(64, "a temporary"); }, "the same call inside a step");
}

TEST(Suite, NoticesDependenceOnTheWorkspace) {
  Doorbell bell;
  CpuDevice device(bell, {});
  OpCase c = add(DType::kF32, 10, Alias::kNone);
  c.prepare = [](Ops&) { return std::int64_t{4}; };
  const auto right = c.run;
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    right(ops, stream, v, workspace);
    if (workspace.data()[0] == std::byte{0xff}) floats(v[0])[0] += 1e-7f * floats(v[0])[0];
  };
  expect_parts(run_case(device, c, 1).what, {"out[0] of [10] has other bits"});
  c.run = [=](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    right(ops, stream, v, workspace);
    workspace.data()[4] = std::byte{0};
  };
  EXPECT_EQ(run_case(device, c, 1).what, "bytes beside the workspace were written");
}

TEST(Suite, ExactZerosAndExactValuesAreCompared) {
  Doorbell bell;
  CpuDevice device(bell, {});
  const auto with = [&](OpCase c, std::size_t operand, float add) {
    const auto right = c.run;
    c.run = [=](Ops& ops, Stream& stream, Views v, TensorView workspace) {
      right(ops, stream, v, workspace);
      floats(v[operand])[0] += add;
    };
    return run_case(device, c, 1).outcome;
  };
  // Row 0 of a shard of padding is 0; nothing near 0 will do.
  EXPECT_EQ(with(cross_entropy_backward(DType::kF32, 1, {8, 40, 30}, normal()), 0, 1e-30f), Outcome::kFailed);
  EXPECT_EQ(with(sum_rows(DType::kF32, 5, 8, Accumulate::kNo, integers(2, 3)), 0, 1e-5f), Outcome::kFailed);
  EXPECT_EQ(with(sum_rows(DType::kF32, 5, 8, Accumulate::kNo, integers(2, 3)), 0, 0.0f), Outcome::kPassed);
}

TEST(Suite, ARefusalIsNeitherSuccessNorFailure) {
  Doorbell bell;
  CpuDevice device(bell, {});
  OpCase c = add(DType::kF32, 10, Alias::kNone);
  c.run = [](Ops&, Stream&, Views, TensorView) { throw ConfigError("add: not on Sundays"); };
  const CaseResult result = run_case(device, c, 1);
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_EQ(result.what, "add: not on Sundays");
  EXPECT_EQ(compare_case(device, device, c, 1).outcome, Outcome::kRefused);
}

TEST(Suite, ComparesTwoDevices) {
  Doorbell bell;
  CpuDevice device(bell, {}), other(bell, {1, std::nullopt, IsaLevel::kBaseline});
  for (const CaseResult& r : compare_devices(device, other, "gelu_forward:add_exact:rms_norm_backward-*/large_*", 3))
    EXPECT_EQ(r.outcome, Outcome::kPassed) << r.name << ": " << r.what;
  OpCase c = add(DType::kF32, 10, Alias::kNone);
  int calls = 0;
  const auto right = c.run;
  c.run = [&](Ops& ops, Stream& stream, Views v, TensorView workspace) {
    right(ops, stream, v, workspace);
    if (++calls == 2) floats(v[0])[0] += 1.0f;
  };
  expect_parts(compare_case(device, other, c, 1).what, {"the other device says"});
}

// The CPU backend passes the conformance suite, at every instruction set that this processor has. Tests are split by operation for
// their names; together they run every case.

constexpr std::uint64_t kSeed = 20261121;
constexpr const char* kMatmuls = "matmul:matmul_*";
constexpr const char* kAttention = "attention_*:*_heads:rope";
constexpr const char* kNorms = "*_norm_*";
constexpr const char* kLoss = "embedding_*:cross_entropy_*";
constexpr const char* kTheRest = "-matmul:matmul_*:attention_*:*_heads:rope:*_norm_*:embedding_*:cross_entropy_*";

void expect_passed(const std::vector<CaseResult>& results) {
  EXPECT_GT(results.size(), 20u) << "the filter finds its cases";
  for (const CaseResult& r : results) EXPECT_EQ(to_string(r.outcome), "passed") << r.name << ": " << r.what;
}

class CpuOps : public ::testing::TestWithParam<const char*> {};

TEST_P(CpuOps, AgreesWithTheReference) {
  Doorbell bell;
  CpuDevice device(bell, {});
  expect_passed(run_cases(device, GetParam(), kSeed));
}

TEST_P(CpuOps, AgreesOnLowerInstructionSets) {
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kAvx2}) {
    if (level >= detect_cpu_features().level) continue;
    SCOPED_TRACE(to_string(level));
    Doorbell bell;
    CpuDevice device(bell, {1, std::nullopt, level});
    const std::string filter = GetParam();
    expect_passed(run_cases(device, filter + (filter.find('-') == std::string::npos ? "-" : ":") + "*/large_*", kSeed));
  }
}

INSTANTIATE_TEST_SUITE_P(, CpuOps, ::testing::Values(kMatmuls, kAttention, kNorms, kLoss, kTheRest), [](const auto& info) {
  const std::string filter = info.param;
  return filter == kMatmuls    ? "Products"
         : filter == kAttention ? "Attention"
         : filter == kNorms     ? "Norms"
         : filter == kLoss      ? "EmbeddingAndLoss"
                                : "TheRest";
});

TEST(CpuFusedOperations, AreThoseTheyStandForToTheBit) {
  Doorbell bell;
  CpuDevice device(bell, {});
  expect_passed(compare_one_by_one(device, "", kSeed));
}

TEST(CpuSupport, NothingIsRefused) {
  Doorbell bell;
  CpuDevice device(bell, {});
  for (const CaseResult& r : find_support(device, "-*/large_*"))
    EXPECT_EQ(to_string(r.outcome), "passed") << r.name << ": " << r.what;
}

}  // namespace
}  // namespace trident::conformance
