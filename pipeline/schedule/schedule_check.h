// Is a schedule complete, in order, and free of deadlock?
#pragma once

#include <optional>
#include <string>

#include "pipeline/schedule/schedule.h"

namespace trident {

// The first fault found, as one line naming rank and action, or nothing. In this order:
//  1. place: every action lies on the rank of its virtual stage; stage and micro-batch exist;
//  2. completeness: every (virtual stage, micro-batch) has exactly one F and, unless the schedule is forward-only, either one
//     B or one I and one W;
//  3. order within a rank: F before B or I, I before W, input and weight gradients of a virtual stage in ascending order;
//  4. order between ranks: no circular wait, first for the dependencies alone, then for the messages in the order of
//     message_order.h, through channels of capacity 0 and 1.
std::optional<std::string> find_schedule_fault(const Schedule& schedule);

// Throws InternalError with the fault and the schedule's text.
void check_schedule(const Schedule& schedule);

}  // namespace trident
