#include "parallel/parallel_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

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
                                 std::span<const SubAxis> partial_axes, CollectiveChecks checks, StatusBoard* board, const OnDevice& on_device)
    : grid_(grid), device_(device), world_(std::move(world)) {
  TRIDENT_CHECK(world_->size() == grid_.world_size(), "a grid of {} ranks in a world of {}", grid_.world_size(), world_->size());
  const auto of_tensors = [&](Axis axis, const std::vector<int>& members, std::string name) {
    std::unique_ptr<Communicator> host = world_->split(members, std::move(name));
    return make_checked(on_device ? on_device(axis, std::move(host)) : std::move(host), checks, board);
  };
  const auto whole = [&](Axis axis) { return grid_.group(rank(), grid_.whole(axis)); };
  tensor_ = of_tensors(Axis::kTensor, whole(Axis::kTensor), "tp");
  data_reduce_ = of_tensors(Axis::kData, replicas(grid_, rank()), "dp");
  data_gather_ = of_tensors(Axis::kData, replicas(grid_, rank()), "dp (gather)");
  pipeline_forward_ = of_tensors(Axis::kPipeline, whole(Axis::kPipeline), "pp (forward)");
  pipeline_backward_ = of_tensors(Axis::kPipeline, whole(Axis::kPipeline), "pp (backward)");
  for (const auto& [axis, name] : {std::pair{Axis::kTensor, "tp (statistics)"}, {Axis::kContext, "cp (statistics)"},
                                   {Axis::kData, "dp (statistics)"}, {Axis::kPipeline, "pp (statistics)"}}) {
    statistics_[static_cast<std::size_t>(axis)] = make_checked(world_->split(whole(axis), name), checks, board);
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

std::vector<std::string> ParallelContext::register_memory(TensorView memory) {
  constexpr std::size_t kLine = 256;  // bytes; longer ones are cut
  std::string mine;
  const auto in_group = [&](Communicator& group) {
    const std::string problem = group.register_memory(memory);
    if (mine.empty()) mine = problem;
  };
  for (Communicator* group : {tensor_.get(), data_reduce_.get(), data_gather_.get(), pipeline_forward_.get(), pipeline_backward_.get()}) in_group(*group);
  for (const auto& [sub_axis, group] : partial_) in_group(*group);
  mine.resize(kLine - 1);
  mine.resize(kLine);  // at least one zero behind each
  std::string all(kLine * static_cast<std::size_t>(world_->size()), '\0');
  const auto line = static_cast<std::int64_t>(kLine);
  world_->all_gather(host_stream(), TensorView(all.data(), DType::kU8, {line * world_->size()}), ConstTensorView(mine.data(), DType::kU8, {line}));
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < all.size(); at += kLine) {
    const std::string said = all.substr(at, kLine).c_str();
    if (!said.empty() && std::ranges::find(lines, said) == lines.end()) lines.push_back(said);
  }
  return lines;
}

std::array<double, kNumAxes> ParallelContext::bytes_sent() const {
  std::array<double, kNumAxes> bytes{};
  const auto add = [&](Axis axis, const Communicator& c) { bytes[static_cast<std::size_t>(axis)] += counters_of(c).total_bytes(); };
  add(Axis::kTensor, *tensor_);
  add(Axis::kData, *data_reduce_);
  add(Axis::kData, *data_gather_);
  add(Axis::kPipeline, *pipeline_forward_);
  add(Axis::kPipeline, *pipeline_backward_);
  for (std::size_t axis = 0; axis < statistics_.size(); ++axis) add(static_cast<Axis>(axis), *statistics_[axis]);
  for (const auto& [sub_axis, communicator] : partial_) add(sub_axis.axis, *communicator);
  return bytes;
}

void ParallelContext::reset_bytes_sent() {
  for (Communicator* c : {tensor_.get(), data_reduce_.get(), data_gather_.get(), pipeline_forward_.get(), pipeline_backward_.get()}) {
    reset_counters(*c);
  }
  for (auto& c : statistics_) reset_counters(*c);
  for (auto& [axis, c] : partial_) reset_counters(*c);
}

}  // namespace trident
