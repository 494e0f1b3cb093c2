// Holds a starting job while lifelines listen and nobody has called yet: a library to preload (tests/nodes/lifeline_door_test.cpp).
//
// The deputy tells the others where it listens by MPI. Here it waits before it does: HOLD_CARD names a folder, in which it makes
// the file "held" and waits for a file "go".
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

extern "C" int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  const char* const folder = std::getenv("HOLD_CARD");
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  constexpr std::string_view kCard = "trident-lifeline ";
  if (folder != nullptr && rank != 0 && rank == root && type == MPI_CHAR &&
      std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(n)).starts_with(kCard)) {
    std::ofstream(folder + std::string("/held"));
    while (!std::filesystem::exists(folder + std::string("/go"))) usleep(10'000);
  }
  return PMPI_Bcast(data, n, type, root, comm);
}
