// This library, preloaded by tests/nodes/lifeline_acceptor_test.cpp, holds a starting job while lifelines listen for callers.
//
// The deputy tells the others where it listens by MPI. Here it waits before it does: HOLD_GPU names a folder, in which it makes
// the file "held" and waits for a file "go".
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

extern "C" int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  const char* const folder = std::getenv("HOLD_GPU");
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  constexpr std::string_view kGpu = "trident-lifeline ";
  if (folder != nullptr && rank != 0 && rank == root && type == MPI_CHAR &&
      std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(n)).starts_with(kGpu)) {
    std::ofstream(folder + std::string("/held"));
    while (!std::filesystem::exists(folder + std::string("/go"))) usleep(10'000);
  }
  return PMPI_Bcast(data, n, type, root, comm);
}
