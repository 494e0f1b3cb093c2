#include "parallel/communicator/collective_kind.h"

#include <fmt/ranges.h>

namespace trident {

std::string to_string(const CommFingerprint& f) {
  if (f.operation == CommOperation::kBarrier) return "barrier";
  return fmt::format("{}{} {}[{}]{}", to_string(f.operation), f.reduce == ReduceOp::kMax ? "(max)" : "", to_string(f.dtype),
                     f.count, f.root >= 0 ? fmt::format(" from rank {}", f.root) : "");
}

std::string ranks_have_not(std::span<const int> global_ranks, std::string_view done) {
  const bool one = global_ranks.size() == 1;
  return fmt::format("{} {} {} not {}", one ? "rank" : "ranks", fmt::join(global_ranks, ", "), one ? "has" : "have", done);
}

std::string disagreement(std::string_view group, const IssuedCall& first, const IssuedCall& second) {
  return fmt::format("{}: rank {} called {} as operation {} while rank {} called {}{}", group, first.global_rank,
                     to_string(first.fingerprint), first.number, second.global_rank, to_string(second.fingerprint),
                     second.number == first.number ? "" : fmt::format(" as operation {}", second.number));
}

bool is_one_message(const CommFingerprint& sent, const CommFingerprint& received) {
  return sent.dtype == received.dtype && sent.count == received.count;
}

std::string message_disagreement(std::string_view group, const IssuedCall& receiver, const IssuedCall& sender) {
  return fmt::format("{}: rank {} called {} from rank {} as message {} while rank {} called {} to rank {}", group,
                     receiver.global_rank, to_string(receiver.fingerprint), sender.global_rank, receiver.number, sender.global_rank,
                     to_string(sender.fingerprint), receiver.global_rank);
}

}  // namespace trident
