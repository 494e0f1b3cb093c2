#include "supervise/host_choice.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "core/counted.h"

namespace trident {
namespace {

constexpr double kHour = 3600;
constexpr int kFailuresOfABadHost = 2;  // within an hour; then it is left out
constexpr std::size_t kNamed = 8;  // hosts in a line

const ElasticLayout* layout_for(std::span<const ElasticLayout> layouts, int slots) {
  if (layouts.front().ranks <= slots) return &layouts.front();
  const ElasticLayout* best = nullptr;
  for (const ElasticLayout& layout : layouts)
    if (layout.ranks <= slots && (best == nullptr || layout.ranks > best->ranks)) best = &layout;
  return best;
}

std::string listed(std::vector<std::string> reasons) {
  const std::size_t more = reasons.size() > kNamed ? reasons.size() - kNamed : 0;
  reasons.resize(reasons.size() - more);
  return fmt::format("{}{}", fmt::join(reasons, "; "), more == 0 ? "" : fmt::format("; and {} more", more));
}

}  // namespace

HostChoice choose_hosts(const std::vector<HostSlots>& hosts, const std::vector<std::string>& faults, const HostFailures& failures,
                        double now, std::span<const ElasticLayout> layouts) {
  TRIDENT_CHECK(hosts.size() == faults.size() && !layouts.empty());
  std::vector<HostSlots> good, reachable;
  std::vector<std::string> unreachable, bad;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto failed = std::ranges::count_if(failures, [&](const auto& failure) {
      return now - failure.second < kHour && is_same_host(hosts[i].name, failure.first);
    });
    if (!faults[i].empty()) {
      unreachable.push_back(fmt::format("{} is left out: {}", hosts[i].name, faults[i]));
      continue;
    }
    reachable.push_back(hosts[i]);
    if (failed < kFailuresOfABadHost)
      good.push_back(hosts[i]);
    else
      bad.push_back(fmt::format("{} failed {} times within an hour", hosts[i].name, failed));
  }
  HostChoice choice{.hosts = good, .layout = {}, .line = {}};
  const ElasticLayout* layout = layout_for(layouts, slots_of(good));
  std::vector<std::string> reasons = unreachable;
  const bool taken_back = layout == nullptr && !bad.empty();
  if (taken_back) {
    choice.hosts = reachable;
    layout = layout_for(layouts, slots_of(reachable));
  }
  for (const std::string& reason : bad)
    reasons.push_back(reason + (taken_back ? " and is used all the same: no layout fits without it" : " and is left out"));
  choice.line = fmt::format("{} of {} with {}", choice.hosts.size(), counted(std::ssize(hosts), "host"),
                            counted(slots_of(choice.hosts), "slot"));
  if (!reasons.empty()) choice.line += "; " + listed(std::move(reasons));
  if (layout == nullptr) {
    choice.line += fmt::format("; no layout fits, the smallest has {}",
                               counted(std::ranges::min(layouts, {}, &ElasticLayout::ranks).ranks, "rank"));
    return choice;
  }
  choice.layout = *layout;
  choice.line += fmt::format("; layout {} on {}", layout->text, counted(layout->ranks, "rank"));
  if (layout != &layouts.front()) choice.line += fmt::format(" instead of {} on {}", layouts.front().text, layouts.front().ranks);
  return choice;
}

}  // namespace trident
