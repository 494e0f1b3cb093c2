#include "parallel/grid/process_grid.h"

#include <cstdint>

#include "core/check.h"
#include "core/counted.h"

namespace trident {
namespace {

std::string_view config_key(Axis axis) {
  switch (axis) {
    case Axis::kTensor: return "parallel.tensor";
    case Axis::kContext: return "parallel.context";
    case Axis::kData: return "parallel.data";
    case Axis::kPipeline: return "parallel.pipeline";
  }
  return "?";
}

int degree_of(const ParallelDegrees& degrees, Axis axis) {
  switch (axis) {
    case Axis::kTensor: return degrees.tensor;
    case Axis::kContext: return degrees.context;
    case Axis::kData: return degrees.data;
    case Axis::kPipeline: return degrees.pipeline;
  }
  return 0;
}

std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }

}  // namespace

std::string to_string(const SubAxis& sub_axis) {
  return fmt::format("{}[{}:{}]", to_string(sub_axis.axis), sub_axis.size, sub_axis.stride);
}

ProcessGrid::ProcessGrid(ParallelDegrees degrees, const AxisOrder& order) : degrees_(degrees) {
  std::int64_t stride = 1;
  for (const Axis axis : order) {
    const int n = degree_of(degrees, axis);
    if (n < 1) throw ConfigError(fmt::format("{} = {}: must be at least 1", config_key(axis), n));
    stride_[index(axis)] = static_cast<int>(stride);
    stride *= n;
    if (stride > kMaxWorldSize)
      throw ConfigError(fmt::format("{} = {}: the degrees multiply to more than {} ranks", config_key(axis), n, kMaxWorldSize));
  }
}

int ProcessGrid::degree(Axis axis) const { return degree_of(degrees_, axis); }

int ProcessGrid::coordinate(int rank, Axis axis) const {
  TRIDENT_CHECK(rank >= 0 && rank < world_size(), "rank {} of {}", rank, world_size());
  return rank / stride_[index(axis)] % degree(axis);
}

GridCoordinates ProcessGrid::coordinates(int rank) const {
  return {coordinate(rank, Axis::kTensor), coordinate(rank, Axis::kContext), coordinate(rank, Axis::kData),
          coordinate(rank, Axis::kPipeline)};
}

int ProcessGrid::rank(const GridCoordinates& c) const {
  const std::array<int, kNumAxes> along = {c.tensor, c.context, c.data, c.pipeline};
  int rank = 0;
  for (const Axis axis : kMegatronOrder) {
    const int x = along[index(axis)];
    TRIDENT_CHECK(x >= 0 && x < degree(axis), "{} coordinate {} of {}", to_string(axis), x, degree(axis));
    rank += x * stride_[index(axis)];
  }
  return rank;
}

std::vector<int> ProcessGrid::group(int rank, const SubAxis& sub_axis) const {
  const int n = degree(sub_axis.axis);
  TRIDENT_CHECK(sub_axis.size >= 1 && sub_axis.stride >= 1 && n % (sub_axis.size * sub_axis.stride) == 0,
                "{} does not factor a degree of {}", to_string(sub_axis), n);
  const int digit = coordinate(rank, sub_axis.axis) / sub_axis.stride % sub_axis.size;
  const int step = sub_axis.stride * stride_[index(sub_axis.axis)];
  std::vector<int> ranks;
  for (int i = 0; i < sub_axis.size; ++i) ranks.push_back(rank + (i - digit) * step);
  return ranks;
}

void check_world_size(const ParallelDegrees& degrees, int world_size) {
  const ProcessGrid grid(degrees);  // refuses degrees < 1
  if (grid.world_size() == world_size) return;
  const int model_ranks = degrees.tensor * degrees.context * degrees.pipeline;
  const std::string remedy =
      world_size > 0 && world_size % model_ranks == 0
          ? fmt::format("start {} or set parallel.data to {}", counted(grid.world_size(), "rank"), world_size / model_ranks)
          : fmt::format("start {} or choose degrees with tensor x context x pipeline (now {}) dividing {}",
                        counted(grid.world_size(), "rank"), model_ranks, world_size);
  throw ConfigError(fmt::format("parallel = data {} x pipeline {} x tensor {} x context {}: needs {} but {} {} running; {}",
                                degrees.data, degrees.pipeline, degrees.tensor, degrees.context,
                                counted(grid.world_size(), "rank"), world_size, world_size == 1 ? "is" : "are", remedy));
}

}  // namespace trident
