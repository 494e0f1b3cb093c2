#include "parallel/communicator/collective_kind.h"

namespace trident {

std::string to_string(const CommFingerprint& f) {
  if (f.operation == CommOperation::kBarrier) return "barrier";
  return fmt::format("{}{} {}[{}]{}", to_string(f.operation), f.reduce == ReduceOp::kMax ? "(max)" : "", to_string(f.dtype),
                     f.count, f.root >= 0 ? fmt::format(" from rank {}", f.root) : "");
}

}  // namespace trident
