#include "parallel/communicator/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "core/check.h"
#include "core/file_io.h"

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

// Finds a parameter in the text of Open MPI's parameter file: "ob1" in a line "pml = ob1". The last line counts.
std::optional<std::string> parameter_in(std::string_view file, std::string_view name) {
  std::optional<std::string> value;
  std::istringstream lines{std::string(file)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || !std::string_view(line).substr(begin).starts_with(name)) continue;
    const std::size_t next = line.find_first_not_of(" \t", begin + name.size());
    if (next == std::string::npos || line[next] != '=') continue;
    const std::size_t first = line.find_first_not_of(" \t", next + 1), last = line.find_last_not_of(" \t\r");
    value = first == std::string::npos ? "" : line.substr(first, last + 1 - first);
  }
  return value;
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
        "WORLD_SIZE = {}: started by torchrun, which this program does not support; use mpirun -np {} or srun --mpi=pmix", n, n));
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
    if (parameter_in(user_file, name)) return {};
  return {{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", major >= 5 ? "self,sm" : "self,vader"}};
}

std::optional<std::pair<std::string, std::string>> folder_instead_of_shm(const Environment& environment, std::int64_t shm_bytes, int major) {
  // Open MPI asks for the first; the second is twice what 32 ranks were seen to use of theirs (3.6 MB).
  constexpr std::int64_t kAtOnce = std::int64_t{8} << 20, kOfRank = std::int64_t{256} << 10;
  const Placement place = placement_of(environment);
  if (place.nodes != 1 || shm_bytes >= kAtOnce + kOfRank * place.ranks) return std::nullopt;
  const char* const name = major >= 5 ? "OMPI_MCA_btl_sm_backing_directory" : "OMPI_MCA_btl_vader_backing_directory";
  if (environment(name) != nullptr) return std::nullopt;
  const std::string folder = text_of(environment("TMPDIR"));
  return {{name, folder.empty() ? "/tmp" : folder}};
}

InterfaceChoice interfaces_for_mpi(const Environment& environment, std::string_view user_file) {
  const auto value_of = [&](const std::string& name) {
    const char* const set = environment(("OMPI_MCA_" + name).c_str());
    return set != nullptr ? std::string(set) : parameter_in(user_file, name).value_or("");
  };
  return {value_of("btl_tcp_if_include"), value_of("btl_tcp_if_exclude")};
}

std::string user_file_of_open_mpi(const Environment& environment) {
  const std::string path = text_of(environment("HOME")) + "/.openmpi/mca-params.conf";
  std::error_code error;
  try {
    return std::filesystem::is_regular_file(path, error) ? read_file(path) : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace trident
