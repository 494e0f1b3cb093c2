#include "infer/generate/machine_rates.h"

#include <cstdint>
#include <cstring>
#include <span>

#include "core/clock.h"
#include "device/cpu/memory_reads.h"
#include "model/config/model_stats.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

constexpr double kProductSeconds = 0.05;

}  // namespace

GenerateTimes times_of_no_pass(const ModelConfig& model) {
  GenerateTimes times;
  const auto layers = static_cast<double>(model.layers);
  times.flops_per_token = 2 * layers * static_cast<double>(block_matmul_parameters(model));
  times.flops_per_prompt = 2 * static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden);
  times.flops_per_pair = 4 * layers * static_cast<double>(model.query_width());
  return times;
}

MachineRates::MachineRates(Device& device, DType compute)
    : device_(device), compute_(compute), memory_(device.allocate(kBytes, "memory that is read to measure its rate")) {
  // Pages that were never written may all be one page of zeros.
  std::memset(memory_.data(), 1, static_cast<std::size_t>(kBytes));
}

MachineRates::Rate MachineRates::read() {
  const std::span words(reinterpret_cast<const std::uint64_t*>(memory_.data()),
                        static_cast<std::size_t>(kBytes) / sizeof(std::uint64_t));
  const double begin = monotonic_seconds(), cpu_begin = thread_cpu_seconds();
  sum_ += sum_of_words(words);
  const double seconds = monotonic_seconds() - begin, cpu_seconds = thread_cpu_seconds() - cpu_begin;
  return {static_cast<double>(kBytes) / seconds, static_cast<double>(kBytes) / cpu_seconds};
}

MachineRates::Rate MachineRates::multiply() {
  return {measure_matmul_rate(device_, compute_, kProductSeconds),
          measure_matmul_rate(device_, compute_, kProductSeconds, thread_cpu_seconds)};
}

}  // namespace trident
