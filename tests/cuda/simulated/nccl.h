// What tests may ask of the simulated NCCL.
//
// Ranks are threads. Communicators must be non-blocking, and some calls return before they have done anything. Operations of one
// communicator may not run at once; an operation moves data once it has begun on every rank, so what waits for each other hangs
// here as it would. Ranks that call different things hang as well, and leave a complaint. Sums are rounded at every step, in an
// order that differs from element to element.
#pragma once

#include <string>
#include <vector>

namespace trident::simulated {

struct NcclSettings {
  bool allow_shared_devices = false;
  int version = 22809;
  int version_of_last_device = 0;  // if not 0
};
void configure_nccl(const NcclSettings& settings);

// The next operation that begins on `device` reports `result` and never ends.
void fail_nccl_on(int device, int result);
// The next operation that begins on `device` never ends.
void hang_nccl_on(int device);

// What was wrong with the calls so far, and what exists. Forgotten by reset_nccl(), when no communicator is left.
std::vector<std::string> nccl_complaints();
int nccl_communicators();
int nccl_registrations();
void reset_nccl();

}  // namespace trident::simulated
