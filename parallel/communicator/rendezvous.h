// The ranks of a job exchange these before they have communicators: numbers that are added up, one rank's line for all, and
// the lines of all for rank 0. A rank sends and receives O(log N) messages in each call and holds O(1) memory; only gather() is as
// large as all it brings, on rank 0 and on the way there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/communicator/collective_kind.h"

namespace trident {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // All of these are collective and host-synchronous.
  // In place: of each number the sum, or the maximum, over ranks. The same count on every rank.
  virtual void all_reduce(std::span<std::int64_t> numbers, ReduceOp op) = 0;
  // The text of `root`, which is the same on every rank; the others' do not count.
  virtual std::string broadcast(const std::string& text, int root) = 0;
  // Rank 0: every rank's text, by rank; the others: nothing.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
};

// Collective: the lowest rank for which `is` holds, or -1.
inline int first_rank(Rendezvous& ranks, bool is) {
  std::int64_t distance = is ? ranks.size() - ranks.rank() : 0;  // from the end
  ranks.all_reduce({&distance, 1}, ReduceOp::kMax);
  return distance == 0 ? -1 : ranks.size() - static_cast<int>(distance);
}

}  // namespace trident
