// Times of the calls of a recorded step on some hardware: the seam between prices of single calls and that of a step.
#pragma once

#include "device/operations_layers.h"
#include "planner/price/collective_cost.h"
#include "planner/price/overlap_slowdown.h"
#include "train/plan/step_record.h"

namespace trident {

// The cores of ranks that stand for the others of their stages: so many compute at once, each with `load` threads for each core,
// and all take longer where they have more threads than there are cores.
struct SharedCores {
  int at_once = 0;  // 0: all
  double load = 0;
};

// Seconds >= 0. Pure: the same call has the same price whatever was asked before.
class WorkPrices {
 public:
  virtual ~WorkPrices() = default;

  // Seconds of the device, with nothing beside it on the rank.
  virtual double device_seconds(const RecordedOperation& operation) const = 0;
  // Seconds of the host that issues the call; 0 where it computes itself. A pass takes the longer of both sums.
  virtual double issue_seconds(const RecordedOperation& operation) const = 0;
  // From the moment when all ranks of the group have called; of a message, from its sending to its arrival (a receive is free).
  virtual double seconds(const RecordedCollective& call, const GroupPlace& group) const = 0;
  // Whether collectives that follow each other in one group start once: the buckets of a unit are issued together, and NCCL runs
  // what is issued together as one kernel. Then a call stands for all of them, with their bytes.
  virtual bool joins_groups() const { return false; }
  // How long ranks that have computed `worked` seconds since they last met wait for the slowest, on average, when they meet again.
  virtual double waiting_seconds(double /*worked*/) const { return 0; }
  // The slowdown of computing and communicating at once.
  virtual OverlapSlowdown slowdown() const = 0;
  // Seconds of a step that are not recorded: data, the loop.
  virtual double step_seconds() const = 0;
};

// The part of the keys up to each query that intervals let it see; rates of attention are those of all.
inline double interval_share(const AttentionShape& shape) {
  AttentionShape all = shape;
  all.interval = 0;
  const auto flops = [](const AttentionShape& of) { return op::AttentionForward{of, {}, {}, {}, {}, {}, {}, {}}.flops(); };
  return shape.interval == 0 ? 1 : flops(shape) / flops(all);
}

}  // namespace trident
