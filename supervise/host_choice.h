// On which hosts a run goes on, and in which layout: the decision alone, without processes and clocks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "supervise/elastic_layouts.h"
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

}  // namespace trident
