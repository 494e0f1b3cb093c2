// The profile of processors, and prices from it: what a file must say, and what calls cost by shape, size, threads and ranks.
#include "planner/price/cpu_prices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/check.h"
#include "planner/price/step_price.h"
#include "planner/price/step_simulation.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// Products take m n k / 1000 microseconds with one thread, half of that with four.
std::string product_table(int threads, bool a, bool b, double scale) {
  std::string us;
  for (const int m : {10, 100})
    for (const int n : {10, 100})
      for (const int k : {10, 100}) us += (us.empty() ? "" : ",") + std::to_string(scale * m * n * k / 1000);
  return fmt::format(
      R"({{"threads":{},"dtype":"f32","transpose_a":{},"transpose_b":{},"accumulates":false,"m":[10,100],"n":[10,100],
          "k":[10,100],"us":[{}],"source":"s"}})",
      threads, a, b, us);
}

std::string profile_text() {
  std::string products;
  for (const auto& [threads, scale] : {std::pair{1, 1.0}, {4, 0.5}})
    for (const auto& [a, b] : {std::pair{false, true}, {false, false}, {true, false}})
      products += (products.empty() ? "" : ",") + product_table(threads, a, b, scale);
  return R"({"name":"test","processor":"made up","cores":4,
    "constants":{"step_us":100,"call_us":2,"collective_us":5,"skew_root_us":2,"shared_collective_us":6,
                 "shared_root_us":3,"source":"s"},
    "memory":[{"dtype":"f32","process_bytes":1000,"rank_bytes":10,"source":"s"}],
    "products":[)" +
         products + R"(],
    "attention":[{"threads":1,"dtype":"f32","operation":"attention_forward","length":[10,100],"head_dim":[8,64],
                  "us_per_head":[1,8,100,800],"source":"s"}],
    "operations":[{"threads":1,"dtype":"f32","operation":"gelu_forward","bytes":[1000,100000],"us":[1,200],"source":"s"}],
    "collectives":[{"operation":"all_reduce","dtype":"f32","ranks":2,"world":2,"bytes":[100,10000],"us":[3,30],"source":"s"},
                   {"operation":"all_reduce","dtype":"f32","ranks":2,"world":8,"bytes":[100,10000],"us":[10,40],"source":"s"},
                   {"operation":"all_reduce","dtype":"f32","ranks":4,"world":8,"bytes":[100,10000],"us":[20,80],"source":"s"}]})";
}

CpuRates rates_of(const std::string& text) { return cpu_rates_from_json(parse_json(text, "p"), "p"); }

std::string refusal(const std::string& from, const std::string& to) {
  return error_of<ConfigError>([&] { rates_of(replaced(profile_text(), from, to)); });
}

RecordedOperation product(std::int64_t m, std::int64_t n, std::int64_t k) {
  RecordedOperation operation;
  operation.name = "matmul";
  operation.shape = MatmulShape{.m = m, .n = n, .k = k};
  return operation;
}

RecordedOperation rows(std::string_view name, double bytes) {
  RecordedOperation operation;
  operation.name = name;
  operation.bytes = bytes;
  return operation;
}

RecordedCollective all_reduce(int size, std::int64_t bytes, DType dtype = DType::kF32) {
  RecordedCollective call;
  call.operation = CommOperation::kAllReduce;
  call.size = size;
  call.dtype = dtype;
  call.operand_bytes = bytes;
  return call;
}

std::string missing(const CpuPrices& prices, const auto& call) {
  return error_of<ConfigError>([&] {
    if constexpr (requires { prices.device_seconds(call); })
      prices.device_seconds(call);
    else
      prices.seconds(call, {});
  });
}

TEST(CpuRates, AreWrittenAsTheyAreRead) {
  const JsonValue once = to_json(rates_of(profile_text()));
  EXPECT_EQ(to_json_text(to_json(cpu_rates_from_json(once, "again"))), to_json_text(once));
  const CpuRates with_peak = rates_of(replaced(
      profile_text(), R"("cores":4,)", R"("cores":4,"peak_flops_of_a_core":{"f32":2e11,"bf16":0},)"));
  EXPECT_EQ(cpu_rates_from_json(to_json(with_peak), "again").peak(DType::kF32), 2e11);
  EXPECT_EQ(with_peak.peak(DType::kBF16), 0);
  EXPECT_TRUE(is_cpu_profile(once));
}

