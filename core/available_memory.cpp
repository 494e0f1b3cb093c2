#include "core/available_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>
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

// A control group's memory, in bytes.
struct GroupMemory {
  std::optional<std::int64_t> most, used, cache;  // cache: what the kernel gives up before it kills
};

GroupMemory group_memory_v1(const std::string& folder) {
  constexpr std::int64_t kNone = std::int64_t{1} << 62;  // no limit is a number here, the largest of whole pages
  std::optional<std::int64_t> most = number_in(folder + "/memory.limit_in_bytes");
  if (most && *most >= kNone) most.reset();
  return {most, number_in(folder + "/memory.usage_in_bytes"), number_behind(folder + "/memory.stat", "total_inactive_file")};
}

GroupMemory group_memory_v2(const std::string& folder) {
  return {number_in(folder + "/memory.max"), number_in(folder + "/memory.current"),
          number_behind(folder + "/memory.stat", "inactive_file")};
}

// The path of a control group from a line of /proc/self/cgroup, "0::/system.slice/job_7" or "9:cpu,memory:/job_7"; nothing if the
// line is of a tree without memory. The root is empty, and so is what lies above the tree that a container sees.
struct GroupPath {
  std::string path;
  bool v1 = false;
};
std::optional<GroupPath> memory_group(const std::string& line) {
  const std::size_t controllers = line.find(':') + 1, path = line.find(':', controllers) + 1;
  if (controllers == 0 || path == 0) return std::nullopt;
  const std::string list = fmt::format(",{},", line.substr(controllers, path - 1 - controllers));
  const bool v1 = list.find(",memory,") != std::string::npos;
  if (!v1 && !line.starts_with("0::")) return std::nullopt;
  std::string group = line.substr(path);
  if (group == "/" || group.find("/..") != std::string::npos) group.clear();
  return GroupPath{group, v1};
}

// The control groups that this process lies in, from its own up: a limit binds the group and everything below it. A container sees
// its own group as the root, under whatever name the machine has for it.
std::vector<GroupMemory> control_groups(const std::string& root) {
  std::vector<GroupMemory> groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::optional<GroupPath> found = memory_group(line);
    if (!found) continue;
    for (std::string group = found->path;; group.resize(group.rfind('/'))) {
      groups.push_back(found->v1 ? group_memory_v1(root + "/sys/fs/cgroup/memory" + group)
                                 : group_memory_v2(root + "/sys/fs/cgroup" + group));
      if (group.find('/') == std::string::npos) break;
    }
  }
  return groups;
}

}  // namespace

std::int64_t control_group_limit(const std::string& root) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const GroupMemory& group : control_groups(root)) least = std::min(least, group.most.value_or(least));
  return least;
}

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory least{std::numeric_limits<std::int64_t>::max(), "this node"};
  if (const auto kilobytes = number_behind(root + "/proc/meminfo", "MemAvailable:")) least.bytes = *kilobytes * 1024;
  for (const GroupMemory& group : control_groups(root)) {
    if (!group.most || !group.used) continue;
    const std::int64_t left = *group.most - *group.used + group.cache.value_or(0);
    if (left < least.bytes) least = {std::max<std::int64_t>(left, 0), "this job's control group"};
  }
  return least;
}

std::optional<ResidentMemory> resident_memory(const std::string& path) {
  const std::optional<std::int64_t> own = number_behind(path, "RssAnon:"), shared = number_behind(path, "RssShmem:"),
                                    files = number_behind(path, "RssFile:");
  if (!own || !shared || !files) return std::nullopt;
  return ResidentMemory{.own = 1024 * *own, .shared = 1024 * *shared, .files = 1024 * *files};
}

std::optional<std::int64_t> resident_memory_bytes() {
  const std::optional<ResidentMemory> memory = resident_memory();
  return memory ? std::optional(memory->own + memory->shared + memory->files) : std::nullopt;
}

}  // namespace trident
