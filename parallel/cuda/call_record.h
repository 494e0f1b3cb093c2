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

// Every rank says this, in the same words, if the ranks of `group` did not all call the same as operation `number`.
// `global_ranks`: of the group, by rank. `records`: kRecordWords words of every rank.
std::optional<std::string> first_disagreement(std::string_view group, std::uint64_t number, std::span<const int> global_ranks,
                                              std::span<const std::int64_t> records);

// "send #3 to rank 2 over pp".
std::string describe_call(const CollectiveCall& call, std::uint64_t number, std::span<const int> global_ranks,
                          std::string_view group);

}  // namespace trident
