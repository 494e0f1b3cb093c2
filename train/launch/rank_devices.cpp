#include "train/launch/rank_devices.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "train/plan/machine.h"
#include "train/run/run_files.h"

namespace trident {

DeviceChoice choose_device(AskedDevice asked, CudaBackend& cuda, GpuSearch found) {
  if (asked == AskedDevice::kCpu) return {DeviceKind::kCpu, "device = cpu", {}};
  if (!found.gpu_slots.empty()) {
    const std::size_t gpus = found.gpus.size();
    return {DeviceKind::kCuda,
            fmt::format("device = {}: {} GPU{}, {}", to_string(asked), gpus, gpus == 1 ? "" : "s", cuda.facts().libraries),
            std::move(found)};
  }
  if (asked == AskedDevice::kCuda) throw ConfigError(fmt::format("device = cuda: {}", found.problem));
  return {DeviceKind::kCpu, cause_of(found.problem), {}};
}

MachineFacts machine_facts(const DeviceChoice& choice, int local_ranks, std::optional<double> bf16_over_fp32) {
  MachineFacts facts;
  if (choice.kind == DeviceKind::kCpu) {
    facts = cpu_machine_facts(local_ranks, bf16_over_fp32);
  } else {
    facts.device = DeviceKind::kCuda;
    facts.multiplies_fp16 = true;
    const auto has_bf16 = [](const GpuSlot& gpu_slot) { return gpu_slot.gpu.compute_capability >= kFirstFastBf16; };
    facts.bf16_over_fp32 = std::ranges::all_of(choice.found.gpu_slots, has_bf16) ? kMatrixUnitsOverFp32 : 0;
    facts.memory = choice.found.memory;
    facts.description = choice.found.gpu_slots.front().gpu.name;
  }
  facts.device_reason = choice.why;
  facts.notes = choice.found.notes;
  return facts;
}

std::optional<double> named_peak_flops(const std::vector<std::string>& gpus, DType compute) {
  if (compute != DType::kBF16 && compute != DType::kF16) return std::nullopt;
  // NVIDIA's data sheets, dense. The first name that the GPU's contains counts, so the longer ones come first.
  static constexpr std::array<std::pair<std::string_view, double>, 7> kPeaks = {{{"H100 PCIe", 756e12},
                                                                                  {"H100 NVL", 835e12},
                                                                                  {"H100", 989e12},
                                                                                  {"GH200", 989e12},
                                                                                  {"H200 NVL", 835e12},
                                                                                  {"H200", 989e12},
                                                                                  {"A100", 312e12}}};
  double sum = 0;
  for (const std::string& gpu : gpus) {
    const auto named = std::ranges::find_if(kPeaks, [&](const auto& peak) { return gpu.find(peak.first) != std::string::npos; });
    if (named == kPeaks.end() || gpu.find(" MIG ") != std::string::npos) return std::nullopt;
    sum += named->second;
  }
  return sum;
}

std::unique_ptr<Device> make_rank_device(const DeviceChoice& choice, CudaBackend& cuda, Doorbell& doorbell, const RankDeviceOptions& options) {
  if (choice.kind == DeviceKind::kCuda) {
    return cuda.make_device(choice.found.gpu_slots.at(static_cast<std::size_t>(options.gpu_slot)).gpu.number, doorbell, options.cpu.memory, options.cuda);
  }
  return std::make_unique<CpuDevice>(doorbell, options.cpu);
}

void check_nccl_register(const CudaOptions& config, const DeviceChoice& choice, int ranks, const TransportChoice& transport) {
  if (!config.nccl_register || choice.kind == DeviceKind::kCpu || (ranks > 1 && transport.transport == DeviceTransport::kNccl)) return;
  if (ranks == 1) throw ConfigError("cuda.nccl_register = true: one rank exchanges nothing; set it to false");
  throw ConfigError(fmt::format("cuda.nccl_register = true: ranks exchange {} ({}), not by NCCL; start a process with a GPU of its own for each "
                                "rank (mpirun), or set it to false",
                                to_string(transport.transport), transport.why));
}

OnDevice on_device(const DeviceChoice& choice, CudaBackend& cuda, Device& device, DeviceTransport transport) {
  if (choice.kind == DeviceKind::kCpu) return {};
  return [&cuda, &device, transport](Axis axis, std::unique_ptr<Communicator> host) { return cuda.on_device(transport, device, axis, std::move(host)); };
}

}  // namespace trident
