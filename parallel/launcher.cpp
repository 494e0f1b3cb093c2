#include "parallel/launcher.h"

#include <charconv>
#include <cstring>

#include "core/check.h"

namespace trident {
namespace {

// A whole number above 0, or 0.
int count_of(const char* text) {
  int value = 0;
  if (text == nullptr) return 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end && value > 0 ? value : 0;
}

}  // namespace

Launcher detect_launcher(const std::function<const char*(const char* name)>& environment) {
  using Kind = Launcher::Kind;
  if (const int n = count_of(environment("OMPI_COMM_WORLD_SIZE")); n > 1) return {Kind::kMpi, n, "Open MPI's mpirun"};
  if (const int n = count_of(environment("PMI_SIZE")); n > 1) return {Kind::kMpi, n, "mpiexec (PMI)"};
  // Counted for this step, not for the job: `trident` in a batch script is one process however many tasks the job has.
  if (const int n = count_of(environment("SLURM_STEP_NUM_TASKS")); n > 1) {
    const bool pmix = environment("PMIX_RANK") != nullptr;
    return {pmix ? Kind::kMpi : Kind::kPlainSrun, n, pmix ? "srun --mpi=pmix" : "srun"};
  }
  if (const int n = count_of(environment("WORLD_SIZE")); n > 1 && environment("TORCHELASTIC_RUN_ID") != nullptr) {
    throw ConfigError(fmt::format(
        "WORLD_SIZE = {}: started by torchrun, which this program does not speak; use mpirun -np {} or srun --mpi=pmix", n, n));
  }
  return {};
}

void refuse_unconnected_processes(const Launcher& launcher) {
  throw ConfigError(fmt::format(
      "srun started {} processes that do not know of each other; use srun --mpi=pmix, or srun -n 1 for ranks as threads", launcher.processes));
}

}  // namespace trident
