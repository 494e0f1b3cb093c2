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

// Where a command's run leaves what a supervisor looks at.
struct SupervisedRun {
  std::string checkpoints;
  std::string run_dir;                      // "": unknown, so that failure.json is looked for beside the checkpoints
  std::vector<ElasticLayout> layouts = {};  // with --nodes-from: the configuration's own first, then those of elastic
  bool saves_on_the_way = true;             // not where checkpoint.every is "end"
};

// From the arguments --config (-c) and --set behind the word `train` in the command. ConfigError: there are none and
// options.checkpoints is empty, the configuration or a layout of elastic is wrong, or a restart would not go on (checkpoint.every
// 0, checkpoint.resume other than "auto").
SupervisedRun supervised_run(const SuperviseOptions& options);

// Runs the command until it is done or not to be started again; one line for every end. Returns the exit code. A first SIGTERM,
// SIGINT, SIGUSR1 or SIGHUP is passed on as SIGUSR1 and lets it end, a second one kills it; a SIGHUP never does, because a terminal
// that closes may say so more than once. A command that does not end 15 s after its run failed with 76, as a failure.json of this
// very start says, is killed. Takes these signals, so the process must have one thread. ConfigError as supervised_run, or if the
// command cannot be started; StorageError if the checkpoints cannot be listed.
int supervise(const SuperviseOptions& options, LogSink& log);

}  // namespace trident
