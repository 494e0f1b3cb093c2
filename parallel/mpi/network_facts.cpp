#include "parallel/mpi/network_facts.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace trident {

namespace {

// The first line of a file of /sys; empty if there is none.
std::string line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The entries of a folder, sorted; none if it cannot be read.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> active_infiniband(const std::string& root) {
  std::vector<std::string> ports;
  for (const auto& device : entries(root + "/sys/class/infiniband")) {
    for (const auto& port : entries(device / "ports")) {
      if (line_of(port / "link_layer") != "InfiniBand" || line_of(port / "state").find("ACTIVE") == std::string::npos) continue;
      ports.push_back(fmt::format("{} port {} ({})", device.filename().string(), port.filename().string(), line_of(port / "rate")));
    }
  }
  return ports;
}

std::vector<std::string> interfaces_up(const std::string& root) {
  constexpr std::string_view kLoopback = "772";  // ARPHRD_LOOPBACK
  std::vector<std::string> interfaces;
  std::error_code error;
  for (const auto& interface : entries(root + "/sys/class/net")) {
    // A part of another interface has no address of its own.
    if (line_of(interface / "operstate") != "up" || line_of(interface / "type") == kLoopback ||
        std::filesystem::exists(interface / "master", error))
      continue;
    double megabits = 0;  // -1 where the driver does not know
    std::ifstream(interface / "speed") >> megabits;
    const std::string name = interface.filename().string();
    interfaces.push_back(megabits > 0 ? fmt::format("{} ({:g} Gb/s)", name, megabits / 1000) : name);
  }
  return interfaces;
}

// Verbs (InfiniBand and its kin), Omni-Path, Slingshot.
std::string open_device(const std::string& root) {
  constexpr std::array<std::string_view, 3> kDevices{"/dev/infiniband/uverbs", "/dev/hfi1_", "/dev/cxi"};
  for (const auto& descriptor : entries(root + "/proc/self/fd")) {
    std::error_code error;
    const std::string file = std::filesystem::read_symlink(descriptor, error).string();
    if (std::any_of(kDevices.begin(), kDevices.end(), [&](std::string_view device) { return file.starts_with(device); }))
      return file;
  }
  return "";
}

}  // namespace

NetworkFacts network_facts(const std::string& root) { return {active_infiniband(root), interfaces_up(root), open_device(root)}; }

std::string describe(const NetworkFacts& facts) {
  if (!facts.open_device.empty()) {
    return fmt::format("between nodes: {}{}{}", facts.open_device, facts.infiniband.empty() ? "" : ", ",
                       fmt::join(facts.infiniband, ", "));
  }
  if (facts.interfaces.empty()) return "between nodes: TCP";
  return fmt::format("between nodes: TCP over {}, as far as btl_tcp_if_include and btl_tcp_if_exclude allow",
                     fmt::join(facts.interfaces, ", "));
}

std::string network_warning(const NetworkFacts& facts) {
  if (facts.infiniband.empty() || !facts.open_device.empty()) return "";
  return fmt::format(
      "InfiniBand is not used: {} {} up, but messages between nodes go over TCP; build against an MPI that has UCX or libfabric "
      "(the MPI inside Trident's packages has neither: docs/install.md)",
      fmt::join(facts.infiniband, ", "), facts.infiniband.size() == 1 ? "is" : "are");
}

}  // namespace trident
