#include "planner/predict/run_prices.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "planner/price/cluster.h"
#include "planner/price/cpu_prices.h"
#include "planner/price/gpu_prices.h"
#include "planner/price/kept_profile.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

// The file that run.hardware_profile names; nullptr where it names none.
const std::string* named_profile(const TrainConfig& config) {
  const std::optional<std::string>& name = config.run.hardware_profile;
  return name && *name != kNoKeptProfile ? &*name : nullptr;
}

RunPrices none(std::string why) { return {.prices = nullptr, .profile = "", .why_not = std::move(why)}; }

GpuRates rates_of_gpus(const RunPlan& plan, const std::vector<std::string>& gpus) {
  if (const std::string* const file = named_profile(plan.config)) return gpu_rates_from_json(read_json_file(*file), *file);
  if (gpus.empty() || std::ranges::any_of(gpus, [&](const std::string& gpu) { return gpu != gpus.front(); }))
    throw ConfigError("the run's GPUs are not of one kind");
  const std::vector<GpuRates> shipped = shipped_price_book().hardware;
  const GpuRates* const rates = find_profile(shipped, profile_of_gpu(gpus.front()));
  if (rates == nullptr)
    throw ConfigError(fmt::format("no profile of {} comes with the program; name a file in run.hardware_profile", gpus.front()));
  return *rates;
}

RunPrices on_gpus(const RunPlan& plan, const RunHardware& hardware) {
  const GpuRates rates = rates_of_gpus(plan, hardware.gpus);
  const ClusterLinks links{hardware.ranks_of_node, rates.nvlink, rates.network};
  return {std::make_shared<GpuPrices>(rates, links), fmt::format("the profile {}", rates.name)};
}

CpuRates rates_of_processors(const RunPlan& plan, const RunHardware& hardware) {
  if (const std::string* const file = named_profile(plan.config)) return read_cpu_rates(*file);
  return plan.config.run.hardware_profile ? shipped_rates_of_this_machine(hardware.cores_of_node)
                                          : rates_of_this_machine(hardware.cores_of_node);
}

RunPrices on_processors(const RunPlan& plan, const RunHardware& hardware) {
  CpuRates rates = rates_of_processors(plan, hardware);
  const std::string name = name_of_profile(rates);
  const bool of_another = named_profile(plan.config) != nullptr && rates.processor != processor_name();
  const auto prices =
      std::make_shared<CpuPrices>(std::move(rates), CpuPlace{hardware.ranks_of_node, plan.threads_per_rank, plan.compute});
  return {
      prices, name, {}, [prices, ranks = hardware.ranks_of_process](double bytes) { return prices->resident_bytes(bytes, ranks); },
      of_another};
}

}  // namespace

CpuRates rates_of_this_machine(int cores) {
  std::optional<CpuRates> rates = kept_cpu_rates(cores);
  return rates ? *std::move(rates) : shipped_rates_of_this_machine(cores);
}

CpuRates shipped_rates_of_this_machine(int cores) {
  CpuRates rates = shipped_cpu_rates();
  if (rates.processor != processor_name() || (cores > 0 && rates.cores != cores))
    throw ConfigError(fmt::format("no profile of this machine{}; trident bench --calibrate makes one",
                                  cores > 0 ? " with " + counted(cores, "core") : ""));
  return rates;
}

std::string profile_of_gpu(const std::string& gpu) {
  // The first name that the GPU's contains counts; "" are GPUs of other memory, links or clocks.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kProfiles = {
      {{" MIG ", ""},
       {"PCIe", ""},
       {"PCIE", ""},
       {"NVL", ""},
       {"GH200", ""},
       {"GB200", "GB200"},
       {"GB300", "GB300"},
       {"B200", "B200"},
       {"B300", "B300"},
       {"H200", "H200-SXM-141GB"},
       {"H100 80GB HBM3", "H100-SXM5-80GB"},
       {"A100-SXM4-80GB", "A100-SXM4-80GB"},
       {"A100-SXM4-40GB", "A100-SXM4-40GB"},
       {"V100-SXM2-32GB", "V100-SXM2/3-32GB"},
       {"V100-SXM2-16GB", "V100-16GB"}}};
  const auto* const found =
      std::ranges::find_if(kProfiles, [&](const auto& row) { return gpu.find(row.first) != std::string::npos; });
  return found == kProfiles.end() ? "" : std::string(found->second);
}

void note_missing_prices(const RunPrices& prices, RunPlan& plan) {
  if (prices.prices == nullptr && named_profile(plan.config) != nullptr)
    plan.notes.push_back("the time of a step is not predicted: " + prices.why_not);
}

void check_hardware_profile(const TrainConfig& config, DeviceKind device) {
  if (named_profile(config) == nullptr) return;
  const std::string& file = *named_profile(config);
  try {
    if (device == DeviceKind::kCuda)
      gpu_rates_from_json(read_json_file(file), file);
    else
      read_cpu_rates(file);
  } catch (const Error& error) {
    throw ConfigError(
        fmt::format("run.hardware_profile cannot be used: {}; name a file of trident bench --calibrate (processors) or of "
                    "configs/hardware (GPUs), or null",
                    error.what()));
  }
}

RunPrices prices_of(const RunPlan& plan, const RunHardware& hardware) {
  try {
    if (hardware.device == DeviceKind::kCuda) return on_gpus(plan, hardware);
    return on_processors(plan, hardware);
  } catch (const Error& error) {
    return none(error.what());
  }
}

}  // namespace trident