TEST(CpuRates, RefuseWhatIsMissingUnknownOrNoNumber) {
  const std::string remedy = "no key of these files has a default, and one of an earlier version is calibrated again";
  EXPECT_EQ(refusal(R"("cores":4,)", ""), "p.cores: is missing; " + remedy);
  EXPECT_EQ(refusal(R"("cores":4,)", R"("cores":4,"corse":4,)"), "p.corse: is not a key of this object; remove it");
  EXPECT_EQ(refusal(R"("cores":4,)", R"("cores":0,)"), "p.cores: must be a whole number from 1 to 4096");
  EXPECT_EQ(refusal(R"("step_us":100)", R"("step_us":-1)"), "p.constants.step_us: must be a number from 0 to 10000000000");
  EXPECT_EQ(refusal(R"("bytes":[1000,100000])", R"("bytes":[1000,1000])"), "p.operations[0].bytes: must ascend");
  EXPECT_EQ(refusal(R"("us":[1,200])", R"("us":[1])"), "p.operations[0].us: has 1 values for 2 points; write one for each");
  EXPECT_EQ(refusal(R"("us":[1,200])", R"("us":[1,0])"), "p.operations[0].us: its numbers must be above 0 and at most 10000000000");
  EXPECT_EQ(refusal(R"("us":[1,200],"source":"s")", R"("us":[1,200])"), "p.operations[0].source: is missing; " + remedy);
  EXPECT_EQ(refusal(R"("dtype":"f32","operation":"gelu_forward")", R"("dtype":"f8","operation":"gelu_forward")"),
            "p.operations[0].dtype: \"f8\" is no dtype of a table; write f32, bf16 or f16");
  EXPECT_EQ(refusal(R"("products":[)", R"("products":3,"x":[)"), "p.products: must be a list of tables");
}

TEST(CpuPrices, ProductsByShapeThreadsAndFixedCost) {
  const CpuRates rates = rates_of(profile_text());
  const CpuPrices one(rates, {1, 1, DType::kF32}), two(rates, {1, 2, DType::kF32}), four(rates, {1, 4, DType::kF32});
  EXPECT_NEAR(one.device_seconds(product(20, 30, 50)), 2e-6 + 30e-6, 1e-12);
  EXPECT_NEAR(one.device_seconds(product(20, 30, 5000)), 2e-6 + 3000e-6, 1e-10) << "beyond the table";
  EXPECT_NEAR(one.device_seconds(product(1, 10, 10)), 2e-6 + 1e-6, 1e-12) << "below the table";
  EXPECT_NEAR(four.device_seconds(product(20, 30, 50)), 2e-6 + 15e-6, 1e-12);
  EXPECT_NEAR(two.device_seconds(product(20, 30, 50)), 2e-6 + 30e-6 / std::sqrt(2.0), 1e-12);
  EXPECT_EQ(one.issue_seconds(product(20, 30, 50)), 0);
}

TEST(CpuPrices, GradientsThatAreAddedUpHaveTheirOwnTable) {
  CpuRates rates = rates_of(profile_text());
  RecordedOperation overwrites = product(20, 30, 50), adds = overwrites;
  overwrites.shape = MatmulShape{.m = 20, .n = 30, .k = 50, .transpose_a = Transpose::kYes};
  adds.shape = MatmulShape{.m = 20, .n = 30, .k = 50, .transpose_a = Transpose::kYes, .accumulate = Accumulate::kYes};
  const CpuPrices without(rates, {1, 1, DType::kF32});
  EXPECT_NEAR(without.device_seconds(adds), 2e-6 + 30e-6, 1e-12) << "without one it takes what overwriting takes";
  for (const ProductTimes& t : std::vector(rates.products)) {
    if (t.transpose_a == Transpose::kNo) continue;
    std::vector<double> slower = t.seconds.values();
    for (double& seconds : slower) seconds *= 3;
    rates.products.push_back(t);
    rates.products.back().accumulate = Accumulate::kYes;
    rates.products.back().seconds = LogTable(t.seconds.axes(), slower, {1, 1, 1});
  }
  const CpuPrices with(rates, {1, 1, DType::kF32});
  EXPECT_NEAR(with.device_seconds(adds), 2e-6 + 90e-6, 1e-12);
  EXPECT_NEAR(with.device_seconds(overwrites), 2e-6 + 30e-6, 1e-12);
  EXPECT_EQ(to_json_text(to_json(cpu_rates_from_json(to_json(rates), "p"))), to_json_text(to_json(rates)));
}

