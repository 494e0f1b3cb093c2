#include "parallel/mpi/mpi_nodes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/at.h"

namespace trident {

MpiGroup ranks_of_my_node(const MpiGroup& world, int ranks_per_node) {
  const MpiGroup machine = world.split_by_node();
  if (ranks_per_node == 0) return machine;
  const int first = world.rank() / ranks_per_node * ranks_per_node;
  const MpiGroup node = machine.split(first);
  if (node.size() != std::min(ranks_per_node, world.size() - first))
    throw ConfigError(fmt::format("ranks_per_node = {}: ranks {}..{} do not run on one machine", ranks_per_node, first,
                                  std::min(first + ranks_per_node, world.size()) - 1));
  return node;
}

std::vector<int> number_nodes(MpiGroup world, MpiGroup node) {
  const int leads = node.rank() == 0 ? 1 : 0;
  int mine = 0;  // at a node's first rank: how many nodes begin below it
  check_mpi(MPI_Exscan(&leads, &mine, 1, MPI_INT, MPI_SUM, world.comm()), "MPI_Exscan");
  if (world.rank() == 0) mine = 0;  // which MPI leaves undefined
  check_mpi(MPI_Bcast(&mine, 1, MPI_INT, 0, node.comm()), "MPI_Bcast");
  int first_size = node.size();  // of rank 0's node
  check_mpi(MPI_Bcast(&first_size, 1, MPI_INT, 0, world.comm()), "MPI_Bcast");
  std::int64_t last = mine;
  world.all_reduce({&last, 1}, ReduceOp::kMax);
  const int count = static_cast<int>(last) + 1;
  const auto in_blocks = [&](int rank) { return rank / first_size; };
  const auto in_turn = [&](int rank) { return rank % count; };
  std::array<std::int64_t, 2> otherwise{in_blocks(world.rank()) != mine ? 1 : 0, in_turn(world.rank()) != mine ? 1 : 0};
  world.all_reduce(otherwise, ReduceOp::kMax);

  std::vector<int> nodes(static_cast<std::size_t>(world.size()));
  if (otherwise[0] == 0 || otherwise[1] == 0) {
    for (int rank = 0; rank < world.size(); ++rank) at(nodes, rank) = otherwise[0] == 0 ? in_blocks(rank) : in_turn(rank);
    return nodes;
  }
  check_mpi(MPI_Gather(&mine, 1, MPI_INT, nodes.data(), 1, MPI_INT, 0, world.comm()), "MPI_Gather");
  check_mpi(MPI_Bcast(nodes.data(), world.size(), MPI_INT, 0, world.comm()), "MPI_Bcast");
  return nodes;
}

NodeHosts::NodeHosts(MpiGroup world, const MpiGroup& node, const std::string& host, NodeSegment segment)
    : segment_(std::move(segment)) {
  std::string lines;
  for (const std::string& line : world.gather(node.rank() == 0 ? host + "\n" : "")) lines += line;  // in order of nodes
  lines = world.broadcast(lines, 0);
  std::int64_t offset = 0;
  if (node.rank() == 0) {
    text_ = segment_.allocate(static_cast<std::int64_t>(lines.size()), "host names");
    std::memcpy(text_.data(), lines.data(), lines.size());
    offset = static_cast<std::int64_t>(segment_.offset_of(text_.data()));
  }
  check_mpi(MPI_Bcast(&offset, 1, MPI_INT64_T, 0, node.comm()), "MPI_Bcast");
  lines_ = reinterpret_cast<const char*>(segment_.at(static_cast<std::uint64_t>(offset)));
  bytes_ = lines.size();
}

std::string NodeHosts::of(int node) const {
  std::string_view rest(lines_, bytes_);
  for (; node > 0; --node) rest.remove_prefix(rest.find('\n') + 1);
  return std::string(rest.substr(0, rest.find('\n')));
}

}  // namespace trident
