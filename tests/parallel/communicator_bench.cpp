// Measures waiting and reducing: ranks as threads on whatever cores there are. Run by hand: bench_communicator [ranks...]
//
// Prints wall time and process CPU time per operation. With more ranks than cores the CPU time per operation is what counts: it is
// taken from the ranks' real work.
#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/clock.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/support/process_clock.h"

namespace trident {
namespace {

struct Work {
  const char* name;
  std::int64_t floats;  // 0: barrier
  int rounds;
};

void measure(int ranks, const Work& work) {
  ThreadWorld world(ranks);
  double wall = 0, cpu = 0;
  run_thread_ranks(world, [&](int rank) {
    std::vector<float> x(static_cast<std::size_t>(work.floats), 0.0f);
    Progress progress(world.doorbell(rank));
    CpuStream stream("compute", CpuStream::Mode::kImmediate, progress);
    const auto communicator = world.communicator(rank, progress);
    const auto once = [&] {
      if (work.floats == 0) communicator->barrier();
      else communicator->all_reduce(stream, {x.data(), DType::kF32, {work.floats}}, ReduceOp::kSum);
    };
    for (int i = 0; i < 3; ++i) once();
    communicator->barrier();
    const double wall_start = monotonic_seconds(), cpu_start = testing::process_cpu_seconds();
    for (int i = 0; i < work.rounds; ++i) once();
    communicator->barrier();
    if (rank == 0) {
      wall = monotonic_seconds() - wall_start;
      cpu = testing::process_cpu_seconds() - cpu_start;
    }
    communicator->barrier();
  });
  fmt::print("{:>3} ranks  {:<18} {:>6} rounds  {:>10.1f} us wall  {:>10.1f} us CPU per operation\n", ranks, work.name, work.rounds,
             wall / work.rounds * 1e6, cpu / work.rounds * 1e6);
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  std::vector<int> ranks;
  for (int i = 1; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
  if (ranks.empty()) ranks = {2, 4, 8, 32};
  for (const int n : ranks) {
    trident::measure(n, {"barrier", 0, 2000});
    trident::measure(n, {"all_reduce 4 B", 1, 2000});
    trident::measure(n, {"all_reduce 1 MB", 1 << 18, n > 8 ? 30 : 200});
    trident::measure(n, {"all_reduce 16 MB", 1 << 22, n > 8 ? 5 : 20});
  }
}
