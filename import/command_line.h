// A command that starts a training, taken apart: flags of what starts the ranks, and of the program.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "import/foreign/foreign_key.h"
#include "import/foreign_input.h"
#include "import/shell_reader.h"

namespace trident {

// Variables by which some programs are told what others get as flags.
inline constexpr std::array<std::string_view, 4> kCommandSettings = {"NPROC_PER_NODE", "NNODES", "NGPU", "CONFIG_FILE"};

// Whether the name ends as those of YAML, JSON and TOML do.
bool is_configuration(std::string_view name);

// The numbers of "#SBATCH" lines before the first command, and the variables in which Slurm gives them to the script.
struct Batch {
  std::vector<ForeignLeaf> leaves;   // "sbatch.nodes", "sbatch.ntasks", "sbatch.ntasks_per_node", "sbatch.gpus_per_node"
  std::vector<ShellWord> variables;  // "SLURM_NNODES=4"
};
Batch batch_of(std::string_view text, const std::string& file);

// The leaves of a command; nothing where it starts no training. A flag's key has its hyphens. Of srun and mpirun where they start
// another launcher, whose numbers count, keys are "srun.nodes" and "mpirun.np". A file among the program's words is the leaf
// "config", and "python", "swift" or "torchrun" is one where no flag or setting counts ranks. kOthers is the system of a program
// that a configuration file tells more of than its name; `system` replaces what its name says. Leaves of `batch` count where srun
// or mpirun start the ranks and do not say how many. Throws ConfigError "<file>:<line>:<column>: <why>": words without a value, but
// for those that the launcher alone reads and those that stand for an argument of the script, which get a remark; a command that
// nobody knows to run; a program configured in Python.
std::optional<std::vector<ForeignLeaf>> leaves_of_command(const ShellCommand& command, const std::string& file,
                                                          std::optional<ForeignSystem> system,
                                                          std::span<const ForeignLeaf> batch = {});

}  // namespace trident
