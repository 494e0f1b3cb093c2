// The hosts of a supervised command: which it gets before each start.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/logging.h"
#include "supervise/elastic_layouts.h"
#include "supervise/host_probe.h"
#include "supervise/hostfile.h"

namespace trident {

// Ranks of these hosts were named as the first cause of an end, and when: in seconds, as choose_hosts() has the time.
using HostFailures = std::vector<std::pair<std::string, double>>;

struct HostChoice {
  std::vector<HostSlots> hosts;         // that are taken
  std::optional<ElasticLayout> layout;  // nothing: none fits
  std::string line;                     // what was decided and why, without a full stop
};

// `layouts`: the configuration's own first. It is taken if the slots suffice; else the one of most ranks that fits, the first of
// several. Hosts that cannot be reached (faults[i] not empty) are left out, and so are those that failed twice within an hour,
// unless no layout fits without these.
HostChoice choose_hosts(const std::vector<HostSlots>& hosts, const std::vector<std::string>& faults, const HostFailures& failures,
                        double now, std::span<const ElasticLayout> layouts);

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
