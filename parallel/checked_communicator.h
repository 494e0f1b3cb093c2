// A decorator that watches a communicator: fingerprints, byte counters, what every rank is doing.
//
// Before an operation runs, the ranks of the group compare (sequence number, operation, dtype, count, peer/root). A mismatch is a
// CommunicationError that names both ranks and both operations instead of a hang or silent corruption. Groups over many nodes do
// not (kMostGreeted): each rank keeps a hash of all that it called, and once per step the ranks of an axis compare
// those. Counters hold the algorithmic volume of each operation, whatever the transport (docs/communication.md).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "parallel/lifeline_status.h"

namespace trident {

// Bytes sent by this rank: all_reduce 2(n-1)/n x bytes, reduce_scatter and all_gather (n-1)/n x (whole) bytes, broadcast
// (n-1)/n x bytes, all_to_all (n-1)/n x bytes, send bytes, recv 0. These are rationals with denominator n = group_size: the
// integers bytes_times_n may be summed over ranks and then divided without any rounding; `bytes` is each divided by n.
struct CommCounters {
  int group_size = 1;
  std::array<std::int64_t, kNumCommOperations> calls{};
  std::array<std::int64_t, kNumCommOperations> bytes_times_n{};
  std::array<double, kNumCommOperations> bytes{};
  double total_bytes() const;
};

// Wraps `inner` and tells it whether to compare. kOff still counts bytes. split() gives a checked communicator with counters of its
// own. Counters are reset by reset_counters(). `board`, where there is one, is told of every operation that the rank enters, and
// outlives it.
std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner, CollectiveChecks checks,
                                           StatusBoard* board = nullptr);

// Counters of a communicator made by make_checked(); TRIDENT_CHECK otherwise.
const CommCounters& counters_of(const Communicator& communicator);
// A hash of the collective operations called so far, likewise: equal on all ranks of a group that called the same in the same
// order.
std::uint32_t history_of(const Communicator& communicator);
void reset_counters(Communicator& communicator);

}  // namespace trident
