#include "parallel/hierarchical/node_group.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "core/at.h"
#include "core/check.h"
#include "core/int_math.h"

namespace trident {

namespace {

constexpr std::int64_t kLargestElement = 8;

// Group ranks by node, nodes in the order of their first.
std::vector<std::vector<int>> by_node(const WireGroup& group) {
  std::vector<std::vector<int>> members;
  std::vector<int> numbers;  // of the nodes found so far
  for (int r = 0; r < group.size(); ++r) {
    const int node = at(group.endpoint().nodes, group.global_rank_of(r));
    const auto found = static_cast<std::size_t>(std::find(numbers.begin(), numbers.end(), node) - numbers.begin());
    if (found == numbers.size()) {
      numbers.push_back(node);
      members.emplace_back();
    }
    members[found].push_back(r);
  }
  return members;
}

}  // namespace

int local_rank_of(const std::vector<int>& nodes, int global_rank) {
  return static_cast<int>(std::count(nodes.begin(), nodes.begin() + global_rank, at(nodes, global_rank)));
}

NodeGroup::NodeGroup(std::shared_ptr<WireEndpoint> endpoint, const std::string& name, int rank,
                     const std::vector<int>& global_ranks, std::int32_t channel, GroupBlock block)
    : across(endpoint, name, rank, global_ranks, channel, WireGroup::Staging::kNone), members(by_node(across)) {
  std::size_t least = members[0].size(), most = 0;
  for (std::size_t node = 0; node < members.size(); ++node) {
    const auto found = std::find(members[node].begin(), members[node].end(), rank);
    least = std::min(least, members[node].size());
    most = std::max(most, members[node].size());
    if (found == members[node].end()) continue;
    my_node = static_cast<int>(node);
    my_index = static_cast<int>(found - members[node].begin());
  }
  rails = static_cast<int>(least);
  most_rounds = static_cast<int>(ceil_div(static_cast<std::int64_t>(most), rails));

  std::vector<int> local_ranks, on_node;
  for (const int r : on_my_node()) {
    on_node.push_back(across.global_rank_of(r));
    local_ranks.push_back(local_rank_of(endpoint->nodes, on_node.back()));
  }
  local = SharedGroup(endpoint->node, endpoint->progress, block, name, my_index, std::move(local_ranks), std::move(on_node));
  sources.resize(local.local_ranks.size());
  elsewhere.resize(static_cast<std::size_t>(across.size()));
  std::iota(elsewhere.begin(), elsewhere.end(), 0);
  for (const int r : on_my_node()) at(elsewhere, r) = -1;

  scratch_bytes = std::max(endpoint->options.staging_bytes, most_rounds * num_nodes() * kLargestElement);
  if (is_even()) own_scratch_.reset(new std::byte[static_cast<std::size_t>(scratch_bytes)]);
  else shared_scratch_ = endpoint->allocate(scratch_bytes, name + " (sums of a node)");
  scratch = is_even() ? own_scratch_.get() : shared_scratch_.data();
  if (my_index < rails) lay_rail(std::move(endpoint), channel + 2, static_cast<int>(most));
}

void NodeGroup::lay_rail(std::shared_ptr<WireEndpoint> endpoint, std::int32_t channel, int most_members) {
  rounds = static_cast<int>(ceil_div(most_members - my_index, rails));
  std::vector<int> global_ranks;
  for (const std::vector<int>& node : members)
    global_ranks.push_back(across.global_rank_of(at(node, my_index)));
  rail = std::make_unique<WireGroup>(std::move(endpoint), across.name(), my_node, std::move(global_ranks), channel);
  for (int round = 0; round < rounds; ++round)
    for (int node = 0; node < num_nodes(); ++node) {
      const std::vector<int>& ranks = at(members, node);
      const auto index = static_cast<std::size_t>(my_index + round * rails);
      slices.push_back(index < ranks.size() ? ranks[index] : -1);
      places.push_back(index < ranks.size() ? node : -1);
    }
}

int NodeGroup::node_of(int rank) const {
  for (std::size_t node = 0; node < members.size(); ++node)
    if (std::find(members[node].begin(), members[node].end(), rank) != members[node].end()) return static_cast<int>(node);
  throw InternalError(fmt::format("rank {} is on no node of {}", rank, across.name()));
}

}  // namespace trident
