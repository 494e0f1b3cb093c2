// A build without MPI: ranks are threads of one process.
#include "core/check.h"
#include "parallel/mpi/process_world.h"

namespace trident {

std::unique_ptr<ProcessWorld> join_process_world(const ProcessWorldOptions&) {
  throw ConfigError(
      "this program was built without MPI, so its ranks are threads of one process; start it once, without mpirun or srun, or "
      "install libopenmpi-dev and openmpi-bin and build it again with -DTRIDENT_MPI=ON");
}

}  // namespace trident
