// Tests may ask this of the simulated NCCL.
//
// Ranks are threads. Communicators must be non-blocking, and some calls return before they have done anything. Operations of one
// communicator may not run at once; an operation moves data once it has begun on every rank, so what waits for each other hangs
// here as it would. ncclCommAbort waits until the communicator's work has left its streams, in a group when all that the group
// aborts know of it: what is queued behind an operation of another communicator ends with that. Ranks that call different things
// hang as well, and leave a complaint. Sums are rounded at every step, in an order that differs from element to element.
#pragma once

#include <string>
#include <vector>

namespace trident::simulated {

struct NcclSettings {
  bool allow_shared_devices = false;
  int version = 22809;
  int version_of_last_device = 0;  // if not 0
  bool passes_registration_over = false;
  double abort_seconds = 60;  // after which a wait of ncclCommAbort that sees no end is a complaint, and ends
};
void configure_nccl(const NcclSettings& settings);

// The next operation that begins on `device` reports `result` and never ends.
void fail_nccl_on(int device, int result);
// The next operation that begins on `device` never ends.
void hang_nccl_on(int device);

// Operands that are registered on some ranks of an operation only, or at different offsets, leave a complaint,
// and so does memory that ends while it is registered.
//
// Returns what was wrong with the calls so far, and what exists. Forgotten by reset_nccl(), when no communicator is left.
std::vector<std::string> nccl_complaints();
int nccl_communicators();
bool nccl_connected(int device);  // whether one is on it
// Says what communicators were made with, of every rank, in any order.
struct NcclJoined {
  std::string name;
  int device = 0, max_ctas = 0;  // 0: not given
};
std::vector<NcclJoined> nccl_joined();
int nccl_registrations();
void reset_nccl();

}  // namespace trident::simulated
