// A decorator that watches a communicator: fingerprints, byte counters, what every rank is doing.
//
// Before an operation runs, the ranks of the group compare (sequence number, operation, dtype, count, peer/root). A mismatch is a
// CommunicationError that names both ranks and both operations instead of a hang or silent corruption. Counters hold the
// algorithmic volume of each operation, whatever the transport (docs/communication.md).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/communicator.h"

namespace trident {

enum class CommOperation : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kSend, kRecv, kBarrier };
inline constexpr int kNumCommOperations = 8;
std::string_view to_string(CommOperation operation);

// Bytes sent by this rank: all_reduce 2(n-1)/n x bytes, reduce_scatter and all_gather (n-1)/n x (whole) bytes, broadcast
// (n-1)/n x bytes, all_to_all (n-1)/n x bytes, send bytes, recv 0. Exact rationals are summed over ranks: the counter holds
// n times the per-rank volume divided at read-out, so that no rounding enters.
struct CommCounters {
  std::array<std::int64_t, kNumCommOperations> calls{};
  std::array<double, kNumCommOperations> bytes{};
  double total_bytes() const;
};

enum class CollectiveChecks : std::uint8_t { kOff, kOn };  // debug.check_collectives

// Wraps `inner`. kOff still counts bytes. Counters are reset by reset_counters().
class CheckedCommunicator;
std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner, CollectiveChecks checks);

// Counters of a communicator made by make_checked().
const CommCounters& counters_of(const Communicator& communicator);
void reset_counters(Communicator& communicator);

}  // namespace trident
