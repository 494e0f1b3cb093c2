#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "core/scratch_folder.h"
#include "planner/bench/calibrate_models.h"
#include "planner/bench/calibrate_training.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

constexpr int kMemorySteps = 3;  // peaks come with the second

// A document of `tokens` tokens 0, 1, ... in Megatron's format: data/indexed_dataset.h.
void write_tokens(const std::string& prefix, std::int32_t tokens) {
  std::string bin, idx("MMIDIDX\0\0", 9);
  const auto add = [](std::string& to, auto number) { to.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (std::int32_t i = 0; i < tokens; ++i) add(bin, static_cast<std::uint16_t>(i % 512));
  add(idx, std::uint64_t{1}), add(idx, std::uint8_t{8}), add(idx, std::uint64_t{1}), add(idx, std::uint64_t{2});
  add(idx, tokens);
  for (const std::int64_t value : {0, 0, 1}) add(idx, value);
  write_file(prefix + ".bin", bin);
  write_file(prefix + ".idx", idx);
}

// Waits for `process`; the most that was resident in it. `what` it was to do.
double peak_bytes_of(pid_t process, const std::string& what) {
  int status = 0;
  rusage usage{};
  while (::wait4(process, &status, 0, &usage) < 0) {
    if (errno != EINTR) throw StorageError(fmt::format("{}: {}; run that command to see why", what, std::strerror(errno)));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw StorageError(fmt::format("{}: it ended with {} {}; run that command to see why", what,
                                   WIFEXITED(status) ? "code" : "signal",
                                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
  }
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

// Resident beside the arenas when `model` has been trained by a process of its own. Not by this one, in which memory of what came
// before it lies; not by one that is forked and goes on with this program's pages, which count for neither.
double bytes_beside_arenas(const CalibrateOptions& options, TrainedModel model) {
  const ScratchFolder folder("trident-calibrate");
  model.config.run.dir = folder.path() + "/run";
  model.config.run.steps = kMemorySteps;
  model.config.run.threads_per_rank = 1;
  model.config.checkpoint = {};  // what stages a save is no memory of training
  model.config.data.train = {{folder.path() + "/tokens", 1}};
  write_tokens(folder.path() + "/tokens", 20000);
  write_file(folder.path() + "/config.json", to_json_text(to_json(model.config)));
  std::vector<std::string> words{options.program, "train", "--config", folder.path() + "/config.json"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO})
    ::posix_spawn_file_actions_addopen(&files, output, "/dev/null", O_WRONLY, 0);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, options.program.c_str(), &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  const std::string what = fmt::format("{} train, which measures memory", options.program);
  if (error != 0) throw StorageError(fmt::format("{}: {}; see that this program can be started again", what, std::strerror(error)));
  double resident = peak_bytes_of(process, what);
  const RunPlan plan = plan_of(model, 1);
  const int of_a_stage = plan.world_size() / plan.grid.degrees().pipeline;
  for (const DryRun& stage : dry_stages_here(plan, DeviceKind::kCpu, DryWork::kConstruct))
    resident -= of_a_stage * static_cast<double>(stage.arena.total_bytes());
  return resident;
}

}  // namespace

// A line through runs of 1 to 8 ranks. A rank's heap is of several sizes by the luck of where its products' buffers come to lie, so
// that two runs say little.
void measure_memory(const CalibrateOptions& options, const std::string& source, CpuRates& rates) {
  for (const auto& [dtype, precision] : {std::pair{DType::kBF16, "bf16"}, std::pair{DType::kF32, "fp32"}}) {
    double n = 0, x = 0, xx = 0, y = 0, xy = 0;
    for (const TrainedModel& model : models_for_memory(options.largest, precision, options.every)) {
      options.check();
      const double ranks = plan_of(model, 1).world_size(), bytes = bytes_beside_arenas(options, model);
      n += 1, x += ranks, xx += ranks * ranks, y += bytes, xy += ranks * bytes;
    }
    const double rank = std::max((n * xy - x * y) / (n * xx - x * x), 0.0);
    rates.memory.push_back({dtype, std::max((y - rank * x) / n, 0.0), rank, source});
  }
}

}  // namespace trident
