// Processes do these in step before they have communicators: one fails, and all end with its message.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/communicator/rendezvous.h"

namespace trident {

// All ranks throw together: this on rank 0, ReportedElsewhere on the others.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Collective: runs `step` on every rank. Where it threw an Error on any of them, all throw: rank 0 an AgreedError with the lowest
// such rank's code and message (with its rank and host in front, unless all ranks said the same), the others ReportedElsewhere. The
// only rank of a job throws its own error.
void run_together(Rendezvous& job, const std::function<void()>& step);

// Collective: what rank 0 has, for all. Only rank 0's `mine` counts.
std::vector<std::int32_t> of_rank_0(Rendezvous& job, const std::vector<std::int32_t>& mine);

}  // namespace trident
