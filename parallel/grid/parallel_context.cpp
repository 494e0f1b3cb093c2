#include "parallel/grid/parallel_context.h"

#include <fmt/core.h>

namespace trident {
namespace {

// The ranks that hold the same parameters: data x context, context fastest.
std::vector<int> replicas(const ProcessGrid& grid, int rank) {
  GridCoordinates at = grid.coordinates(rank);
  std::vector<int> ranks;
  for (at.data = 0; at.data < grid.degrees().data; ++at.data)
    for (at.context = 0; at.context < grid.degrees().context; ++at.context) ranks.push_back(grid.rank(at));
  return ranks;
}

}  // namespace

ParallelContext::ParallelContext(const ProcessGrid& grid, Device& device, std::unique_ptr<Communicator> world,
                                 std::span<const SubAxis> partial_axes, CollectiveChecks checks, StatusBoard* board,
                                 const OnDevice& on_device)
    : grid_(grid), device_(device), world_(std::move(world)) {
  TRIDENT_CHECK(world_->size() == grid_.world_size(), "a grid of {} ranks in a world of {}", grid_.world_size(), world_->size());
  const auto watched = [&](std::unique_ptr<Communicator> group) {
    group->set_checks(checks);
    group->report_to(board);
    return group;
  };
  const auto of_tensors = [&](Axis axis, const std::vector<int>& members, std::string name) {
    std::unique_ptr<Communicator> host = world_->split(members, std::move(name));
    return watched(on_device ? on_device(axis, std::move(host)) : std::move(host));
  };
  const auto whole = [&](Axis axis) { return grid_.group(rank(), grid_.whole(axis)); };
  tensor_ = of_tensors(Axis::kTensor, whole(Axis::kTensor), "tp");
  data_reduce_ = of_tensors(Axis::kData, replicas(grid_, rank()), "dp");
  data_gather_ = of_tensors(Axis::kData, replicas(grid_, rank()), "dp (gather)");
  pipeline_forward_ = of_tensors(Axis::kPipeline, whole(Axis::kPipeline), "pp (forward)");
  pipeline_backward_ = of_tensors(Axis::kPipeline, whole(Axis::kPipeline), "pp (backward)");
  for (const auto& [axis, name] : {std::pair{Axis::kTensor, "tp (statistics)"}, {Axis::kContext, "cp (statistics)"},
                                   {Axis::kData, "dp (statistics)"}, {Axis::kPipeline, "pp (statistics)"}}) {
    at(statistics_, axis) = watched(world_->split(whole(axis), name));
  }
  for (const SubAxis& sub_axis : partial_axes) {
    TRIDENT_CHECK(sub_axis.axis == Axis::kTensor, "gradients are partial over {}", to_string(sub_axis));
    partial_.emplace_back(sub_axis, of_tensors(sub_axis.axis, grid_.group(rank(), sub_axis), to_string(sub_axis) + " (gradients)"));
  }
  reduce_stream_ = &device_.new_stream("reduce");
  gather_stream_ = &device_.new_stream("gather");
  send_forward_ = &device_.new_stream("send forward");
  recv_forward_ = &device_.new_stream("recv forward");
  send_backward_ = &device_.new_stream("send backward");
  recv_backward_ = &device_.new_stream("recv backward");
}

Communicator& ParallelContext::partial(const SubAxis& sub_axis) {
  for (auto& [axis, communicator] : partial_) {
    if (axis == sub_axis) return *communicator;
  }
  throw InternalError(fmt::format("no communicator for partial gradients over {}", to_string(sub_axis)));
}

std::string ParallelContext::register_memory(TensorView memory) {
  constexpr std::size_t kLine = 256;  // bytes; longer ones are cut
  std::string line;
  const auto in_group = [&](Communicator& group) {
    const std::string problem = group.register_memory(memory);
    if (line.empty()) line = problem;
  };
  for (Communicator* group :
       {tensor_.get(), data_reduce_.get(), data_gather_.get(), pipeline_forward_.get(), pipeline_backward_.get()})
    in_group(*group);
  for (const auto& [sub_axis, group] : partial_) in_group(*group);
  std::int32_t said[2] = {line.empty() ? 0 : world_->size() - rank(),
                          line.empty() ? 0 : 1};  // of whom, from the end; whether, and then how many
  world_->all_reduce(host_stream(), TensorView(said, DType::kI32, {1}), ReduceOp::kMax);
  world_->all_reduce(host_stream(), TensorView(said + 1, DType::kI32, {1}), ReduceOp::kSum);
  if (said[0] == 0) return {};
  line.resize(kLine);
  world_->broadcast(host_stream(), TensorView(line.data(), DType::kU8, {static_cast<std::int64_t>(kLine)}),
                    world_->size() - said[0]);
  const std::string first = line.c_str();
  return said[1] == 1 ? first : fmt::format("{} (and {} more)", first, said[1] - 1);
}

std::array<double, kNumAxes> ParallelContext::bytes_sent() const {
  std::array<double, kNumAxes> bytes{};
  const auto add = [&](Axis axis, const Communicator& c) { at(bytes, axis) += c.counters().total_bytes(); };
  add(Axis::kTensor, *tensor_);
  add(Axis::kData, *data_reduce_);
  add(Axis::kData, *data_gather_);
  add(Axis::kPipeline, *pipeline_forward_);
  add(Axis::kPipeline, *pipeline_backward_);
  for (std::size_t axis = 0; axis < statistics_.size(); ++axis) add(static_cast<Axis>(axis), *statistics_[axis]);
  for (const auto& [sub_axis, communicator] : partial_) add(sub_axis.axis, *communicator);
  return bytes;
}

std::uint32_t ParallelContext::history(Axis axis) const {
  if (axis == Axis::kTensor) {  // the groups of its sub-axes differ in their members, not in what these call
    std::uint32_t history = tensor_->history();
    for (const auto& [sub_axis, group] : partial_) history = history * 31 + group->history();
    return history;
  }
  if (axis == Axis::kData) return data_reduce_->history() * 31 + data_gather_->history();
  return 0;  // messages along the pipeline are compared one by one; nothing runs over the context axis yet
}

void ParallelContext::reset_bytes_sent() {
  for (Communicator* c :
       {tensor_.get(), data_reduce_.get(), data_gather_.get(), pipeline_forward_.get(), pipeline_backward_.get()}) {
    c->reset_counters();
  }
  for (auto& c : statistics_) c->reset_counters();
  for (auto& [axis, c] : partial_) c->reset_counters();
}

}  // namespace trident
