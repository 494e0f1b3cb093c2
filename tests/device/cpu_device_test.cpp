// The CPU device: what it says about itself, its options, its streams, the checks of its operations, and the twin without CUDA.
#include "device/cpu/cpu_device.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <thread>

#include "device/cpu/multiply_rates.h"
#include "device/no_allocation.h"
#include "device/operations.h"
#include "device/ops.h"
#include "tests/device/operands.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(CpuFeatures, AgreeWithTheCompilersView) {
  const CpuFeatures f = detect_cpu_features();
  EXPECT_EQ(f.level >= IsaLevel::kAvx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"));
  EXPECT_EQ(f.avx512_bf16, f.level == IsaLevel::kAvx512 && __builtin_cpu_supports("avx512bf16"));
  if (f.amx_bf16) {
    EXPECT_TRUE(f.avx512_bf16);
  }
}

TEST(CpuDevice, DescribesItselfAndObeysTheLevel) {
  Doorbell bell;
  const CpuDevice own(bell, {});
  EXPECT_EQ(own.kind(), DeviceKind::kCpu);
  EXPECT_EQ(has_bf16_products(detect_cpu_features(), detect_cpu_features().level),
            detect_cpu_features().avx512_bf16 && onednn_has_native_bf16());
  EXPECT_EQ(instruction_set({IsaLevel::kBaseline, false, false}), "baseline");
  EXPECT_EQ(instruction_set({IsaLevel::kAvx2, false, false}), "avx2");
  if (onednn_has_native_bf16()) {
    EXPECT_EQ(instruction_set({IsaLevel::kAvx512, true, false}), "avx512 with AVX512-BF16");
    EXPECT_EQ(instruction_set({IsaLevel::kAvx512, true, true}), "avx512 with AMX bf16");
  }
  EXPECT_NE(own.describe().find(to_string(detect_cpu_features().level)), std::string::npos) << own.describe();
  const CpuDevice baseline(bell, {1, std::nullopt, IsaLevel::kBaseline});
  EXPECT_FALSE(has_bf16_products(detect_cpu_features(), IsaLevel::kBaseline));
  EXPECT_EQ(baseline.describe(), "cpu, baseline row kernels, bf16 by no bf16 instructions: f32 arithmetic, 1 thread per rank");
}

// About 2 or a half of vdpbf16ps, so that no other work on the machine makes one the other.
TEST(CpuDevice, MultipliesBf16AsTheProcessorIsFaster) {
  const double ratio = bf16_over_fp32();
  if (!has_bf16_products(detect_cpu_features(), detect_cpu_features().level))
    EXPECT_EQ(ratio, 0);
  else
    EXPECT_TRUE(ratio > 1.3 || ratio < 0.8) << ratio;
  Doorbell bell;
  CpuDeviceOptions options;
  const std::string own = CpuDevice(bell, options).describe();
  options.bf16_products = Bf16Products::kConverted;
  const std::string converts = CpuDevice(bell, options).describe();
  EXPECT_NE(converts.find("f32 arithmetic"), std::string::npos) << converts;
  EXPECT_EQ(own == converts, ratio <= 1) << own;
}

// Every instruction that is not here is named, and those that are multiply at some rate.
TEST(MultiplyRates, NameWhatIsLeftOut) {
  const CpuFeatures features = detect_cpu_features();
  const std::vector<MultiplyRate> rates = measure_multiply_rates(0);
  ASSERT_EQ(rates.size(), 3u);
  for (const MultiplyRate& rate : rates) EXPECT_EQ(rate.flops > 0, rate.skipped.empty()) << rate.instruction;
  EXPECT_GT(rates[0].flops, 1e8) << "fp32";
  EXPECT_EQ(rates[1].skipped.empty(), features.avx512_bf16) << rates[1].skipped;
  EXPECT_EQ(rates[2].skipped == "this processor does not have it", !features.amx_bf16);
}

TEST(MultiplyRates, ARunIsOfTheFastestInstruction) {
  const PeakRun fp32 = peak_run(DType::kF32);
  fp32.run();
  EXPECT_GT(fp32.flops, 0);
  if (bf16_over_fp32() == 0) GTEST_SKIP() << "this processor has no bf16 instructions";
  const PeakRun bf16 = peak_run(DType::kBF16);
  bf16.run();
  EXPECT_GT(bf16.flops, 0);
}