TEST(CpuPrices, NothingGetsCheaperByGrowing) {
  const CpuRates rates = rates_of(profile_text());
  const CpuPrices prices(rates, {1, 1, DType::kF32});
  for (std::int64_t size = 1; size < 4000; size = size * 3 / 2 + 1) {
    EXPECT_LE(prices.device_seconds(product(size, 40, 40)), prices.device_seconds(product(size * 3 / 2 + 1, 40, 40)));
    EXPECT_LE(prices.device_seconds(rows("gelu_forward", 100.0 * size)), prices.device_seconds(rows("gelu_forward", 150.0 * size)));
    EXPECT_LE(prices.seconds(all_reduce(2, size), {}), prices.seconds(all_reduce(2, 2 * size), {}));
  }
}

TEST(CpuPrices, AttentionIsPricedByHeadsLengthAndWidth) {
  const CpuRates rates = rates_of(profile_text());
  const CpuPrices prices(rates, {1, 1, DType::kF32});
  RecordedOperation attention;
  attention.name = "attention_forward";
  attention.shape =
      AttentionShape{.batch = 3, .query_heads = 4, .kv_heads = 2, .query_length = 50, .key_length = 50, .head_dim = 16};
  EXPECT_NEAR(prices.device_seconds(attention), 2e-6 + 12 * 25 * 2 * 1e-6, 1e-10);
  std::get<AttentionShape>(attention.shape).interval = 10;  // of 50 keys
  EXPECT_NEAR(prices.device_seconds(attention), 2e-6 + 12 * 25 * 2 * 1e-6 * (10.0 * 91) / (50 * 51), 1e-10);
}

TEST(CpuPrices, CollectivesArePricedByGroupAndByRanksOfTheMachine) {
  const CpuRates rates = rates_of(profile_text());
  EXPECT_NEAR(CpuPrices(rates, {2, 1, DType::kF32}).seconds(all_reduce(2, 1000), {}), 5e-6 + std::sqrt(90.0) * 1e-6, 1e-12);
  const CpuPrices shared(rates, {8, 1, DType::kF32});
  EXPECT_TRUE(shared.shares_cores());
  for (const auto& [stages, at_once, load] : {std::tuple{8, 4, 0.25}, {2, 1, 1.0}, {1, 1, 2.0}, {4, 2, 0.5}}) {
    const SharedCores cores = shared.shared_cores(stages);
    EXPECT_EQ(cores.at_once, at_once) << stages;
    EXPECT_EQ(cores.load, load) << stages;
  }
  EXPECT_EQ(CpuPrices(rates, {4, 1, DType::kF32}).shared_cores(4).at_once, 0) << "of cores of their own";
  EXPECT_NEAR(shared.seconds(all_reduce(2, 1000), {}), 26e-6, 1e-12);
  EXPECT_NEAR(shared.seconds(all_reduce(4, 1000), {}), 46e-6, 1e-12);
  EXPECT_NEAR(shared.seconds(all_reduce(3, 1000), {}), 36e-6, 1e-12) << "between 2 and 4 ranks";
  EXPECT_NEAR(shared.seconds(all_reduce(8, 1000), {}), 86e-6, 1e-12) << "beyond 4 ranks";
  EXPECT_EQ(shared.seconds(all_reduce(1, 1000), {}), 0);
  RecordedCollective receive = all_reduce(2, 1000);
  receive.operation = CommOperation::kRecv;
  EXPECT_EQ(shared.seconds(receive, {}), 0);
}

