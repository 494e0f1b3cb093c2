#include "device/cuda/cuda_cards.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <array>

#include "core/check.h"
#include "core/host_name.h"
#include "device/cuda/cuda_error.h"

namespace trident {
namespace {

std::string libraries() {
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "asking for the version of CUDA");
  const std::size_t cublas = cublasLtGetVersion(), cudnn = cudnnGetVersion();
  return fmt::format("{}, cuBLASLt {}.{}, cuDNN {}.{}", cuda_version_text(runtime), cublas / 10000, cublas / 100 % 100, cudnn / 10000, cudnn / 100 % 100);
}

CardFacts card_facts(int number) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, number), "asking what a card is");
  std::array<char, 32> address{};
  check_cuda(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), number), "asking where a card is");
  std::size_t free = 0, total = 0;
  use_cuda_device(number);
  check_cuda(cudaMemGetInfo(&free, &total), "asking how much memory a card has");
  CardFacts card;
  card.number = number;
  card.name = properties.name;
  card.id = fmt::format("{} {}", host_name(), address.data());
  card.compute_capability = 10 * properties.major + properties.minor;
  card.multiprocessors = properties.multiProcessorCount;
  card.total_bytes = static_cast<std::int64_t>(total);
  card.free_bytes = static_cast<std::int64_t>(free);
  return card;
}

}  // namespace

CudaFacts find_cuda_cards() {
  CudaFacts facts;
  try {
    facts.libraries = libraries();
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "looking for GPUs");
    for (int number = 0; number < count; ++number) facts.cards.push_back(card_facts(number));
    if (count == 0) facts.problem = "no GPU is visible to this process (CUDA_VISIBLE_DEVICES?)";
  } catch (const Error& error) {
    facts.cards.clear();
    facts.problem = error.what();
  }
  return facts;
}

}  // namespace trident
