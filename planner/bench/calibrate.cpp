#include "planner/bench/calibrate.h"

#include <fmt/chrono.h>

#include <array>
#include <ctime>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "device/cpu/multiply_rates.h"
#include "planner/bench/calibrate_ranks.h"
#include "planner/bench/calibrate_training.h"
#include "train/plan/core_share.h"
#include "train/plan/machine.h"

namespace trident {

CpuRates calibrate_cpu(const CalibrateOptions& options, const std::function<void(const std::string& line)>& say) {
  CpuRates rates;
  rates.name = options.name;
  rates.processor = processor_name();
  const int cores = share_cores(std::array{usable_cores_of_this_process()}, 1).at_once();
  rates.cores = cores;
  rates.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const auto source = [&](int ranks, int threads) {
    return fmt::format("measured by trident bench --calibrate, {}, {} of {}", rates.processor, counted(ranks, "rank"),
                       counted(threads, "thread"));
  };
  rates.bf16_over_fp32 = bf16_over_fp32();
  const double begin = monotonic_seconds();
  const auto told = [&](const std::string& what, const auto& measure) {
    options.check();
    const double before = monotonic_seconds();
    measure();
    say(fmt::format("{}: {:.1f} s", what, monotonic_seconds() - before));
  };
  const auto measure_peaks = [&] {
    on_measuring_ranks(1, cores, [&](const MeasuringRank& rank) {
      rates.fp32_peak = measure_matmul_peak(rank.device, DType::kF32).value_or(0) / cores;
      if (*rates.bf16_over_fp32 > 0) rates.bf16_peak = measure_matmul_peak(rank.device, DType::kBF16).value_or(0) / cores;
    });
  };
  told("peak", measure_peaks);
  told("memory", [&] {
    measure_memory(options, "measured by trident bench --calibrate, " + rates.processor + ", 1 to 8 ranks of 1 thread", rates);
  });
  std::vector<TrainedSteps> steps;
  std::vector<std::pair<int, int>> ways{{cores, 1}};
  if (cores > 1) ways.emplace_back(1, cores);
  for (const auto& [ranks, threads] : ways) {
    const std::string of = source(ranks, threads),
                      who = fmt::format("{} of {}", counted(ranks, "rank"), counted(threads, "thread"));
    told("products, " + who, [&] { measure_products(options, ranks, threads, of, rates); });
    told("attention, " + who, [&] { measure_attention(options, ranks, threads, of, rates); });
    told("operations in training, " + who, [&] {
      std::vector<TrainedSteps> trained = measure_operations(options, ranks, threads, of, rates);
      if (threads == 1) steps = std::move(trained);
    });
  }
  told("collectives", [&] { measure_collectives(options, 4 * cores, source(cores, 1), rates); });
  fit_constants(steps, source(cores, 1), rates);
  if (!rates.has_peaks()) told("peak again", measure_peaks);  // others may have had the cores the first time
  rates.disturbance = disturbance(steps, rates);
  if (!rates.disturbance.empty()) say(rates.disturbance);
  say(fmt::format("all in {:.0f} s", monotonic_seconds() - begin));
  return rates;
}

}  // namespace trident
