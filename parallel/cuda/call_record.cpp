#include "parallel/cuda/call_record.h"

#include <cstdint>

#include <fmt/core.h>

#include "core/at.h"

namespace trident {

std::array<std::int64_t, kRecordWords> CallRecord::words() const {
  return {static_cast<std::int64_t>(fingerprint.operation), static_cast<std::int64_t>(fingerprint.reduce),
          static_cast<std::int64_t>(fingerprint.dtype),     fingerprint.root,
          fingerprint.count,                                static_cast<std::int64_t>(operand)};
}

CallRecord record_of_words(std::span<const std::int64_t> words) {
  return {{static_cast<CommOperation>(words[0]), static_cast<ReduceOp>(words[1]), static_cast<DType>(words[2]),
           static_cast<std::int32_t>(words[3]), words[4]},
          static_cast<std::uint64_t>(words[5])};
}

CommFingerprint fingerprint_of(const CollectiveCall& call, std::span<const int> global_ranks) {
  const bool has_root = call.operation == CommOperation::kBroadcast;
  return {call.operation, call.reduce, call.in.dtype(), has_root ? at(global_ranks, call.root) : -1, call.in.num_elements()};
}

std::optional<std::string> disagreement(std::string_view axis, std::uint64_t number, std::span<const int> global_ranks,
                                        std::span<const std::int64_t> records) {
  const auto of = [&](std::size_t rank) { return record_of_words(records.subspan(rank * kRecordWords, kRecordWords)).fingerprint; };
  for (std::size_t r = 1; r < global_ranks.size(); ++r) {
    if (of(r) == of(0)) continue;
    return fmt::format("{}: rank {} called {} as operation {} while rank {} called {}", axis, global_ranks[r], to_string(of(r)),
                       number, global_ranks[0], to_string(of(0)));
  }
  return std::nullopt;
}

std::optional<std::string> message_disagreement(std::string_view axis, std::uint64_t number, const MessageSide& receiver,
                                                const MessageSide& sender) {
  if (receiver.fingerprint.dtype == sender.fingerprint.dtype && receiver.fingerprint.count == sender.fingerprint.count)
    return std::nullopt;
  return fmt::format("{}: rank {} called {} from rank {} as message {} while rank {} called {} to rank {}", axis,
                     receiver.global_rank, to_string(receiver.fingerprint), sender.global_rank, number, sender.global_rank,
                     to_string(sender.fingerprint), receiver.global_rank);
}

}  // namespace trident
