// This processor's multiply instructions reach these rates with operands in registers: the peak that products are a share of, and
// the ratio by which the precision of a run is chosen (docs/decisions/0023-bf16-by-its-rate.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/cpu/cpu_features.h"

namespace trident {

// The rate of bf16 products over that of fp32's, of the instructions that products use here: 0 where there are none, else rounded
// to hundredths. vdpbf16ps reaches about twice fp32's rate or half of it; it is measured on the calling thread, in less than 5 ms
// of it, by the first call in a process. tdpbf16ps (AMX) is not measured and counts as kMatrixUnitsOverFp32.
double bf16_over_fp32();

struct MultiplyRate {
  std::string instruction;  // "fp32 multiply-add, avx512", "vdpbf16ps", "tdpbf16ps (AMX)"
  double flops = 0;         // FLOP/s of the team
  std::string skipped;      // why there is no rate; empty if there is
};

// Every instruction that products use on some processor, run on all threads of the calling one's team for `seconds` each, the best
// of several runs.
std::vector<MultiplyRate> measure_multiply_rates(double seconds);

// A PeakRun does what the processor can do at most in a millisecond or so, on all threads of the calling one's team.
struct PeakRun {
  double flops = 0;
  std::function<void()> run;
};
// By the fastest instruction that multiplies `multiplied`, f32 or, where bf16_over_fp32() is not 0, bf16.
PeakRun peak_run(DType multiplied);

}  // namespace trident
