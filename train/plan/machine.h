// The machine a run finds itself on, and how fast it multiplies matrices.
#pragma once

#include <cstdint>
#include <string>

#include "core/clock.h"
#include "core/dtype.h"
#include "device/cpu/cpu_features.h"
#include "device/device.h"
#include "train/plan/run_plan.h"

namespace trident {

// For plans that are not run here: what they say does not depend on the machine that makes them.
inline const MachineFacts kAnyMachine{
    .fast_bf16 = true, .description = "any", .memory = {{"any", {0}, std::int64_t{1} << 40}}};

// For ranks as threads of this process: `local_ranks` share the memory.
MachineFacts cpu_machine_facts(int local_ranks);

// "AMD EPYC (family 26, avx512 with AVX512-BF16)": as `cpuinfo`, a file like /proc/cpuinfo, names it, or "unknown processor", and
// what its kernels run on. A virtual machine's name hides which of several generations it has.
std::string processor_name(const std::string& cpuinfo = "/proc/cpuinfo", const CpuFeatures& features = detect_cpu_features());

// FLOP/s of one rank's matrix product [512,512] x [512,512], on a card [8192,8192] x [8192,8192], in `compute`, the best of repeated runs
// within `seconds`: the peak that mfu is a share of on CPUs, and on cards whose maker's figure is not known. `clock`: of the
// seconds in FLOP/s, for one that counts what a busy machine gave this thread.
double measure_matmul_rate(Device& device, DType compute, double seconds, double (*clock)() = monotonic_seconds);

}  // namespace trident
