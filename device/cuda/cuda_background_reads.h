// Reads of a GPU's memory on a stream of their own, which no Progress knows: another thread than the rank's drives it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/background_reads.h"
#include "device/cuda/cuda_stream.h"

namespace trident {

class CudaBackgroundReads final : public BackgroundReads {
 public:
  // By the rank's thread. `compute` outlives it.
  CudaBackgroundReads(CudaStream& compute, std::size_t marks);
  ~CudaBackgroundReads() override;
  CudaBackgroundReads(const CudaBackgroundReads&) = delete;
  CudaBackgroundReads& operator=(const CudaBackgroundReads&) = delete;

  Buffer allocate(std::int64_t bytes, const std::string& name) override;
  void begin() override;
  void hold(std::size_t mark) override;
  void read(void* to, ConstTensorView from) override;
  void mark(std::size_t mark) override;
  void wait(std::size_t mark) override;
  void wait_all() override;

 private:
  void record(cudaEvent_t event);
  void wait_for(cudaEvent_t event);
  void destroy();

  CudaStream& compute_;
  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t values_are_there_ = nullptr, all_ = nullptr;
  std::vector<cudaEvent_t> marks_;
};

}  // namespace trident
