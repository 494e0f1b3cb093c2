// A call sends so many bytes, whatever the transport (docs/design/communication.md).
#pragma once

#include <cstdint>

#include "parallel/communicator/collective_call.h"

namespace trident {

// Bytes that each of the `size` ranks of a group sends, times `size`: a whole number (CommCounters).
inline std::int64_t bytes_sent_times_n(const CollectiveCall& call, int size) {
  switch (call.operation) {
    case CommOperation::kAllReduce: return 2 * (size - 1) * call.out.num_bytes();
    case CommOperation::kReduceScatter:
    case CommOperation::kAllToAll: return (size - 1) * call.in.num_bytes();
    case CommOperation::kAllGather:
    case CommOperation::kBroadcast: return (size - 1) * call.out.num_bytes();
    case CommOperation::kSend: return size * call.in.num_bytes();
    case CommOperation::kRecv:
    case CommOperation::kBarrier: return 0;
  }
  return 0;
}

}  // namespace trident
