// Do lists of blocking sends, receives and barriers run to their end?
//
// A channel is one direction between two ranks, first in, first out. With capacity 0 a send waits until its receiver is at the
// matching receive (rendezvous); with capacity c it waits only while c messages lie unreceived. A list that passes with every
// operation blocking also passes when some of them are asynchronous: the outcome of such networks does not depend on timing
// (Kahn 1974), and less blocking only removes waits.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace trident {

struct ChannelOp {
  enum class Kind : std::uint8_t { kSend, kReceive, kBarrier };
  Kind kind = Kind::kSend;
  int channel = 0;       // send, receive: dense channel number; barrier: dense barrier number
  std::int64_t tag = 0;  // what is sent or expected
  int position = 0;      // the caller's index, for reports
};

struct ChannelFault {
  enum class Kind : std::uint8_t { kDeadlock, kWrongMessage };
  Kind kind = Kind::kDeadlock;
  // kDeadlock: every rank that is stuck, with its position. kWrongMessage: the receiver.
  std::vector<std::pair<int, int>> places;
};

// ranks[r]: operations of rank r in order. barrier_sizes[b]: how many ranks enter barrier b (each once).
std::optional<ChannelFault> find_channel_fault(const std::vector<std::vector<ChannelOp>>& ranks, int num_channels,
                                               const std::vector<int>& barrier_sizes, int capacity);

}  // namespace trident
