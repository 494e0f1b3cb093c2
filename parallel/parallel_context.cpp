#include "parallel/parallel_context.h"

#include <fmt/core.h>

namespace trident {
namespace {

// Splits `world` into the groups along `sub_axis`, ordered by coordinate.
std::unique_ptr<Communicator> along(Communicator& world, const ProcessGrid& grid, const SubAxis& sub_axis, std::string name,
                                    CollectiveChecks checks, StatusBoard* board) {
  const std::vector<int> group = grid.group(world.rank(), sub_axis);
  int index = 0;
  while (group[static_cast<std::size_t>(index)] != world.rank()) ++index;
  return make_checked(world.split(/*color=*/group.front(), /*key=*/index, std::move(name)), checks, board);
}

// The ranks that hold the same parameters: data x context, context fastest.
std::unique_ptr<Communicator> replicas(Communicator& world, const ProcessGrid& grid, std::string name, CollectiveChecks checks, StatusBoard* board) {
  const GridCoordinates at = grid.coordinates(world.rank());
  const int color = at.tensor + grid.degrees().tensor * at.pipeline;
  const int key = at.context + grid.degrees().context * at.data;
  return make_checked(world.split(color, key, std::move(name)), checks, board);
}

}  // namespace

ParallelContext::ParallelContext(const ProcessGrid& grid, Device& device, std::unique_ptr<Communicator> world,
                                 std::span<const SubAxis> partial_axes, CollectiveChecks checks, StatusBoard* board)
    : grid_(grid), device_(device), world_(std::move(world)) {
  TRIDENT_CHECK(world_->size() == grid_.world_size(), "a grid of {} ranks in a world of {}", grid_.world_size(), world_->size());
  tensor_ = along(*world_, grid_, grid_.whole(Axis::kTensor), "tp", checks, board);
  data_reduce_ = replicas(*world_, grid_, "dp", checks, board);
  data_gather_ = replicas(*world_, grid_, "dp (gather)", checks, board);
  pipeline_forward_ = along(*world_, grid_, grid_.whole(Axis::kPipeline), "pp (forward)", checks, board);
  pipeline_backward_ = along(*world_, grid_, grid_.whole(Axis::kPipeline), "pp (backward)", checks, board);
  statistics_[static_cast<std::size_t>(Axis::kTensor)] = along(*world_, grid_, grid_.whole(Axis::kTensor), "tp (statistics)", checks, board);
  statistics_[static_cast<std::size_t>(Axis::kContext)] = along(*world_, grid_, grid_.whole(Axis::kContext), "cp (statistics)", checks, board);
  statistics_[static_cast<std::size_t>(Axis::kData)] = along(*world_, grid_, grid_.whole(Axis::kData), "dp (statistics)", checks, board);
  statistics_[static_cast<std::size_t>(Axis::kPipeline)] =
      along(*world_, grid_, grid_.whole(Axis::kPipeline), "pp (statistics)", checks, board);
  for (const SubAxis& sub_axis : partial_axes) {
    TRIDENT_CHECK(sub_axis.axis == Axis::kTensor, "gradients are partial over {}", to_string(sub_axis));
    partial_.emplace_back(sub_axis, along(*world_, grid_, sub_axis, to_string(sub_axis) + " (gradients)", checks, board));
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
