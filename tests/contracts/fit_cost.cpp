// fit_cost FILE [RUNS]: what it costs a process to know whether the job of a configuration fits, as one line on standard output:
// the processor time of its plan and of one rank of each stage constructed dry, as every start does (prepare_run).
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <span>
#include <vector>

#include "core/check.h"
#include "train/config/train_config.h"
#include "train/plan/machine.h"
#include "train/run/dry_run.h"

namespace {

double cpu_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trident;
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  const int runs = arguments.size() == 3 ? std::atoi(arguments[2]) : 101;
  if (arguments.size() < 2 || arguments.size() > 3 || runs < 1) {
    fmt::print(stderr, "fit_cost FILE [RUNS]\n");
    return 64;
  }
  try {
    OptionValues values;
    const TrainConfig config = load_train_config(arguments[1], {}, values);
    const ModelConfig model = resolve_model(config);
    const MachineFacts machine = cpu_machine_facts(1);
    std::vector<double> costs;
    for (int run = 0; run < runs; ++run) {
      const double before = cpu_milliseconds();
      const RunPlan plan = make_run_plan(config, model, 0, machine);
      const std::vector<DryRun> stages = dry_stages_here(plan, DeviceKind::kCpu, DryWork::kConstruct);
      costs.push_back(cpu_milliseconds() - before);
      TRIDENT_CHECK(stages.size() == static_cast<std::size_t>(plan.grid.degrees().pipeline), "{} stages", stages.size());
    }
    std::ranges::sort(costs);
    fmt::print("{}: {:.2f} ms of CPU time (median of {}; {:.2f} to {:.2f})\n", arguments[1],
               costs[costs.size() / 2], runs, costs.front(), costs.back());
  } catch (const Error& error) {
    fmt::print(stderr, "fit_cost: {}\n", error.what());
    return 65;
  }
  return 0;
}