// Two stages of 2 s, one micro-batch: the second starts when the first has ended, and each has cores for all its threads.
TEST(CpuPrices, StagesThatWorkOneAfterTheOtherHaveTheCoresToThemselves) {
  RankOps first, second;
  first.ops.resize(2), second.ops.resize(1);
  first.ops[0].seconds = second.ops[0].seconds = 2;
  first.ops[1].stream = StreamOp::Stream::kWire;
  second.ops[0].receives = true;
  first.ops[1].channel = second.ops[0].channel = channel_of(true, 1);
  for (const auto& [cores, ranks] : {std::pair{3, 4}, {4, 6}, {6, 8}}) {
    const CpuRates rates = rates_of(replaced(profile_text(), R"("cores":4)", fmt::format(R"("cores":{})", cores)));
    const SharedCores shared = CpuPrices(rates, {ranks, 1, DType::kF32}).shared_cores(2);
    EXPECT_DOUBLE_EQ(simulate({first, second}, {2, 1, shared}, {}, Spans::kOff).makespan, 4) << cores;
    second.ops[0].receives = false;
    EXPECT_DOUBLE_EQ(simulate({first, second}, {2, 1, shared}, {}, Spans::kOff).makespan, 2.0 * ranks / cores) << cores;
    second.ops[0].receives = true;
  }
}

// A rank with more threads than there are cores is priced by the table of all cores, and its threads beyond are idle.
TEST(CpuPrices, ThreadsBeyondTheCoresTakeNoTime) {
  const CpuRates rates = rates_of(profile_text());
  const CpuPrices all(rates, {1, 4, DType::kF32}), beyond(rates, {1, 8, DType::kF32});
  const SharedCores cores = beyond.shared_cores(1);
  EXPECT_EQ(cores.at_once * cores.load, 1);
  StepRecord record;
  record.passes.resize(1);
  record.passes[0].calls = {product(10, 10, 10)};
  EXPECT_EQ(cpu_seconds_of_step(std::vector{record}, 1, beyond), cpu_seconds_of_step(std::vector{record}, 1, all));
}

TEST(CpuPrices, AMissingTableIsNamed) {
  const CpuRates rates = rates_of(profile_text());
  const CpuPrices prices(rates, {2, 1, DType::kF32});
  const std::string remedy = "; make one with trident bench --calibrate FILE",
                    profile = "hardware profile \"test\" has no table of ";
  EXPECT_EQ(missing(prices, rows("dropout", 10)), profile + "operations dropout f32" + remedy);
  EXPECT_EQ(missing(prices, all_reduce(2, 10, DType::kBF16)), profile + "collectives all_reduce bf16" + remedy);
  RecordedOperation attention;
  attention.name = "attention_backward";
  attention.shape = AttentionShape{.batch = 1, .query_heads = 1};
  EXPECT_EQ(missing(prices, attention), profile + "attention attention_backward f32" + remedy);
  EXPECT_EQ(error_of<ConfigError>([&] {
              const CpuPrices none(rates, {2, 1, DType::kBF16});
            }),
            profile + "products bf16 (nt)" + remedy);
}

TEST(CpuPrices, CpuSecondsOfAStepCountEveryRank) {
  const CpuRates rates = rates_of(profile_text());
  StepRecord record;
  record.passes.resize(2);
  record.passes[0].calls = {rows("gelu_forward", 1000)};
  record.passes[1].calls = {product(10, 10, 10), all_reduce(2, 100)};
  record.pass_of = {1, 1, 1};
  const std::vector<StepRecord> stages{record, record};
  // all_reduce in the world of 8: 10 us beside 6; 3 us were worked before it, and more by 3 x the root of that
  const double one = 100e-6 + 3e-6 + 3 * (3e-6 + 16e-6 + 3e-6 * std::sqrt(3.0));
  EXPECT_NEAR(cpu_seconds_of_step(stages, 4, CpuPrices(rates, {8, 1, DType::kF32})), 8 * one, 1e-12);
  record.passes[1].calls.push_back(all_reduce(1, 100));  // of nobody else: nobody sleeps
  record.passes[1].calls.push_back(all_reduce(2, 100));  // nothing was worked since
  EXPECT_NEAR(cpu_seconds_of_step(std::vector{record}, 1, CpuPrices(rates, {8, 1, DType::kF32})), one + 3 * 16e-6, 1e-12);
}

TEST(CpuPrices, CpuSecondsOfRanksWithCoresOfTheirOwnHaveNoWaits) {
  const CpuRates rates = rates_of(profile_text());
  StepRecord record;
  record.passes.resize(1);
  record.passes[0].calls = {product(10, 10, 10), all_reduce(4, 100)};
  const double apart = cpu_seconds_of_step(std::vector{record}, 1, CpuPrices(rates, {4, 1, DType::kF32}));
  EXPECT_NEAR(apart, 100e-6 + 3e-6 + 5e-6 + 20e-6, 1e-12) << "who waits for a rank with a core of its own computes nothing";
}

