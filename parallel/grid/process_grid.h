// The grid of ranks: pure arithmetic between a rank and its coordinates along tensor (tp), context (cp), data (dp), pipeline (pp).
//
// An order lists the axes from fastest to slowest; the default "tp-cp-dp-pp" is Megatron's:
// rank = tp + T*(cp + C*(dp + D*pp)).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/parallel_axis.h"

namespace trident {

struct ParallelDegrees {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  int world_size() const { return tensor * context * data * pipeline; }
  bool operator==(const ParallelDegrees&) const = default;
};

struct GridCoordinates {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
  bool operator==(const GridCoordinates&) const = default;
};

// A factor of one axis: of the axis's n ranks, those whose coordinates agree in everything but digit (coordinate / stride) % size.
// size == n, stride == 1 is the whole axis. tp > kv heads factors tp into {size kv, stride r} x {size r, stride 1}.
struct SubAxis {
  Axis axis = Axis::kTensor;
  int size = 1, stride = 1;
  bool operator==(const SubAxis&) const = default;
};
std::string to_string(const SubAxis& sub_axis);  // "tp[2:4]" for size 2, stride 4

inline constexpr int kMaxWorldSize = 1 << 24;

class ProcessGrid {
 public:
  // Throws ConfigError naming parallel.<key> for degrees < 1.
  explicit ProcessGrid(ParallelDegrees degrees, const AxisOrder& order = kMegatronOrder);

  const ParallelDegrees& degrees() const { return degrees_; }
  int degree(Axis axis) const;
  int world_size() const { return degrees_.world_size(); }
  GridCoordinates coordinates(int rank) const;
  int rank(const GridCoordinates& coordinates) const;
  int coordinate(int rank, Axis axis) const;
  // Global ranks of the group of `rank` along the sub-axis, in coordinate order.
  std::vector<int> group(int rank, const SubAxis& sub_axis) const;
  SubAxis whole(Axis axis) const { return {axis, degree(axis), 1}; }

 private:
  ParallelDegrees degrees_;
  std::array<int, kNumAxes> stride_{};  // of each axis in the global rank
};

// Checks that the degrees multiply to the world: ConfigError naming the degrees, the world size and what would fit.
void check_world_size(const ParallelDegrees& degrees, int world_size);

}  // namespace trident
