// The GPUs of this machine, as values that code without CUDA can handle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trident {

inline constexpr int kFirstFastBf16 = 80;  // compute capability of the first GPUs that multiply bf16: Ampere

struct GpuFacts {
  int number = 0;              // as CUDA counts those this process may use
  std::string name;            // "NVIDIA H100 80GB HBM3"
  std::string id;              // the same from every process, different for different GPUs and for the parts of a divided one: its UUID
  std::string place;           // "00000000:1A:00.0", the address on the PCI bus
  int compute_capability = 0;  // 90 for sm_90
  int multiprocessors = 0;
  std::int64_t total_bytes = 0;  // of memory
  std::string problem;           // why this GPU cannot be used, with the remedy; empty if nothing is known
};

struct CudaFacts {
  std::vector<GpuFacts> gpus;  // all that this process may use, with and without a problem
  // Why no GPU can be used, with the remedy: "built without CUDA", "no driver", "the driver is older than ..."; empty if one can.
  std::string problem;
  std::string libraries;  // "CUDA 13.0, cuBLASLt 13.1, cuDNN 9.19, NCCL 2.28.9"; empty without CUDA
};

}  // namespace trident
