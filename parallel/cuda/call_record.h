// Ranks exchange records of their calls before data move on a transport that compares nothing by itself.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor_view.h"
#include "parallel/communicator/collective_call.h"
#include "parallel/communicator/collective_kind.h"

namespace trident {

inline constexpr std::int64_t kRecordWords = 6;

// Sent as kRecordWords i64 words.
struct CallRecord {
  CommFingerprint fingerprint;
  std::uint64_t operand = 0;  // the address of `in`, where ranks share addresses

  std::array<std::int64_t, kRecordWords> words() const;
};
CallRecord record_of_words(std::span<const std::int64_t> words);

// `global_ranks`: of the group, by rank.
CommFingerprint fingerprint_of(const CollectiveCall& call, std::span<const int> global_ranks);

// Every rank says this, in the same words, if the ranks of group `axis` did not all call the same as operation `number`.
// `records`: kRecordWords words of every rank.
std::optional<std::string> disagreement(std::string_view axis, std::uint64_t number, std::span<const int> global_ranks,
                                        std::span<const std::int64_t> records);

// The same of a message: receiver's and sender's global ranks and fingerprints.
struct MessageSide {
  int global_rank = -1;
  CommFingerprint fingerprint;
};
std::optional<std::string> message_disagreement(std::string_view axis, std::uint64_t number, const MessageSide& receiver,
                                                const MessageSide& sender);

}  // namespace trident
