// The hosts of a supervised command: which it gets before each start.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/logging.h"
#include "supervise/elastic_layouts.h"
#include "supervise/host_choice.h"
#include "supervise/host_probe.h"

namespace trident {

struct NodeOptions {
  std::string hostfile;  // "": the command names its hosts itself
  HostProbe probe;
  double wait_seconds = 600;  // for hosts to come back, when no layout fits those that are there
};

class SupervisedNodes {
 public:
  // `words`: the command, with {hostfile} and {ranks} in it; `layouts`: the configuration's own first; `folder`: where the list of
  // hosts is written. ConfigError: the file cannot be read, a placeholder is missing, or no layout fits all hosts together.
  SupervisedNodes(NodeOptions options, std::vector<std::string> words, std::vector<ElasticLayout> layouts, std::string folder);

  struct Start {
    std::vector<std::string> command;  // empty: there is none
    std::optional<int> stop_signal;    // came meanwhile; without one too few hosts came back in time
  };
  // Asks the hosts, waits until a layout fits, writes the list, and says in one line what was chosen. StorageError.
  Start next(const HeldSignals& signals, const Logger& logger);

  // A rank on that host was the first cause of an end.
  void failed(const std::string& rank_host);

 private:
  std::vector<HostSlots> hosts(const Logger& logger);

  NodeOptions options_;
  std::vector<std::string> words_;
  std::vector<ElasticLayout> layouts_;
  std::string folder_;
  std::vector<HostSlots> known_;  // as the file named them when it was last legal
  HostFailures failures_;
};

}  // namespace trident