TEST(CpuDevice, SetsThreadsOfItsOwnThreadOnly) {
  const int before = omp_get_max_threads();
  std::thread([] {
    Doorbell bell;
    const CpuDevice device(bell, {3, std::nullopt, std::nullopt});
    EXPECT_EQ(omp_get_max_threads(), 3);
    EXPECT_NE(device.describe().find("3 threads per rank"), std::string::npos);
  }).join();
  EXPECT_EQ(omp_get_max_threads(), before);
  Doorbell bell;
  EXPECT_NE(error_of<Error>([&] {
              CpuDevice(bell, {0, std::nullopt, std::nullopt});
            }).find("run.threads_per_rank = 0"),
            std::string::npos);
}

// Whether this thread, which is left with so many cores from `first` on, pins a rank of so many threads.
bool pins(int first, int cores, int threads) {
  bool pinned = false;
  std::thread([&] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    for (int core = first; core < first + cores; ++core) CPU_SET(static_cast<std::size_t>(core), &allowed);
    ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    const std::optional<int> core = core_for_rank(0, 1, threads);
    pinned = core.has_value();
    EXPECT_EQ(core.value_or(first), first);
  }).join();
  return pinned;
}

TEST(CpuDevice, PinsItsThread) {
  const std::optional<int> core = sched_getcpu();
  std::thread([core] {
    Doorbell bell;
    const CpuDevice device(bell, {1, core, std::nullopt});
    EXPECT_EQ(sched_getcpu(), *core);
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
    EXPECT_EQ(CPU_COUNT(&cores), 1);
  }).join();
  Doorbell bell;
  for (const int impossible : {-1, 1020, 100000}) {
    const std::string message = error_of<Error>([&] { CpuDevice(bell, {1, impossible, std::nullopt}); });
    EXPECT_NE(message.find("run.pin = true: cores"), std::string::npos) << message;
  }
}

// Two jobs of one thread each would take the same core of two.
TEST(CpuDevice, RanksArePinnedWhereTheyTakeAllCores) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int first = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(first), &allowed)) ++first;
  EXPECT_TRUE(pins(first, 1, 1));
  EXPECT_FALSE(pins(first, 1, 2));
  if (!CPU_ISSET(static_cast<std::size_t>(first + 1), &allowed)) GTEST_SKIP() << "needs two cores side by side";
  EXPECT_TRUE(pins(first, 2, 2));
  EXPECT_FALSE(pins(first, 2, 1));
}

TEST(CpuDevice, NewStreamsAreQueuesThatPollAdvances) {
  class Once final : public PendingOperation {
   public:
    bool poll() override { return ready; }
    std::string describe() const override { return "once"; }
    bool ready = false;
  } operation;
  Doorbell bell;
  CpuDevice device(bell, {});
  auto& stream = dynamic_cast<CpuStream&>(device.new_stream("dp"));
  EXPECT_EQ(stream.name(), "dp");
  EXPECT_EQ(device.compute_stream().name(), "compute");
  stream.enqueue(operation);
  const Event event = stream.record();
  device.poll();
  EXPECT_FALSE(event.done());
  operation.ready = true;
  device.poll();
  EXPECT_TRUE(event.done());
}

TEST(CpuDevice, AllocatesOutsideStepsOnly) {
  Doorbell bell;
  CpuDevice device(bell, {});
  EXPECT_EQ(device.allocate(100, "b").num_bytes(), 100);
  const std::string name = "b";
  const NoAllocationScope step("step");
  EXPECT_THROW(device.allocate(100, name), InternalError);
}

TEST(CpuOps, CrossEntropyLossSumsRowsThatCount) {
  Doorbell bell;
  CpuDevice device(bell, {});
  TestTensor sum_exp(DType::kF32, {3}), target_logit(DType::kF32, {3}), loss(DType::kF64, {1});
  const double sums[] = {2, 3, 5}, logits[] = {-0.5, -7, -1};
  for (int i = 0; i < 3; ++i) sum_exp.set(i, sums[i]), target_logit.set(i, logits[i]);
  std::int32_t targets[] = {4, -1, 0};
  TestTensor rows(DType::kF32, {3});
  rows.set(1, 99);
  device.ops().run(device.compute_stream(), op::CrossEntropyLoss{loss.view(), rows.view(), sum_exp.view(), target_logit.view(),
                                                                 TensorView(targets, DType::kI32, {3})});
  EXPECT_FLOAT_EQ(static_cast<float>(rows.at(0)), std::log(2.0f) + 0.5f);
  EXPECT_EQ(rows.at(1), 0.0);  // does not count
  EXPECT_FLOAT_EQ(static_cast<float>(rows.at(2)), std::log(5.0f) + 1.0f);
  EXPECT_NEAR(loss.at(0), std::log(2.0) + 0.5 + std::log(5.0) + 1.0, 1e-12);
}

