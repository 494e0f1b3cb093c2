// Which messages a schedule needs, and where in each rank's order they are sent and received.
//
// Every message gets a time: the end of the action that produces it, in a simulation with unit costs. Each rank handles its
// messages in the order of (time, identity), one order for all ranks. Therefore no two ranks can wait for each other, even if
// every send and every receive blocks until its partner is there (a rendezvous): take the earliest unfinished message; whatever
// precedes it on either side is an earlier message, or an action whose inputs are earlier messages. All of that is done.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace trident {

// The activation that forward (virtual_stage, micro_batch) reads, or the output gradient that its backward reads.
struct Message {
  bool is_gradient = false;  // else an activation
  int virtual_stage = 0;  // of the receiver
  int micro_batch = 0;

  auto operator<=>(const Message&) const = default;
};

int source_rank(const Schedule& schedule, const Message& message);
int destination_rank(const Schedule& schedule, const Message& message);

// Where a message that arrives while a rank computes is received, if anywhere.
enum class ReceivePosting : std::uint8_t {
  kEarly,  // before that action: for receives that are posted and complete on their own
  kLate,   // after it: for receives that block
  kNever,  // for programs that get prices and are not run. O(actions)
};

struct WovenItem {
  enum class Kind : std::uint8_t { kAction, kSend, kReceive };
  Kind kind = Kind::kAction;
  Action action;    // kAction
  Message message;  // kSend, kReceive
};

// Each rank's actions with the sends and receives woven in. Virtual stages that are neighbours on one rank exchange no messages.
// Throws InternalError if the schedule blocks.
std::vector<std::vector<WovenItem>> weave_messages(const Schedule& schedule, ReceivePosting posting);

}  // namespace trident
