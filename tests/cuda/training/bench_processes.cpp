// Prints what trident bench measures between a job's processes. Run under mpirun, as bench_processes cpu|cuda; every process has a
// simulated CUDA of its own, whose GPU they take for one that they share.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/core.h>

#include "core/check.h"
#include "planner/bench/bench_collectives.h"

namespace {

using namespace trident;

int failures = 0;
void expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  fmt::print("FAILED: {}\n", what);
}

void expect_rates(const CollectiveRates& way, const std::string& name, int ranks) {
  expect(way.way == name, fmt::format("way {} is {}", way.way, name));
  expect(way.skipped.empty() && way.ranks == ranks && way.floor_rate > 0 && way.rates.size() == 3,
         fmt::format("{}: rates, or skipped: {}", name, way.skipped));
  for (const CollectiveRate& rate : way.rates) expect(rate.seconds > 0 && way.floor_seconds(rate) > 0, rate.operation);
}

int run(AskedDevice device) {
  const std::unique_ptr<ProcessWorld> world = join_process_world();
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  const auto ways = rates_between_processes(*world, device, *cuda, {.cuda = {}, .threads_per_rank = 1, .megabytes = 0.05});
  if (device == AskedDevice::kCpu) {
    expect(ways.size() == 1, "one way on CPUs");
    expect_rates(ways.at(0), "processes in host memory", world->size());
  } else {
    expect(ways.size() == 2, "two ways on GPUs");
    expect(ways.at(0).way == "processes by NCCL" && ways.at(0).skipped == fmt::format("{} processes share 1 GPU", world->size()),
           "NCCL skipped: " + ways.at(0).skipped);
    expect_rates(ways.at(1), "processes through pinned host memory", world->size());
  }
  world->finish();
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  try {
    return run(parse_name<AskedDevice>(argv[1]).value());
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    std::fflush(stdout);
    return EXIT_FAILURE;
  }
}
