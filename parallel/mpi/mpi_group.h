// Every call into MPI goes through this group. Nothing outside parallel/mpi includes mpi.h.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "parallel/communicator/rendezvous.h"

namespace trident {

// The calls that a CallMark names: those in which a rank may be held.
struct MarkedCall {
  static constexpr const char* kIsend = "MPI_Isend";
  static constexpr const char* kIrecv = "MPI_Irecv";
  static constexpr const char* kTest = "MPI_Test";
  static constexpr const char* kTestsome = "MPI_Testsome";
  static constexpr const char* kIprobe = "MPI_Iprobe";
  static constexpr const char* kIbarrier = "MPI_Ibarrier";
  static constexpr const char* kFinalize = "MPI_Finalize";
};

// MPI's own words for an error code.
std::string mpi_error_text(int code);

// Throws CommunicationError with the call's name and MPI's words unless the call succeeded.
inline void check_mpi(int code, std::string_view call) {
  if (code != MPI_SUCCESS) [[unlikely]]
    throw CommunicationError(fmt::format("{}: {}", call, mpi_error_text(code)));
}

// A communicator of MPI's whose errors are returned. Freed by MPI_Finalize only: freeing is collective and a rank that fails cannot
// wait.
class MpiGroup final : public Rendezvous {
 public:
  explicit MpiGroup(MPI_Comm comm);
  // The ranks that pass the same color, in the order of this group.
  MpiGroup split(int color) const;
  // The ranks that can share memory.
  MpiGroup split_by_node() const;

  MPI_Comm comm() const { return comm_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // Collective: every rank's text, by rank.
  std::vector<std::string> all_gather(const std::string& mine) const;
  void all_reduce(std::span<std::int64_t> numbers, ReduceOp op) override;
  std::string broadcast(const std::string& text, int root) override;
  // Up a binomial tree, since MPI's own may have every rank send to rank 0. Not while wires carry messages.
  std::vector<std::string> gather(const std::string& mine) override;

 private:
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
};

}  // namespace trident
