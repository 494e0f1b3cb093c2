#include "supervise/supervised_nodes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "supervise/supervision.h"

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

namespace {

constexpr std::string_view kHostfile = "{hostfile}", kRanks = "{ranks}";

}  // namespace

SupervisedNodes::SupervisedNodes(NodeOptions options, std::vector<std::string> words, std::vector<ElasticLayout> layouts,
                                 std::string folder)
    : options_(std::move(options)),
      words_(std::move(words)),
      layouts_(std::move(layouts)),
      folder_(std::move(folder)),
      known_(read_hostfile(options_.hostfile)) {
  for (const std::string_view placeholder : {kHostfile, kRanks})
    if (std::ranges::none_of(words_, [&](const std::string& word) { return word.find(placeholder) != std::string::npos; }))
      throw ConfigError(
          fmt::format("trident supervise: --nodes-from: the command has no {}; write it as in mpirun --hostfile {{hostfile}} -np "
                      "{{ranks}} trident train ...",
                      placeholder));
  const ElasticLayout& smallest = *std::ranges::min_element(layouts_, {}, &ElasticLayout::ranks);
  if (smallest.ranks > slots_of(known_))
    throw ConfigError(
        fmt::format("--nodes-from {}: {} in all, and the smallest layout, {}, has {}; name more hosts, or list a "
                    "smaller one in elastic",
                    options_.hostfile, counted(slots_of(known_), "slot"), smallest.text, counted(smallest.ranks, "rank")));
}

std::vector<HostSlots> SupervisedNodes::hosts(const Logger& logger) {
  try {
    known_ = read_hostfile(options_.hostfile);
  } catch (const Error& error) {
    logger.warning("trident supervise: {}; asking the hosts that it named before", error.what());
  }
  return known_;
}

SupervisedNodes::Start SupervisedNodes::next(const HeldSignals& signals, const Logger& logger) {
  const double give_up = monotonic_seconds() + options_.wait_seconds;
  std::string said;
  for (int tries = 1;; ++tries) {
    const std::vector<HostSlots> all = hosts(logger);
    std::vector<std::string> names;
    for (const HostSlots& host : all) names.push_back(host.name);
    const ProbeResult probed = probe_hosts(names, options_.probe, signals);
    if (probed.stop_signal) return {{}, probed.stop_signal};
    const HostChoice choice = choose_hosts(all, probed.faults, failures_, monotonic_seconds(), layouts_);
    if (choice.layout) {
      logger.info("trident supervise: {}", choice.line);
      create_folder(folder_);
      const std::string path = folder_ + "/hostfile";
      write_file(path, hostfile_text(choice.hosts));
      Start start;
      for (const std::string& word : words_)
        start.command.push_back(with_placeholders(word, {{kHostfile, path}, {kRanks, std::to_string(choice.layout->ranks)}}));
      if (!choice.layout->setting.empty()) start.command.insert(start.command.end(), {"--set", choice.layout->setting});
      return start;
    }
    const double left = give_up - monotonic_seconds();
    if (left <= 0) {
      logger.error("trident supervise: {}; waited {} s for hosts (--wait-for-hosts); exit code {}", choice.line,
                   options_.wait_seconds, exit_status(ExitCode::kCommunication));
      return {};
    }
    if (choice.line != std::exchange(said, choice.line))
      logger.warning("trident supervise: {}; waiting for hosts to come back", choice.line);
    const std::optional<int> signal = wait_for_signal(signals, std::min(left, back_off_seconds(tries)));
    if (signal) return {{}, signal};
  }
}

void SupervisedNodes::failed(const std::string& rank_host) { failures_.emplace_back(rank_host, monotonic_seconds()); }

}  // namespace trident
