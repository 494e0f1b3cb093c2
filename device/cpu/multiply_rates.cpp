#include "device/cpu/multiply_rates.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/multiply_loops.h"
#include "device/cpu/team.h"

namespace trident {

// One source file each (multiply_loops_<level>.cpp), compiled for that instruction set.
MultiplyLoop fp32_loop_baseline();
MultiplyLoop fp32_loop_avx2();
MultiplyLoop fp32_loop_avx512();

MultiplyLoop fp32_loop(IsaLevel level) {
  switch (level) {
    case IsaLevel::kBaseline: return fp32_loop_baseline();
    case IsaLevel::kAvx2: return fp32_loop_avx2();
    case IsaLevel::kAvx512: return fp32_loop_avx512();
  }
  return fp32_loop_baseline();
}

namespace {

// The system gives a process room for tiles when it asks.
bool may_use_tiles() {
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: older headers lack it
  return ::syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

// The best of many short runs, because others may have the core, or its other thread, in some of them. CPU seconds.
double least_seconds(const MultiplyLoop& loop, std::int64_t rounds, double best) {
  const double before = thread_cpu_seconds();
  loop.run(rounds);
  return std::min(best, thread_cpu_seconds() - before);
}

double measure_bf16_over_fp32() {
  const CpuFeatures features = detect_cpu_features();
  if (!has_bf16_products(features, features.level)) return 0;
  if (features.amx_bf16 && onednn_has_native_amx()) return kMatrixUnitsOverFp32;
  constexpr std::int64_t kRounds = 5000;  // some 30,000 cycles
  constexpr int kRuns = 12;
  const MultiplyLoop fp32 = fp32_loop(features.level), bf16 = vdpbf16ps_loop_avx512();
  double of_fp32 = 1e30, of_bf16 = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    of_fp32 = least_seconds(fp32, kRounds, of_fp32);
    of_bf16 = least_seconds(bf16, kRounds, of_bf16);
  }
  return std::round(100 * bf16.flops / of_bf16 * of_fp32 / fp32.flops) / 100;
}

PeakRun team_run(const MultiplyLoop& loop) {
  constexpr double kRun = 1e-3;  // long enough for a thread that sleeps to be woken
  constexpr std::int64_t kFirst = 1000;
  loop.run(kFirst);
  const double first = std::max(least_seconds(loop, kFirst, 1), 1e-6);
  const std::int64_t rounds = std::llround(std::max(1.0, kRun / first)) * kFirst;
  return {loop.flops * static_cast<double>(rounds * team_size()),
          [=] { on_team(team_size(), [&](std::int64_t, std::int64_t) { loop.run(rounds); }); }};
}

double team_rate(const MultiplyLoop& loop, double seconds) {
  constexpr int kFewest = 5;
  const PeakRun run = team_run(loop);
  double best = 1e30;
  const double start = monotonic_seconds();
  for (int runs = 0; runs < kFewest || monotonic_seconds() - start < seconds; ++runs) {
    const double before = monotonic_seconds();
    run.run();
    best = std::min(best, monotonic_seconds() - before);
  }
  return run.flops / best;
}

}  // namespace

double bf16_over_fp32() {
  static const double ratio = measure_bf16_over_fp32();
  return ratio;
}

std::vector<MultiplyRate> measure_multiply_rates(double seconds) {
  const CpuFeatures features = detect_cpu_features();
  std::vector<MultiplyRate> rates{
      {fmt::format("fp32 multiply-add, {}", to_string(features.level)), team_rate(fp32_loop(features.level), seconds), ""}};
  MultiplyRate& pairs = rates.emplace_back(MultiplyRate{"vdpbf16ps", 0, ""});
  if (features.avx512_bf16)
    pairs.flops = team_rate(vdpbf16ps_loop_avx512(), seconds);
  else
    pairs.skipped = "this processor does not have it";
  MultiplyRate& tiles = rates.emplace_back(MultiplyRate{"tdpbf16ps (AMX)", 0, ""});
  if (!features.amx_bf16)
    tiles.skipped = "this processor does not have it";
  else if (!onednn_has_native_amx())
    tiles.skipped = "oneDNN is told not to use it, or cannot";  // so that no product reaches its rate
  else if (!may_use_tiles())
    tiles.skipped = "the system gives this process no tiles";
  else
    tiles.flops = team_rate(tdpbf16ps_loop_avx512(), seconds);
  return rates;
}

PeakRun peak_run(DType multiplied) {
  const CpuFeatures features = detect_cpu_features();
  if (multiplied != DType::kBF16) return team_run(fp32_loop(features.level));
  const bool tiles = features.amx_bf16 && onednn_has_native_amx() && may_use_tiles();
  return team_run(tiles ? tdpbf16ps_loop_avx512() : vdpbf16ps_loop_avx512());
}

}  // namespace trident
