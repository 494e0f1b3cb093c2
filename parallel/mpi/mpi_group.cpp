#include "parallel/mpi/mpi_group.h"

#include <array>
#include <numeric>

#include "core/int_math.h"
#include "parallel/communicator/packed_texts.h"

namespace trident {

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return {text.data(), static_cast<std::size_t>(length)};
}

MpiGroup::MpiGroup(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

MpiGroup MpiGroup::split(int color) const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, color, rank_, &part), "MPI_Comm_split");
  return MpiGroup(part);
}

MpiGroup MpiGroup::split_by_node() const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part), "MPI_Comm_split_type");
  return MpiGroup(part);
}

std::vector<std::string> MpiGroup::all_gather(const std::string& mine) const {
  const int bytes = checked_cast<int>(mine.size());
  std::vector<int> counts(static_cast<std::size_t>(size_)), offsets(counts.size());
  check_mpi(MPI_Allgather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, comm_), "MPI_Allgather");
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::string all(static_cast<std::size_t>(checked_cast<int>(total)), '\0');
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  check_mpi(MPI_Allgatherv(mine.data(), bytes, MPI_CHAR, all.data(), counts.data(), offsets.data(), MPI_CHAR, comm_),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < counts.size(); ++r)
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(counts[r])));
  return texts;
}

void MpiGroup::all_reduce(std::span<std::int64_t> numbers, ReduceOp op) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, numbers.data(), checked_cast<int>(numbers.size()), MPI_INT64_T,
                          op == ReduceOp::kSum ? MPI_SUM : MPI_MAX, comm_),
            "MPI_Allreduce");
}

std::string MpiGroup::broadcast(const std::string& text, int root) {
  int bytes = checked_cast<int>(text.size());
  check_mpi(MPI_Bcast(&bytes, 1, MPI_INT, root, comm_), "MPI_Bcast");
  std::string received = rank_ == root ? text : std::string();
  received.resize(static_cast<std::size_t>(bytes));
  check_mpi(MPI_Bcast(received.data(), bytes, MPI_CHAR, root, comm_), "MPI_Bcast");
  return received;
}

std::vector<std::string> MpiGroup::gather(const std::string& mine) {
  constexpr int kTag = 0;
  std::string below = packed(mine);  // of ranks rank .. rank + bit - 1
  for (int bit = 1; bit < size_; bit *= 2) {
    if ((rank_ & bit) != 0) {
      check_mpi(MPI_Send(below.data(), checked_cast<int>(below.size()), MPI_CHAR, rank_ - bit, kTag, comm_), "MPI_Send");
      return {};
    }
    if (rank_ + bit >= size_) continue;
    MPI_Status status;
    int bytes = 0;
    check_mpi(MPI_Probe(rank_ + bit, kTag, comm_, &status), "MPI_Probe");
    check_mpi(MPI_Get_count(&status, MPI_CHAR, &bytes), "MPI_Get_count");
    const std::size_t before = below.size();
    below.resize(before + static_cast<std::size_t>(bytes));
    check_mpi(MPI_Recv(below.data() + before, bytes, MPI_CHAR, rank_ + bit, kTag, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
  }
  return unpacked(below);
}

}  // namespace trident
