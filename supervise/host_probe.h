// Which hosts can be reached, asked of all of them at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "supervise/supervised_process.h"

namespace trident {

// {name} in a text that a user wrote: every placeholder is replaced; what was put in is not looked at again.
using Placeholders = std::vector<std::pair<std::string_view, std::string>>;  // "{host}" -> what stands there
std::string with_placeholders(std::string_view text, const Placeholders& values);

struct HostProbe {
  int port = 22;        // that a TCP connection is made to, unless there is a
  std::string command;  // for sh, in which {host} stands for the host's name; reachable when it ends with 0. "": connect
  double seconds = 5;   // for each
};

struct ProbeResult {
  std::vector<std::string> faults;  // by host: why it cannot be reached, in words; "" if it can
  std::optional<int> stop_signal;   // came meanwhile, and ended the probe; faults are empty then
};

// Each host is asked by a process of its own, which is killed when its time is over. This machine is reached without a connection.
// Called while nothing else of this process runs.
ProbeResult probe_hosts(const std::vector<std::string>& hosts, const HostProbe& probe, const HeldSignals& signals);

}  // namespace trident
