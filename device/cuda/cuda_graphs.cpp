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

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using OwnedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

// What is enqueued on `stream` by `work`, as a graph; nothing of it runs. The capture ends in any case.
OwnedGraph captured(cudaStream_t stream, FunctionRef<void()> work) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning to capture a graph");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    const OwnedGraph part(graph);
    throw;
  }
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
  // What cannot be given back now, after a failure of the device, goes with the process.
  for (const auto& [words, graph] : graphs_)
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
}

std::size_t CudaGraphs::Hash::operator()(const std::vector<std::uint64_t>& words) const {
  std::uint64_t hash = words.size();
  for (const std::uint64_t word : words) hash = std::rotl((hash ^ word) * 0x9E3779B97F4A7C15u, 29);
  return hash;
}

void CudaGraphs::repeat(CudaStream& stream, FunctionRef<void()> work) {
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
  write_steps(stream, *graph);
  if (graph->exec != nullptr) {
    check_cuda(cudaGraphLaunch(graph->exec, stream.handle()), "launching a graph");
  } else {
    run_noted(stream, work, *graph);
  }
}

// As it will be captured: the same kernels.
void CudaGraphs::run_noted(CudaStream& stream, FunctionRef<void()> work, const Graph& graph) {
  called_.clear();
  first_step_ = graph.first_step;
  {
    const InPhase running(*this, Phase::kRunning, stream);
    work();
  }
  TRIDENT_CHECK(called_.words() == noted_.words() && called_.steps().size() == noted_.steps().size(),
                "work that is to be repeated called {} operations when it was noted, and then {} or others", noted_.calls(), called_.calls());
}

CudaGraphs::Graph* CudaGraphs::find_or_remember() {
  if (!noted_.repeatable() || noted_.calls() == 0) return nullptr;
  if (const auto found = graphs_.find(noted_.words()); found != graphs_.end()) return &found->second;
  const std::size_t steps = noted_.steps().size();
  if (graphs_.size() == kMostWorks || used_steps_ + steps > kMostSteps) return nullptr;
  const AllocationExemption work_that_is_new;
  if (steps > 0 && steps_.data() == nullptr) steps_ = allocate_cuda(device_, kMostSteps * sizeof(AdamWStep), "numbers of captured updates");
  Graph& graph = graphs_[noted_.words()];
  graph.first_step = used_steps_;
  used_steps_ += steps;
  return &graph;
}

void CudaGraphs::capture(CudaStream& stream, FunctionRef<void()> work, Graph& graph) {
  const OwnedGraph operations = captured(stream.handle(), [&] { run_noted(stream, work, graph); });
  check_cuda(cudaGraphInstantiate(&graph.exec, operations.get(), 0), "instantiating a graph");
}

void CudaGraphs::write_steps(CudaStream& stream, const Graph& graph) {
  const std::vector<AdamWStep>& steps = noted_.steps();
  if (steps.empty()) return;
  // Of pageable memory CUDA has taken a copy when this returns.
  check_cuda(cudaMemcpyAsync(step_memory(graph.first_step), steps.data(), steps.size() * sizeof(AdamWStep), cudaMemcpyHostToDevice, stream.handle()),
             "copying the numbers of an update");
}

AdamWStep* CudaGraphs::step_memory(std::size_t index) const { return reinterpret_cast<AdamWStep*>(steps_.data()) + index; }

const AdamWStep* CudaGraphs::step_in_memory() const {
  return phase_ == Phase::kRunning ? step_memory(first_step_ + called_.steps().size() - 1) : nullptr;
}

}  // namespace trident
