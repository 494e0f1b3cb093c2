#include "parallel/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>

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

std::string text_of(const char* value) { return value == nullptr ? "" : value; }

// "pml = ob1" in a file of Open MPI's parameters.
bool names_parameter(std::string_view file, std::string_view name) {
  std::istringstream lines{std::string(file)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || !std::string_view(line).substr(begin).starts_with(name)) continue;
    const std::size_t next = line.find_first_not_of(" \t", begin + name.size());
    if (next != std::string::npos && line[next] == '=') return true;
  }
  return false;
}

}  // namespace

Launcher detect_launcher(const Environment& environment) {
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

Placement placement_of(const Environment& environment) {
  const auto is_zero = [&](const char* name) { return text_of(environment(name)) == "0"; };
  Placement place;
  if (const int ranks = count_of(environment("OMPI_COMM_WORLD_SIZE")); ranks > 0) {
    place.ranks = ranks;
    place.is_rank_0 = is_zero("OMPI_COMM_WORLD_RANK");
    // Nodes may hold unequally many ranks; Open MPI 4 counts them.
    if (const int local = count_of(environment("OMPI_COMM_WORLD_LOCAL_SIZE")); local > 0) place.nodes = (ranks + local - 1) / local;
    if (const int nodes = count_of(environment("OMPI_MCA_orte_num_nodes")); place.nodes > 1)
      place.nodes = std::max(place.nodes, nodes);
  } else if (const int tasks = count_of(environment("SLURM_STEP_NUM_TASKS")); tasks > 0) {
    place.ranks = tasks;
    place.nodes = count_of(environment("SLURM_STEP_NUM_NODES"));
    place.is_rank_0 = is_zero("PMIX_RANK");
  }
  return place;
}

std::vector<std::pair<std::string, std::string>> settings_without_ports(const Environment& environment, std::string_view user_file,
                                                                        int major) {
  if (placement_of(environment).nodes != 1) return {};
  // The last two name further files.
  for (const char* name :
       {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_mca_base_param_files", "OMPI_MCA_mca_base_param_file_prefix"})
    if (environment(name) != nullptr) return {};
  for (const char* name : {"pml", "btl", "mtl"})
    if (names_parameter(user_file, name)) return {};
  return {{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", major >= 5 ? "self,sm" : "self,vader"}};
}

InterfaceChoice interfaces_for_mpi(const Environment& environment) {
  return {text_of(environment("OMPI_MCA_btl_tcp_if_include")), text_of(environment("OMPI_MCA_btl_tcp_if_exclude"))};
}

}  // namespace trident
