// A command that starts a training, taken apart: flags of what starts the ranks, and of the program.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/foreign/foreign_key.h"
#include "train/import/foreign_input.h"
#include "train/import/shell_reader.h"

namespace trident {

// Variables by which some programs are told what others get as flags.
inline constexpr std::array<std::string_view, 4> kCommandSettings = {"NPROC_PER_NODE", "NNODES", "NGPU", "CONFIG_FILE"};

// The leaves of a command; nothing where it starts no training. A flag's key has its hyphens. Of srun and mpirun where they start
// another launcher, whose numbers count, keys are "srun.nodes" and "mpirun.np". A file among the program's words is the leaf
// "config". kOthers is the system of a program that a configuration file tells more of than its name; `system` replaces what its
// name says. Throws ConfigError "<file>:<line>:<column>: <why>": words without a value, but for those that the launcher alone reads
// and those that stand for an argument of the script, which get a remark; a command that nobody knows to run; a program configured
// in Python.
std::optional<std::vector<ForeignLeaf>> leaves_of_command(const ShellCommand& command, const std::string& file,
                                                          std::optional<ForeignSystem> system);

}  // namespace trident
