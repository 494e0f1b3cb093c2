// The machine a run finds itself on, and how fast it multiplies matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/dtype.h"
#include "device/cpu/cpu_features.h"
#include "device/device.h"
#include "train/plan/run_plan.h"

namespace trident {

// For plans that are not run here: what they say does not depend on the machine that makes them.
inline const MachineFacts kAnyMachine{
    .bf16_over_fp32 = kMatrixUnitsOverFp32, .description = "any", .memory = {{"any", {0}, std::int64_t{1} << 40}}};

// For ranks as threads of this process: `local_ranks` share the memory. `bf16_over_fp32`: not set: measured here.
MachineFacts cpu_machine_facts(int local_ranks, std::optional<double> bf16_over_fp32 = {});

// "AMD EPYC (family 26, avx512 with AVX512-BF16)": as `cpuinfo`, a file like /proc/cpuinfo, names it, or "unknown processor", and
// what its kernels run on. A virtual machine's name hides which of several generations it has.
std::string processor_name(const std::string& cpuinfo = "/proc/cpuinfo", const CpuFeatures& features = detect_cpu_features());

// FLOP/s of one rank's matrix product [512,512] x [512,512], on a GPU [8192,8192] x [8192,8192], in `compute`, the best of repeated runs
// within `seconds`. `clock`: of the seconds in FLOP/s, for one that counts what a busy machine gave this thread.
double measure_matmul_rate(Device& device, DType compute, double seconds, double (*clock)() = monotonic_seconds);

// The peak that mfu is a share of, of one rank, by the clock on the wall. On CPUs that of the instruction that multiplies
// `multiplied` (RunPlan), with operands in registers: other work may hold a core of this process in every run, so that as long as
// this thread waited in the fastest one it goes on, up to 2 s, and then there is nothing that could be called a peak. On GPUs whose
// maker's figure is not known that of measure_matmul_rate().
std::optional<double> measure_matmul_peak(Device& device, DType multiplied);

}  // namespace trident
