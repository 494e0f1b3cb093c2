// This process as a rank of a test job, and the test suite's ranks as parts of it.
#pragma once

#include <memory>

#include "parallel/mpi/process_world.h"
#include "tests/parallel/rank_context.h"
#include "tests/parallel/shared_values.h"

namespace trident::conformance {

// A rank has this for as long as the job runs: a process joins once and makes one world communicator.
class MpiSession {
 public:
  explicit MpiSession(const ProcessWorldOptions& options);
  ~MpiSession();

  // The session of this process, between its construction in main() and its end.
  static MpiSession& current();

  ProcessWorld& world() { return *world_; }
  Communicator& communicator() { return *communicator_; }
  Progress& progress() { return progress_; }
  // A context of this rank over `communicator`.
  RankContext context(Communicator& communicator) { return {communicator, compute_, {&queue0_, &queue1_}}; }
  // Everybody is done: to be called by all ranks.
  void finish();

 private:
  std::unique_ptr<ProcessWorld> world_;
  MixedValues values_;
  Progress progress_;
  CpuStream compute_{"compute", CpuStream::Mode::kImmediate, progress_};
  CpuStream queue0_{"queue 0", CpuStream::Mode::kQueue, progress_};
  CpuStream queue1_{"queue 1", CpuStream::Mode::kQueue, progress_};
  std::unique_ptr<Communicator> communicator_;
};

// Cuts the job into groups of `ranks` ranks, neighbours or as far apart as possible; all of them run `body` at the same time. A
// rank whose body throws says why and ends its process, and with it the job.
void launch_neighbours(int ranks, const std::function<void(RankContext&)>& body);
void launch_strangers(int ranks, const std::function<void(RankContext&)>& body);

}  // namespace trident::conformance
