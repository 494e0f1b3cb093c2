#include "parallel/available_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

namespace trident {

namespace {

// The number in a file that has nothing else ("max" is none), or the one behind `key`.
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> number_behind(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;)
    if (std::int64_t number = 0; word == key && file >> number) return number;
  return std::nullopt;
}

// The path of this process's control group: "/system.slice/slurmstepd.scope/job_7"; empty for the root or where there are none.
std::string control_group(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) return line.size() > 4 ? line.substr(3) : "";
  return "";
}

// Folders of this process's control group and those above it: a limit binds the group and everything below it. A container sees its
// own group as the root.
std::vector<std::string> control_group_folders(const std::string& root) {
  std::vector<std::string> folders;
  for (std::string group = control_group(root);; group.resize(group.rfind('/'))) {
    folders.push_back(root + "/sys/fs/cgroup" + group);
    if (group.empty()) return folders;
  }
}

}  // namespace

std::int64_t control_group_limit(const std::string& root) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::string& folder : control_group_folders(root))
    least = std::min(least, number_in(folder + "/memory.max").value_or(least));
  return least;
}

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory least{std::numeric_limits<std::int64_t>::max(), "this node"};
  if (const auto kilobytes = number_behind(root + "/proc/meminfo", "MemAvailable:")) least.bytes = *kilobytes * 1024;
  for (const std::string& folder : control_group_folders(root)) {
    const auto most = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
    if (most && used) {
      const std::int64_t left = *most - *used + number_behind(folder + "/memory.stat", "inactive_file").value_or(0);
      if (left < least.bytes) least = {std::max<std::int64_t>(left, 0), "this job's control group"};
    }
  }
  return least;
}

}  // namespace trident
