#include "parallel/communicator/collective_kind.h"

namespace trident {

std::string_view to_string(ReduceOp op) { return op == ReduceOp::kSum ? "sum" : "max"; }

std::string_view to_string(CommOperation operation) {
  switch (operation) {
    case CommOperation::kAllReduce: return "all_reduce";
    case CommOperation::kReduceScatter: return "reduce_scatter";
    case CommOperation::kAllGather: return "all_gather";
    case CommOperation::kBroadcast: return "broadcast";
    case CommOperation::kAllToAll: return "all_to_all";
    case CommOperation::kSend: return "send";
    case CommOperation::kRecv: return "recv";
    case CommOperation::kBarrier: return "barrier";
  }
  return "?";
}

std::string to_string(const CommFingerprint& f) {
  if (f.operation == CommOperation::kBarrier) return "barrier";
  return fmt::format("{}{} {}[{}]{}", to_string(f.operation), f.reduce == ReduceOp::kMax ? "(max)" : "", to_string(f.dtype),
                     f.count, f.root >= 0 ? fmt::format(" from rank {}", f.root) : "");
}

}  // namespace trident
