// Thread ranks for tests: each with a compute stream and two queue streams.
#pragma once

#include <functional>

#include "parallel/shared_memory/thread_world.h"
#include "tests/parallel/rank_context.h"

namespace trident::conformance {

struct ThreadRank {
  ThreadRank(ThreadWorld& world, int rank)
      : progress(world.doorbell(rank)), communicator(world.communicator(rank, progress)) {}
  RankContext context() { return {*communicator, compute, {&queue0, &queue1}}; }

  Progress progress;
  CpuStream compute{"compute", CpuStream::Mode::kImmediate, progress};
  CpuStream queue0{"queue 0", CpuStream::Mode::kQueue, progress};
  CpuStream queue1{"queue 1", CpuStream::Mode::kQueue, progress};
  std::unique_ptr<Communicator> communicator;  // after the streams: it is destroyed first
};

inline void run_on_threads(ThreadWorld& world, const std::function<void(RankContext&)>& body) {
  run_thread_ranks(world, [&](int rank) {
    ThreadRank self(world, rank);
    RankContext context = self.context();
    body(context);
  });
}

inline void launch_threads(int ranks, const std::function<void(RankContext&)>& body) {
  ThreadWorld world(ranks, 60.0);
  run_on_threads(world, body);
}

}  // namespace trident::conformance
