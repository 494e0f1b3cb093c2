// trident supervise: starts a command again and again until it is done.
#pragma once

#include <string>
#include <vector>

#include "core/logging.h"
#include "supervise/supervised_nodes.h"
#include "supervise/supervision.h"

namespace trident {

struct SuperviseOptions {
  std::vector<std::string> command;
  std::string checkpoints;  // the folder of its checkpoints, or its run.dir; "": that of the configuration which the command names
  SupervisionRules rules;
  NodeOptions nodes;
};

// Runs the command until it is done or not to be started again; one line for every end. Returns the exit code. A first SIGTERM,
// SIGINT, SIGUSR1 or SIGHUP is passed on as SIGUSR1 and lets it end, and so is a second one, which kills it after 15 s; a third
// one kills at once. A SIGHUP is never a second one: a terminal that closes may say so more than once. A command that does not
// end 15 s after its run failed with 76, as a failure.json of this very start says, is killed. Takes these signals, so the
// process must have one thread. ConfigError: the command cannot be started, or names no configuration (--config and --set behind
// the word `train`) and options.checkpoints is empty, the configuration or a layout of its elastic is wrong, or a restart would
// not go on (checkpoint.every 0, checkpoint.resume other than "auto"). StorageError: the checkpoints cannot be listed.
int supervise(const SuperviseOptions& options, LogSink& log);

}  // namespace trident
