#include "train/plan/core_share.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>

#include "core/check.h"

namespace trident {
namespace {

// Ids of the affinity mask, which may be longer than a cpu_set_t: the kernel refuses masks that are shorter than its own.
std::vector<int> affinity() {
  constexpr int kMostCores = 1 << 16;
  std::vector<int> ids;
  for (int cores = CPU_SETSIZE; cores <= kMostCores; cores *= 2) {
    std::vector<cpu_set_t> mask(static_cast<std::size_t>(cores / CPU_SETSIZE));
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    for (int core = 0; core < cores; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, mask.data())) ids.push_back(core);
    }
    break;
  }
  return ids;
}

// The groups of one line of /proc/self/cgroup and all above it, as folders: a quota binds the group and everything below it. A
// container may see its own group under another path, or as the root.
std::vector<std::string> folders_of(const std::string& hierarchy, std::string group) {
  if (group == "/") group.clear();
  std::vector<std::string> folders;
  for (;; group.resize(group.rfind('/'))) {
    folders.push_back(hierarchy + group);
    if (group.empty()) return folders;
  }
}

std::optional<double> quota_of(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::ifstream file(folder + "/cpu.max"); file >> quota >> period && quota > 0 && period > 0)
    return quota / period;  // "max 100000": none
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;  // -1: none
  return std::nullopt;
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<double> control_group_quota(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  std::optional<double> least;
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", or of version 1 "4:cpu,cpuacct:/docker/1f"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    std::vector<std::string> hierarchies;
    if (controllers.empty())
      hierarchies = {"", "/unified"};
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      hierarchies = {"/" + controllers, "/cpu"};
    for (const std::string& hierarchy : hierarchies) {
      for (const std::string& folder : folders_of(root + "/sys/fs/cgroup" + hierarchy, group))
        least = smaller(least, quota_of(folder));
    }
  }
  return least;
}

}  // namespace

UsableCores usable_cores_of_this_process(const std::string& root) { return {affinity(), control_group_quota(root)}; }

std::string number_ranges(std::span<const int> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (j > i) text += fmt::format("-{}", numbers[j]);
    i = j + 1;
  }
  return text;
}

std::vector<int> numbers_in(std::string_view ranges) {
  std::vector<int> numbers;
  const char *at = ranges.data(), *const end = at + ranges.size();
  const auto number = [&] {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    TRIDENT_CHECK(error == std::errc() && value >= 0, "\"{}\" is not a list of numbers", ranges);
    at = next;
    return value;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') ++at, last = number();
    for (int n = first; n <= last; ++n) numbers.push_back(n);
    if (at == end) break;
    TRIDENT_CHECK(*at == ',' && at + 1 != end, "\"{}\" is not a list of numbers", ranges);
    ++at;
  }
  return numbers;
}

int CoreShare::at_once() const {
  const int most = quota ? static_cast<int>(std::min<double>(cores, std::floor(*quota))) : cores;
  return std::max(1, most);
}

int CoreShare::threads() const { return std::max(1, at_once() / std::max(1, ranks)); }

CoreShare share_cores(std::span<const UsableCores> processes, int ranks) {
  CoreShare share;
  std::set<int> together;
  for (const UsableCores& process : processes) {
    together.insert(process.ids.begin(), process.ids.end());
    share.quota = smaller(share.quota, process.quota);
  }
  share.cores = std::max(1, static_cast<int>(together.size()));  // a kernel that does not say has one
  share.ranks = ranks;
  return share;
}

std::string threads_line(const CoreShare& share) {
  const bool limited = share.at_once() < share.cores;
  return fmt::format("{} per rank: {}{} of {} for {}", counted(share.threads(), "thread"),
                     limited ? fmt::format("a CPU quota of {:.3g} on ", *share.quota) : "", counted(share.cores, "core"),
                     share.node, counted(share.ranks, "rank"));
}

}  // namespace trident
