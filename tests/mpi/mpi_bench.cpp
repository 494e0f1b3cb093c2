// Measures joining, reducing and waiting where ranks are processes. Run by hand under mpirun:
// bench_mpi [--ranks-per-node=N | --join-only]
//
// Times are of the slowest rank: the median over rounds and, where others use the machine too, the fastest round. Every rank has
// just written its operand, which lies in the segment.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "parallel/mpi/process_world.h"
#include "tests/support/process_clock.h"

namespace trident {
namespace {

struct Work {
  const char* name;
  std::int64_t floats;  // 0: barrier
  int rounds;
  bool scatter = false;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure(ProcessWorld& world, Communicator& communicator, Stream& stream, const Work& work) {
  const std::int64_t slice = work.floats / world.size(), floats = work.scatter ? slice * world.size() : work.floats;
  const Buffer memory = world.allocate(std::max<std::int64_t>(floats, 1) * 4, "operand");
  const TensorView x(memory.data(), DType::kF32, {floats}), mine = x.range(world.rank() * slice, slice);
  std::vector<double> times;
  const double cpu_before = testing::process_cpu_seconds();
  for (int round = -2; round < work.rounds; ++round) {
    if (floats > 0) std::fill_n(x.as<float>(), floats, static_cast<float>(round));
    communicator.barrier();
    const double begin = monotonic_seconds();
    if (floats == 0) communicator.barrier();
    else if (work.scatter) communicator.reduce_scatter(stream, mine, x, ReduceOp::kSum);
    else communicator.all_reduce(stream, x, ReduceOp::kSum);
    float took = static_cast<float>(monotonic_seconds() - begin);
    communicator.all_reduce(stream, {&took, DType::kF32, {1}}, ReduceOp::kMax);
    if (round >= 0) times.push_back(static_cast<double>(took));
  }
  if (world.rank() == 0)
    fmt::print("{:>3} ranks  {:<22} {:>9.3f} ms  fastest {:>9.3f} ms  {:>9.3f} ms CPU of rank 0 per round, writing included\n",
               world.size(), work.name, median(times) * 1e3, *std::min_element(times.begin(), times.end()) * 1e3,
               (testing::process_cpu_seconds() - cpu_before) / (work.rounds + 2) * 1e3);
}

enum class Extent : std::uint8_t { kAll, kJoinOnly };

void run(const ProcessWorldOptions& options, Extent extent) {
  const double begin = monotonic_seconds();
  const auto world = join_process_world(options);
  const double joined = monotonic_seconds();
  if (world->rank() == 0) fmt::print("{}; joined in {:.3f} s\n", world->describe(), joined - begin);
  if (extent == Extent::kAll) {
    Progress progress(world->doorbell());
    CpuStream stream("compute", CpuStream::Mode::kImmediate, progress);
    const auto communicator = world->communicator(progress);
    for (const Work& work : {Work{"barrier", 0, 500}, Work{"all_reduce 4 B", 1, 500}, Work{"all_reduce 1 MB", 1 << 18, 100},
                             Work{"all_reduce 16 MB", 1 << 22, 20}, Work{"reduce_scatter 16 MB", 1 << 22, 20, true}})
      measure(*world, *communicator, stream, work);
  }
  const double leaving = monotonic_seconds();
  world->finish();
  if (world->rank() == 0) fmt::print("left in {:.3f} s\n", monotonic_seconds() - leaving);
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  trident::ProcessWorldOptions options;
  constexpr std::string_view kNode = "--ranks-per-node=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kNode)) options.ranks_per_node = std::stoi(argv[1] + kNode.size());
  const bool join_only = argc > 1 && std::string_view(argv[1]) == "--join-only";
  trident::run(options, join_only ? trident::Extent::kJoinOnly : trident::Extent::kAll);
}
