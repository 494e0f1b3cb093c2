// Who started this process, from the environment that launchers leave.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

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

// Reads the variables of Open MPI, PMIx, PMI (MPICH, Intel MPI) and Slurm. One process alone is nobody's job: kNone.
// torchrun's variables without any of these: ConfigError, since nothing here speaks its protocol.
Launcher detect_launcher(const std::function<const char*(const char* name)>& environment);

// ConfigError for kPlainSrun.
[[noreturn]] void refuse_unconnected_processes(const Launcher& launcher);

}  // namespace trident
