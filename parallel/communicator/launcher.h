// Who started this process, from the environment that launchers leave.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trident {

struct Launcher {
  enum class Kind : std::uint8_t {
    kNone,      // a shell: ranks are threads of this process
    kMpi,       // mpirun, mpiexec, or srun with an MPI plugin: this process is one rank, the MPI library knows its number
    kPlainSrun  // srun without a plugin: several processes that know nothing of each other
  };
  Kind kind = Kind::kNone;
  int processes = 1;        // as the environment has it
  std::string description;  // "Open MPI's mpirun", "srun": for messages
};

// A variable's value, or null: std::getenv, or a test's.
using Environment = std::function<const char*(const char* name)>;

// Reads the variables of Open MPI, PMIx, PMI (MPICH, Intel MPI) and Slurm. One process alone is nobody's job: kNone.
// torchrun's variables without any of these: ConfigError, since nothing here speaks its protocol.
Launcher detect_launcher(const Environment& environment);

// ConfigError for kPlainSrun.
[[noreturn]] void refuse_unconnected_processes(const Launcher& launcher);

// Where the launcher placed the job's ranks, as far as its variables say before MPI does.
struct Placement {
  int ranks = 1;
  int nodes = 0;  // 0: not said
  bool is_rank_0 = false;
};
Placement placement_of(const Environment& environment);

// Environment variables to set before MPI_Init so that Open MPI of version `major` opens no port: ranks of one node need no
// network. Pairs of name and value; none where ranks are on several nodes or the launcher does not say, and none where the user has
// chosen a transport by pml, btl or mtl, in the environment (where mpirun --mca puts it) or in `user_file`, the text of
// ~/.openmpi/mca-params.conf. The system's file does not count: distributions write theirs without a user's wish.
std::vector<std::pair<std::string, std::string>> settings_without_ports(const Environment& environment, std::string_view user_file,
                                                                        int major);

// Environment variables for Open MPI of version `major` where ranks of one node share memory and /dev/shm has `shm_bytes` free, too few for its files
// there (it asks for 4 MiB for each rank, one at a time, and ends in MPI_Init without): another folder. Nothing where there is room, ranks are on several
// nodes (Open MPI then goes over TCP), or the user chose a folder.
std::optional<std::pair<std::string, std::string>> folder_instead_of_shm(const Environment& environment, std::int64_t shm_bytes, int major);

// The interfaces of a host that a job uses, as MPI is told: names ("eth0") and networks ("10.0.0.0/24"), separated by commas.
struct InterfaceChoice {
  std::string include, exclude;  // empty: all
};
// `user_file`: as above; the environment goes before it.
InterfaceChoice interfaces_for_mpi(const Environment& environment, std::string_view user_file);

// The text of ~/.openmpi/mca-params.conf; empty where there is none that this process may read, as for Open MPI itself.
std::string user_file_of_open_mpi(const Environment& environment);

}  // namespace trident
