// The prices that a run's step is predicted with: those of the processors or GPUs that it computes on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "planner/price/cpu_rates.h"
#include "planner/price/work_prices.h"
#include "train/plan/run_plan.h"
#include "train/run/run_forecast.h"

namespace trident {

struct RunPrices {
  std::shared_ptr<const WorkPrices> prices;                 // nullptr: there are none
  std::string profile;                                      // whose: "the profile cpu"
  std::string why_not = {};                                 // a sentence's end, where there are none
  std::function<double(double arena_bytes)> resident = {};  // bytes of a process whose arenas are these; not set: not predicted
  bool of_another = false;  // processor than this machine's: run.hardware_profile named the profile
};

// ConfigError where run.hardware_profile names a file that is no profile of such devices, before a run starts with it.
void check_hardware_profile(const TrainConfig& config, DeviceKind device);

// By run.hardware_profile, or without it by the profile kept of this machine, or the one of this kind of hardware that comes with
// the program. Throws nothing
// because there is none, or one that cannot be used: that is what why_not says.
RunPrices prices_of(const RunPlan& plan, const RunHardware& hardware);

// A profile that was named and lacks what the run needs is said when it starts, among the plan's notes.
void note_missing_prices(const RunPrices& prices, RunPlan& plan);

// run.hardware_profile: what was kept of this machine does not count.
inline constexpr std::string_view kNoKeptProfile = "none";

// The rates kept of this machine, whose ranks keep `cores` busy (0: not known), or shipped ones: those that come with the program,
// which are of one machine and say nothing of others: ConfigError where this one has another processor or number of cores.
CpuRates rates_of_this_machine(int cores);
CpuRates shipped_rates_of_this_machine(int cores);

// "NVIDIA H100 80GB HBM3" -> "H100-SXM5-80GB": the shipped profile of a GPU by the driver's name of it; "" for GPUs without one.
std::string profile_of_gpu(const std::string& gpu);

}  // namespace trident
