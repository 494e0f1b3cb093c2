// loader_speed PREFIX SEQUENCE GLOBAL STEPS STEP_MS: how long a step waits for its batch when the file is not in memory, with and
// without prefetch. A "step" loads GLOBAL shuffled samples and then sleeps STEP_MS. The page cache of the file is dropped before
// each run.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "core/clock.h"
#include "core/file_io.h"
#include "data/batch_loader.h"

namespace {

void drop_cache(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void measure(const char* name, const std::string& prefix, std::int64_t sequence, std::int64_t global, std::int64_t steps,
             int step_ms, bool ahead) {
  using namespace trident;
  drop_cache(bin_path(prefix));
  const std::vector<WeightedPath> paths{{prefix, 1}};
  BatchLoader loader(open_token_sources(paths, {}, {}).train,
                     {.sequence = sequence, .vocab_size = std::int64_t{1} << 31, .seed = 1, .shuffle = Shuffle::kPerEpoch});
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence * global)), targets(tokens);
  std::vector<double> loads;
  double asking = 0;
  const BatchSlicing slicing{.global = global, .micro = global, .data_ranks = 1};
  for (std::int64_t step = 0; step < steps; ++step) {
    double start = monotonic_seconds();
    if (ahead) loader.prefetch_step(slicing, step + 1, 0);
    asking += monotonic_seconds() - start;
    start = monotonic_seconds();
    loader.load(step * global, global, {tokens, targets});
    if (step > 0) loads.push_back(1e3 * (monotonic_seconds() - start));  // the first one is cold either way
    std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
  }
  std::sort(loads.begin(), loads.end());
  std::printf("%-18s load of a step: median %.3f ms, longest %.3f ms; prefetch %.3f ms per step, between steps\n", name,
              loads[loads.size() / 2], loads.back(), 1e3 * asking / static_cast<double>(steps));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 64;
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  for (const bool ahead : {false, true, false, true})
    measure(ahead ? "with prefetch" : "without prefetch", argv[1], number(2), number(3), number(4), static_cast<int>(number(5)),
            ahead);
}
