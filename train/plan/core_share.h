// The cores that the ranks of a node share, and how many compute threads each of them gets of these: run.threads_per_rank "auto".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/counted.h"

namespace trident {

// Cores that a process may run on.
struct UsableCores {
  std::vector<int> ids;         // ascending: its affinity mask, as taskset, mpirun, Slurm or a cpuset made it
  std::optional<double> quota;  // cores that its control groups let it keep busy at once; nothing: all of them
};

// This process's cores. The quota is the smallest of its control group and those above it: cpu.max of version 2,
// cpu.cfs_quota_us of version 1, read below `root`, which tests replace.
UsableCores usable_cores_of_this_process(const std::string& root = "");

// Ascending numbers as "0-3,8", and back; what is no such text is an InternalError, for only ranks write and read it.
std::string number_ranges(std::span<const int> numbers);
std::vector<int> numbers_in(std::string_view ranges);

// The cores that the ranks of one node have together.
struct CoreShare {
  std::string node = "this node";  // for messages
  int cores = 1;                   // that any of them may run on
  std::optional<double> quota;
  int ranks = 1;

  int at_once() const;  // cores that can be busy: the cores, or the whole ones of a smaller quota; at least 1
  int threads() const;  // for each rank: at_once() / ranks, at least 1
};

// `processes`: those of the node, each alone or all ranks' one. The smallest quota counts for all.
CoreShare share_cores(std::span<const UsableCores> processes, int ranks);

// "2 threads per rank: 8 cores of this node for 4 ranks"
std::string threads_line(const CoreShare& share);

}  // namespace trident