TEST(CpuPrices, ResidentMemoryIsArenasAndWhatLiesBeside) {
  const CpuRates rates = rates_of(profile_text());
  EXPECT_EQ(CpuPrices(rates, {8, 1, DType::kF32}).resident_bytes(5000, 4), 6040);
}

// In the profile that the program carries no table falls, and each has its source.
TEST(CpuRates, TheShippedProfileIsWholeAndMonotonic) {
  const CpuRates rates = shipped_cpu_rates();
  EXPECT_EQ(rates.name, "cpu");
  const auto check = [](const LogTable& table, const std::string& source) {
    expect_parts(source, {"trident bench --calibrate"});
    std::vector<double> fallen = table.values();
    fall_to_larger(table.axes(), fallen);
    EXPECT_EQ(fallen, table.values());
  };
  for (const ProductTimes& t : rates.products) check(t.seconds, t.source);
  for (const OperationTimes& t : rates.attention) check(t.seconds, t.source);
  for (const OperationTimes& t : rates.operations) check(t.seconds, t.source);
  for (const CollectiveTimes& t : rates.collectives) check(t.seconds, t.source);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const CpuPrices prices(rates, {2, 1, compute});
    for (const char* name : {"layer_norm_forward",
                             "layer_norm_backward",
                             "rms_norm_forward",
                             "rms_norm_backward",
                             "rms_norm_squares",
                             "gelu_forward",
                             "gelu_backward",
                             "swiglu_forward",
                             "swiglu_backward",
                             "clip_forward",
                             "clip_backward",
                             "add",
                             "add_bias",
                             "scale_columns",
                             "sum_rows",
                             "rope",
                             "split_heads",
                             "merge_heads",
                             "dropout",
                             "embedding_forward",
                             "embedding_backward",
                             "cross_entropy_stats",
                             "cross_entropy_rescale",
                             "cross_entropy_loss",
                             "cross_entropy_backward",
                             "sum_squares",
                             "add_exact",
                             "adamw",
                             "lion"})
      EXPECT_GT(prices.device_seconds(rows(name, 4096)), 0) << name;
    EXPECT_GT(prices.seconds(all_reduce(2, 4096, compute), {}), 0);
  }
}

TEST(CpuPrices, HeadsAreAsWideAsTheirVectors) {
  const CpuPrices prices(rates_of(profile_text()), {1, 1, DType::kF32});
  const auto seconds = [&](std::int64_t head_dim) {
    RecordedOperation operation;
    operation.name = "attention_forward";
    AttentionShape shape;
    shape.batch = shape.query_heads = 1, shape.query_length = shape.key_length = 100, shape.head_dim = head_dim;
    operation.shape = shape;
    return prices.device_seconds(operation);
  };
  EXPECT_DOUBLE_EQ(seconds(49), seconds(64));
  EXPECT_LT(seconds(48), seconds(64));
  EXPECT_DOUBLE_EQ(seconds(33), seconds(48));
}

TEST(CpuPrices, RanksThatMeetWaitForTheSlowestOrFindTheirCachesFull) {
  const CpuRates rates = rates_of(profile_text());
  const CpuPrices apart(rates, {4, 1, DType::kF32}), sharing(rates, {8, 1, DType::kF32});
  EXPECT_NEAR(apart.waiting_seconds(100e-6), 20e-6, 1e-12);
  EXPECT_NEAR(apart.waiting_seconds(400e-6), 40e-6, 1e-12);
  EXPECT_NEAR(sharing.waiting_seconds(100e-6), 30e-6, 1e-12) << "by what it costs to find the caches full, not by waiting";
  PassRecord pass;
  pass.calls = {product(10, 10, 100), all_reduce(1, 100), product(10, 10, 100), all_reduce(2, 100), all_reduce(2, 100)};
  const TimeParts parts = price_pass(pass, ProcessGrid({.tensor = 2}), apart);
  EXPECT_NEAR(parts[TimePart::kTensor],
              2 * apart.seconds(all_reduce(2, 100), {}) + apart.waiting_seconds(parts[TimePart::kCompute]), 1e-12);
}

}  // namespace
}  // namespace trident
