#include "device/cuda/cuda_graphs.h"

#include <bit>
#include <memory>
#include <type_traits>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "device/no_allocation.h"

namespace trident {
namespace {

using OwnedGraph =
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype([](cudaGraph_t graph) { cudaGraphDestroy(graph); })>;

// Captures what `work` enqueues on `stream` as a graph; nothing of it runs. The capture ends in any case.
OwnedGraph captured(cudaStream_t stream, FunctionRef<void()> work) {
  const auto begin = [&] {
    const AllocationExemption library;  // CUDA keeps what is captured on the heap
    return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  };
  check_cuda(begin(), "beginning to capture a graph");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    const AllocationExemption library;
    cudaStreamEndCapture(stream, &graph);
    const OwnedGraph part(graph);
    throw;
  }
  const AllocationExemption library;
  check_cuda(cudaStreamEndCapture(stream, &graph), "capturing a graph");
  return OwnedGraph(graph);
}

}  // namespace

class CudaGraphs::InPhase {
 public:
  InPhase(CudaGraphs& graphs, Phase phase, const CudaStream& stream) : graphs_(graphs) {
    graphs_.phase_ = phase;
    graphs_.stream_ = &stream;
  }
  ~InPhase() {
    graphs_.phase_ = Phase::kNone;
    graphs_.stream_ = nullptr;
  }
  InPhase(const InPhase&) = delete;
  InPhase& operator=(const InPhase&) = delete;

 private:
  CudaGraphs& graphs_;
};

CudaGraphs::~CudaGraphs() {
  // Resources that cannot be given back now, after a failure of the device, go with the process.
  for (const auto& [words, graph] : graphs_)
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
}

std::size_t CudaGraphs::Hash::operator()(const std::vector<std::uint64_t>& words) const {
  std::uint64_t hash = words.size();
  for (const std::uint64_t word : words) hash = std::rotl((hash ^ word) * 0x9E3779B97F4A7C15u, 29);
  return hash;
}

void CudaGraphs::run_capturable(CudaStream& stream, FunctionRef<void()> work) {
  TRIDENT_CHECK(phase_ == Phase::kNone, "work that is to be repeated lies within other such work");
  noted_.clear();
  {
    const InPhase noting(*this, Phase::kNoting, stream);
    work();
  }
  const std::size_t before = graphs_.size();
  Graph* const graph = find_or_remember();
  if (graph == nullptr) return work();
  if (graph->exec == nullptr && graphs_.size() == before) capture(stream, work, *graph);
  write_numbers(stream, *graph);
  if (graph->exec != nullptr) {
    const cudaStream_t handle = stream.handle();
    const AllocationExemption library;  // takes memory for the graph with the first launch
    check_cuda(cudaGraphLaunch(graph->exec, handle), "launching a graph");
  } else {
    run_noted(stream, work, *graph);
  }
}

// As it will be captured: the same kernels.
void CudaGraphs::run_noted(CudaStream& stream, FunctionRef<void()> work, const Graph& graph) {
  called_.clear();
  first_number_ = graph.first_number;
  {
    const InPhase running(*this, Phase::kRunning, stream);
    work();
  }
  TRIDENT_CHECK(called_.words() == noted_.words() && called_.numbers() == noted_.numbers(),
                "work that is to be repeated was noted as {} operations and called {} then, or the same with other arguments", noted_.calls(),
                called_.calls());
}

CudaGraphs::Graph* CudaGraphs::find_or_remember() {
  if (noted_.calls() == 0) return nullptr;
  if (const auto found = graphs_.find(noted_.words()); found != graphs_.end()) return &found->second;
  const std::size_t numbers = noted_.numbers().size();
  if (graphs_.size() == kMostWorks || used_numbers_ + numbers > kMostNumbers) return nullptr;
  const AllocationExemption work_that_is_new;
  if (numbers > 0 && numbers_.data() == nullptr) numbers_ = allocate_cuda(device_, kMostNumbers * sizeof(std::uint64_t), "numbers of captured work");
  Graph& graph = graphs_[noted_.words()];
  graph.first_number = used_numbers_;
  used_numbers_ += numbers;
  return &graph;
}

void CudaGraphs::capture(CudaStream& stream, FunctionRef<void()> work, Graph& graph) {
  const OwnedGraph operations = captured(stream.handle(), [&] { run_noted(stream, work, graph); });
  const AllocationExemption library;
  check_cuda(cudaGraphInstantiate(&graph.exec, operations.get(), 0), "instantiating a graph");
}

void CudaGraphs::write_numbers(CudaStream& stream, const Graph& graph) {
  const std::vector<std::uint64_t>& numbers = noted_.numbers();
  if (numbers.empty()) return;
  // CUDA has taken a copy of pageable memory when this returns.
  check_cuda(cudaMemcpyAsync(number_memory(graph.first_number), numbers.data(), numbers.size() * sizeof numbers[0], cudaMemcpyHostToDevice, stream.handle()),
             "copying the numbers of captured work");
}

}  // namespace trident
