// Everything a rank knows about its place: grid, communicators by purpose, and the streams they run on.
//
// One communicator per (axis, purpose), because operations on one communicator must be issued in one order by all its ranks while
// different purposes overlap freely. Streams: tensor collectives run on the compute stream; the rest have a stream each.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/at.h"
#include "device/device.h"
#include "parallel/communicator/communicator.h"
#include "parallel/grid/process_grid.h"

namespace trident {

// Along the pipeline: activations travel forward, their gradients backward.
enum class Direction : std::uint8_t { kForward, kBackward };

// Makes a group of ranks along `axis`, known by its host communicator, exchange what lies on their devices; not set: devices of host memory.
using OnDevice = std::function<std::unique_ptr<Communicator>(Axis axis, std::unique_ptr<Communicator> host)>;

class ParallelContext {
 public:
  // Collective over the world. `partial_axes`: sub-axes of tp over which some gradients are partial sums (from the model's specs;
  // the same list on every rank). `board`: told of every operation, if there is one.
  ParallelContext(const ProcessGrid& grid, Device& device, std::unique_ptr<Communicator> world, std::span<const SubAxis> partial_axes,
                  CollectiveChecks checks, StatusBoard* board = nullptr, const OnDevice& on_device = {});

  const ProcessGrid& grid() const { return grid_; }
  int rank() const { return world_->rank(); }
  GridCoordinates coordinates() const { return grid_.coordinates(rank()); }
  Device& device() const { return device_; }

  // All ranks, in host memory, on host_stream(): for start-up, shutdown and error reports, not for steps.
  Communicator& world() { return *world_; }
  Communicator& tensor() { return *tensor_; }           // layer collectives, on the compute stream
  Communicator& data_reduce() { return *data_reduce_; } // gradients over dp x cp, on reduce_stream()
  Communicator& data_gather() { return *data_gather_; } // parameters over dp x cp, on gather_stream()
  // Sums of partial gradients over a sub-axis of tp, on reduce_stream().
  Communicator& partial(const SubAxis& sub_axis);
  // Step statistics over an axis (norm, loss): host memory, on host_stream().
  Communicator& statistics(Axis axis) { return *at(statistics_, axis); }

  // All operands of the communicators above but the statistics' will lie in `memory`, which outlives them
  // (Communicator::register_memory). Collective over the world; the same line on every rank: a group that gains nothing from it,
  // why, and how many more there are; or nothing.
  std::string register_memory(TensorView memory);

  Stream& compute_stream() { return device_.compute_stream(); }
  Stream& host_stream() { return device_.host_stream(); }
  Stream& reduce_stream() { return *reduce_stream_; }
  Stream& gather_stream() { return *gather_stream_; }
  // Sends and receives have streams of their own in each direction: a send that waits for its receiver holds up no receive.
  Stream& send_stream(Direction d) { return *(d == Direction::kForward ? send_forward_ : send_backward_); }
  Stream& recv_stream(Direction d) { return *(d == Direction::kForward ? recv_forward_ : recv_backward_); }
  // Activations and, at the end of a step, a tied weight's lookup gradient; their gradients, and its head gradient.
  Communicator& pipeline(Direction d) { return *(d == Direction::kForward ? pipeline_forward_ : pipeline_backward_); }

  // Bytes sent by this rank since reset, by axis (counters of all communicators of that axis).
  std::array<double, kNumAxes> bytes_sent() const;
  void reset_bytes_sent();
  // Hashes the collectives called so far on the groups along an axis, without its statistics': equal on all ranks of those
  // groups.
  std::uint32_t history(Axis axis) const;

 private:
  ProcessGrid grid_;
  Device& device_;
  std::unique_ptr<Communicator> world_, tensor_, data_reduce_, data_gather_, pipeline_forward_, pipeline_backward_;
  std::array<std::unique_ptr<Communicator>, kNumAxes> statistics_;
  std::vector<std::pair<SubAxis, std::unique_ptr<Communicator>>> partial_;
  Stream *reduce_stream_, *gather_stream_, *send_forward_, *send_backward_, *recv_forward_, *recv_backward_;
};

}  // namespace trident
