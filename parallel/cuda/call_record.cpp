#include "parallel/cuda/call_record.h"

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

std::optional<std::string> first_disagreement(std::string_view group, std::uint64_t number, std::span<const int> global_ranks,
                                              std::span<const std::int64_t> records) {
  const auto of = [&](std::size_t rank) {
    return IssuedCall{record_of_words(records.subspan(rank * kRecordWords, kRecordWords)).fingerprint, number, global_ranks[rank]};
  };
  for (std::size_t r = 1; r < global_ranks.size(); ++r)
    if (of(r).fingerprint != of(0).fingerprint) return disagreement(group, of(r), of(0));
  return std::nullopt;
}

std::string describe_call(const CollectiveCall& call, std::uint64_t number, std::span<const int> global_ranks,
                          std::string_view group) {
  std::string peer;
  if (call.is_message())
    peer = fmt::format(" {} rank {}", call.operation == CommOperation::kSend ? "to" : "from", at(global_ranks, call.root));
  return fmt::format("{} #{}{} over {}", to_string(call.operation), number, peer, group);
}

}  // namespace trident