// One mistake per operation: the message names operation and operand.
TEST(CpuOps, MistakesAreNamed) {
  Doorbell bell;
  CpuDevice device(bell, {});
  Ops& ops = device.ops();
  Stream& s = device.compute_stream();
  const TestTensor x(DType::kF32, {2, 3, 4}), wide(DType::kF32, {2, 3, 8}), row(DType::kF32, {4}), six(DType::kF32, {6}),
      half(DType::kBF16, {2, 3, 4});
  const TestTensor heads(DType::kF32, {3, 2, 2, 2}), ints(DType::kI32, {6}), f64(DType::kF64, {1});
  const auto v = [](const TestTensor& t) { return t.view(); };
  const TensorView moments[] = {x.view(), x.view()};
  const Accumulate no = Accumulate::kNo;
  const std::vector<std::pair<std::string, std::function<void()>>> cases = {
      {"rms_norm_forward: y", [&] { ops.run(s, op::RmsNormForward{{v(wide), v(six), v(x), v(row), 1e-5f}}); }},
      {"rms_norm_forward: residual",
       [&] { ops.run(s, op::RmsNormForward{{v(x), v(six), v(x), v(row), 1e-5f, v(x), {{}, v(wide)}}}); }},
      {"layer_norm_forward: summed bias",
       [&] { ops.run(s, op::LayerNormForward{{v(x), v(six), v(x), v(row), 1e-5f, v(x), {v(six), v(x)}}, v(six), v(row)}); }},
      {"rms_norm_backward: d_weight", [&] { ops.run(s, op::RmsNormBackward{{v(x), v(six), v(x), v(x), v(row), v(six), no, no}}); }},
      {"rms_norm_squares: squares", [&] { ops.run(s, op::RmsNormSquares{v(row), v(x)}); }},
      {"rms_norm_apply: squares", [&] { ops.run(s, op::RmsNormApply{{v(x), v(six), v(x), v(row), 1e-5f}, v(row), 12}); }},
      {"rms_norm_dots: weight", [&] { ops.run(s, op::RmsNormDots{v(six), v(x), v(x), v(six)}); }},
      {"rms_norm_apply_backward: dots",
       [&] { ops.run(s, op::RmsNormApplyBackward{{v(x), v(row), v(x), v(x), v(row), v(six), no, no}, v(row), 12}); }},
      {"layer_norm_forward: bias", [&] { ops.run(s, op::LayerNormForward{{v(x), v(six), v(x), v(row), 1e-5f}, v(six), v(six)}); }},
      {"layer_norm_backward: mean",
       [&] { ops.run(s, op::LayerNormBackward{{v(x), v(row), v(x), v(x), v(row), v(six), no, no}, v(row), v(row)}); }},
      {"swiglu_forward: gate_up", [&] { ops.run(s, op::SwigluForward{v(x), v(x)}); }},
      {"swiglu_backward: d_gate_up", [&] { ops.run(s, op::SwigluBackward{v(x), v(x), v(wide)}); }},
      {"gelu_forward: out", [&] { ops.run(s, op::GeluForward{v(half), v(x)}); }},
      {"gelu_forward: bias", [&] { ops.run(s, op::BiasGelu{v(x), v(x), v(six)}); }},
      {"gelu_backward: d_out", [&] { ops.run(s, op::GeluBackward{v(x), v(wide), v(x)}); }},
      {"clip_forward: out", [&] { ops.run(s, op::ClipForward{v(half), v(x), 1}); }},
      {"clip_backward: d_out", [&] { ops.run(s, op::ClipBackward{v(x), v(wide), v(x), 1}); }},
      {"embedding_forward: tokens", [&] { ops.run(s, op::EmbeddingForward{v(x), v(six), v(wide), 0}); }},
      {"embedding_backward: d_out", [&] { ops.run(s, op::EmbeddingBackward{v(x), v(wide), v(ints), 0}); }},
      {"cross_entropy_stats: target_logit",
       [&] { ops.run(s, op::CrossEntropyStats{v(six), v(six), v(row), v(x), v(ints), 0, 4}); }},
      {"cross_entropy_rescale: shard_max", [&] { ops.run(s, op::CrossEntropyRescale{v(six), v(six), v(row), v(six), v(ints), 4, 0,
                                                                                    4}); }},
      {"cross_entropy_loss: loss", [&] { ops.run(s, op::CrossEntropyLoss{v(row), {}, v(six), v(six), v(ints)}); }},
      {"cross_entropy_loss: row_losses", [&] { ops.run(s, op::CrossEntropyLoss{v(f64), v(row), v(six), v(six), v(ints)}); }},
      {"cross_entropy_backward: targets",
       [&] { ops.run(s, op::CrossEntropyBackward{v(x), v(six), v(six), v(six), 0, 4, 1.0f}); }},
      {"cross_entropy_backward: sum_exp",
       [&] { ops.run(s, op::CrossEntropyGradient{v(row), v(six), v(x), v(ints), 4, 1.0f}); }},
      {"cross_entropy_backward: 4 columns of a vocabulary of 5",
       [&] { ops.run(s, op::CrossEntropyGradient{v(six), v(six), v(x), v(ints), 5, 1.0f}); }},
      {"add_bias: bias", [&] { ops.run(s, op::AddBias{v(x), v(six)}); }},
      {"add_bias: residual", [&] { ops.run(s, op::AddBias{v(x), v(row), v(wide)}); }},
      {"sum_rows: out", [&] { ops.run(s, op::SumRows{v(six), v(x), no}); }},
      {"sum_rows: times", [&] { ops.run(s, op::SumRows{v(row), v(x), no, v(half)}); }},
      {"scale_columns: factor", [&] { ops.run(s, op::ScaleColumns{v(x), v(x), v(six)}); }},
      {"add: b", [&] { ops.run(s, op::Add{v(x), v(x), v(half)}); }},
      {"accumulate: x", [&] { ops.run(s, op::AccumulateInto{v(x), v(half)}); }},
      {"dropout: samples", [&] { ops.run(s, op::Dropout{v(x), v(x), v(x), {}}); }},
      {"convert: x", [&] { ops.run(s, op::Convert{v(wide), v(x)}); }},
      {"sum_squares: out", [&] { ops.run(s, op::SumSquares{v(x), v(x)}); }},
      {"adamw: grad", [&] { ops.run(s, op::Update{UpdateRule::kAdamW, v(x), v(x), moments, v(half), {}, nullptr}); }},
      {"adamw: 1 states instead of 2",
       [&] { ops.run(s, op::Update{UpdateRule::kAdamW, v(x), v(x), std::span(moments).first(1), v(x), {}, nullptr}); }},
      {"split_heads: heads", [&] { ops.run(s, op::SplitHeads{v(heads), v(x), 1}); }},
      {"split_heads: 6 pairs", [&] { ops.run(s, op::SplitHeads{v(heads), v(x), 0, {v(six), v(six), v(row)}}); }},
      {"merge_heads: heads", [&] { ops.run(s, op::MergeHeads{v(x), v(heads), -1}); }},
      {"rope: 6 pairs", [&] { ops.run(s, op::Rope{v(heads), {v(six), v(six), v(row)}, Transpose::kNo}); }},
      {"rope: position",
       [&] {
         const TensorView column = v(six).reshape({6, 1});
         ops.run(s, op::Rope{v(heads), {column, column, v(row)}, Transpose::kNo});
       }},
  };
  for (const auto& [expected, call] : cases) {
    const std::string message = error_of<Error>(call);
    EXPECT_NE(message.find(expected), std::string::npos) << expected << " / " << message;
  }
}

TEST(CpuOps, DeviceMemoryIsRefused) {
  Doorbell bell;
  CpuDevice device(bell, {});
  const TestTensor x(DType::kF32, {4});
  const TensorView elsewhere(x.view().data(), DType::kF32, {4}, MemoryKind::kDevice);
  const std::string message = error_of<Error>([&] { device.ops().run(device.compute_stream(), op::FillZero{elsewhere}); });
  EXPECT_NE(message.find("lies in device memory"), std::string::npos) << message;
}

TEST(CpuDevice, HostMemoryGoesThereAndBack) {
  Doorbell bell;
  CpuDevice device(bell, {});
  const Buffer memory = device.allocate(12, "test");
  const TensorView view(memory.data(), DType::kI32, {3});
  const std::int32_t there[3] = {1, -2, 3};
  std::int32_t back[3] = {};
  device.write(device.compute_stream(), view, there);
  device.read(device.compute_stream(), back, view);
  EXPECT_EQ(std::vector<std::int32_t>(back, back + 3), (std::vector<std::int32_t>{1, -2, 3}));
  device.write(device.compute_stream(), view.range(0, 0), nullptr);  // nothing is legal
}

}  // namespace
}  // namespace trident
