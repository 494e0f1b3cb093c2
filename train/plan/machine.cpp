#include "train/plan/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <vector>

#include "core/available_memory.h"
#include "core/counted.h"
#include "core/function_ref.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/multiply_rates.h"
#include "device/operations.h"
#include "device/ops.h"

namespace trident {

MachineFacts cpu_machine_facts(int local_ranks, std::optional<double> ratio) {
  MachineFacts facts;
  facts.bf16_over_fp32 = ratio ? *ratio : bf16_over_fp32();
  facts.cores = usable_cores_of_this_process();
  facts.core_share = share_cores({&facts.cores, 1}, local_ranks);
  facts.description = fmt::format("{}, {}", counted(facts.core_share.cores, "core"), instruction_set(detect_cpu_features()));
  // The limit of the machine, or of the control group that a batch system gave the job.
  const std::int64_t memory = std::min(static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE), control_group_limit());
  MemoryPool& pool = facts.memory.emplace_back(MemoryPool{"this machine", {}, memory});
  for (int rank = 0; rank < local_ranks; ++rank) pool.ranks.push_back(rank);
  return facts;
}

std::string processor_name(const std::string& cpuinfo, const CpuFeatures& features) {
  std::ifstream file(cpuinfo);
  std::string name = "unknown processor", family;
  // The first processor's lines end with an empty one.
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) name = line.substr(colon + 2);
    if (line.starts_with("cpu family")) family = fmt::format("family {}, ", line.substr(colon + 2));
  }
  return fmt::format("{} ({}{})", name, family, instruction_set(features));
}

namespace {

// FLOPs of the product that body() may repeat.
double with_matmul(Device& device, DType compute, FunctionRef<void(FunctionRef<void()> product)> body) {
  const std::int64_t size = device.kind() == DeviceKind::kCpu ? 512 : 8192;
  MatmulShape shape{size, size, size};
  shape.transpose_b = Transpose::kYes;
  shape.in = shape.out = compute;
  Ops& ops = device.ops();
  const std::int64_t workspace_bytes = ops.prepare_matmul(shape), matrix_bytes = size * size * size_of(compute);
  const std::int64_t source_bytes = size * size * size_of(DType::kF32);
  const Buffer memory = device.allocate(3 * matrix_bytes + source_bytes + workspace_bytes, "matmul rate");
  const auto matrix = [&](int i) { return TensorView(memory.data() + i * matrix_bytes, compute, {size, size}, memory.where()); };
  std::vector<float> values(static_cast<std::size_t>(size * size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251) / 251.0f - 0.5f;  // zeros would flatter
  const TensorView source(memory.data() + 3 * matrix_bytes, DType::kF32, {size, size}, memory.where());
  device.write(device.compute_stream(), source, values.data());
  for (int i = 0; i < 2; ++i) ops.run(device.compute_stream(), op::Convert{.out = matrix(i), .x = source});
  const TensorView workspace(memory.data() + 3 * matrix_bytes + source_bytes, DType::kU8, Shape{workspace_bytes}, memory.where());
  body([&] {
    ops.run(device.compute_stream(), op::Matmul{{.out = matrix(2), .a = matrix(0), .transpose_a = Transpose::kNo, .b = matrix(1),
                                                 .transpose_b = Transpose::kYes, .accumulate = Accumulate::kNo,
                                                 .workspace = workspace}});
    device.compute_stream().synchronize();
  });
  return 2.0 * static_cast<double>(size * size * size);
}

}  // namespace

double measure_matmul_rate(Device& device, DType compute, double seconds, double (*clock)()) {
  double best = 1e30;
  const double flops = with_matmul(device, compute, [&](FunctionRef<void()> product) {
    for (const double start = monotonic_seconds(); monotonic_seconds() - start < seconds;) {
      const double before = clock();
      product();
      best = std::min(best, clock() - before);
    }
  });
  return flops / best;
}

std::optional<double> measure_matmul_peak(Device& device, DType multiplied) {
  constexpr double kMostSeconds = 2, kWorking = 0.8;
  constexpr int kFewest = 10;
  const bool on_processors = device.kind() == DeviceKind::kCpu;
  const double least_time = on_processors ? 0.05 : 0.2;
  double best = 1e30, worked = 0;  // of the fastest run
  const auto is_alone = [&] { return !on_processors || worked > kWorking * best; };
  const auto measure = [&](FunctionRef<void()> run) {
    const double start = monotonic_seconds();
    for (int runs = 0;; ++runs) {
      const double passed = monotonic_seconds() - start;
      if (passed > kMostSeconds || (passed > least_time && runs >= kFewest && is_alone())) return;
      const double wall = monotonic_seconds(), cpu = thread_cpu_seconds();
      run();
      const double seconds = monotonic_seconds() - wall;
      if (seconds < best) best = seconds, worked = thread_cpu_seconds() - cpu;
    }
  };
  if (!on_processors) {
    const double flops = with_matmul(device, multiplied, measure);
    return flops / best;
  }
  const PeakRun run = peak_run(multiplied);
  measure(run.run);
  return is_alone() ? std::optional(run.flops / best) : std::nullopt;
}

}  // namespace trident
