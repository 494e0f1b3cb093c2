// What every call into MPI goes through. Nothing outside parallel/mpi includes mpi.h.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace trident {

// MPI's own words for an error code.
std::string mpi_error_text(int code);

// Throws CommunicationError with the call's name and MPI's words unless the call succeeded.
inline void check_mpi(int code, std::string_view call) {
  if (code != MPI_SUCCESS) [[unlikely]]
    throw CommunicationError(fmt::format("{}: {}", call, mpi_error_text(code)));
}

// A communicator of MPI's whose errors are returned. Freed by MPI_Finalize only: freeing is collective and a rank that fails cannot
// wait.
struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;

  static MpiGroup of(MPI_Comm comm);
  // The ranks that pass the same color, in the order of this group.
  MpiGroup split(int color) const;
  // Those that can share memory.
  MpiGroup split_by_node() const;

  // Collective: every rank's text, by rank.
  std::vector<std::string> all_gather(const std::string& mine) const;
  // Collective: rank 0's text.
  std::string broadcast(const std::string& text) const;
};

}  // namespace trident
