#include "parallel/mpi/mpi_group.h"

#include <array>
#include <cstdint>
#include <numeric>

#include "core/int_math.h"

namespace trident {

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return {text.data(), static_cast<std::size_t>(length)};
}

MpiGroup MpiGroup::of(MPI_Comm comm) {
  MpiGroup group{comm};
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm, &group.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &group.size), "MPI_Comm_size");
  return group;
}

MpiGroup MpiGroup::split(int color) const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm, color, rank, &part), "MPI_Comm_split");
  return of(part);
}

MpiGroup MpiGroup::split_by_node() const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &part), "MPI_Comm_split_type");
  return of(part);
}

std::vector<std::string> MpiGroup::all_gather(const std::string& mine) const {
  const int bytes = checked_cast<int>(mine.size());
  std::vector<int> counts(static_cast<std::size_t>(size)), offsets(counts.size());
  check_mpi(MPI_Allgather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, comm), "MPI_Allgather");
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::string all(static_cast<std::size_t>(checked_cast<int>(total)), '\0');
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  check_mpi(MPI_Allgatherv(mine.data(), bytes, MPI_CHAR, all.data(), counts.data(), offsets.data(), MPI_CHAR, comm),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < counts.size(); ++r)
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(counts[r])));
  return texts;
}

std::string MpiGroup::broadcast(const std::string& text) const {
  int bytes = checked_cast<int>(text.size());
  check_mpi(MPI_Bcast(&bytes, 1, MPI_INT, 0, comm), "MPI_Bcast");
  std::string received = text;
  received.resize(static_cast<std::size_t>(bytes));
  check_mpi(MPI_Bcast(received.data(), bytes, MPI_CHAR, 0, comm), "MPI_Bcast");
  return received;
}

}  // namespace trident
