// A rank's request to a communicator, as a value: compared between ranks, counted, and printed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/named_enum.h"

namespace trident {

enum class ReduceOp : std::uint8_t { kSum, kMax };
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<ReduceOp>{"sum", "max"};

enum class CommOperation : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kSend, kRecv, kBarrier };
template <>
inline constexpr std::array<std::string_view, 8> kNamesOf<CommOperation>{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send", "recv", "barrier"};
inline constexpr int kNumCommOperations = 8;

enum class CollectiveChecks : std::uint8_t { kOff, kOn };  // debug.check_collectives

// All ranks of a group pass equal fingerprints to their n-th operation. Trivially copyable: lies in shared memory.
struct CommFingerprint {
  CommOperation operation = CommOperation::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;  // of all_reduce and reduce_scatter, else kSum
  DType dtype = DType::kU8;
  std::int32_t root = -1;  // of a broadcast, as a global rank; else -1
  std::int64_t count = 0;  // elements passed in by this rank: of `in`, `inout` or `data`
  bool operator==(const CommFingerprint&) const = default;
};
std::string to_string(const CommFingerprint& fingerprint);  // "all_reduce(max) f32[1024]", "broadcast f32[8] from rank 1"

// "rank 3 has not arrived", "ranks 2, 1 have not sent".
std::string ranks_have_not(std::span<const int> global_ranks, std::string_view done);

// A call as one rank made it. Travels as it lies in memory: all ranks run the same program.
struct IssuedCall {
  CommFingerprint fingerprint;
  std::uint64_t number = 0;  // of the operation in its communicator, or of the message in its ordered pair; from 1
  std::int64_t global_rank = -1;
};

// Two ranks called different operations: "tp: rank 3 called all_reduce f32[8] as operation 2 while rank 1 called barrier". Both say
// the same words if `first` is of the higher rank of the group.
std::string disagreement(std::string_view group, const IssuedCall& first, const IssuedCall& second);
// Whether the two sides of a message agree.
bool is_one_message(const CommFingerprint& sent, const CommFingerprint& received);
// Where they do not: "dp: rank 1 called recv f32[8] from rank 0 as message 1 while rank 0 called send f32[4] to rank 1".
std::string message_disagreement(std::string_view group, const IssuedCall& receiver, const IssuedCall& sender);

}  // namespace trident
