#include "parallel/hierarchical/node_collective.h"

#include <algorithm>
#include <numeric>
#include <utility>

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

void NodeCollective::prepare(const CollectiveCall& call) {
  busy_ = true;
  stage_ = Stage::kPrepared;
  in_part_ = false;
  call_ = call;
  whole_ = fingerprint_of(call, group_->across.global_ranks());
  slice_ = is(CommOperation::kAllGather) ? call.in.num_elements() : call.in.num_elements() / group_->size();
  chunk_ = std::max<std::int64_t>(1, group_->scratch_bytes / (group_->most_rounds * group_->num_nodes() * element()));
}

void NodeCollective::issue() {
  sequence_ = group_->turns.next++;
  stage_ = Stage::kIssued;
}

bool NodeCollective::poll() {
  group_->across.throw_if_failed();
  if (stage_ == Stage::kIssued) {
    if (group_->turns.now != sequence_) return false;
    start();
  }
  while (stage_ != Stage::kDone) {
    if (!in_part_) begin_part();
    if (!poll_part()) return false;
    in_part_ = false;
    next_part();
  }
  ++group_->turns.now;
  return complete();
}

void NodeCollective::start() {
  if (is(CommOperation::kAllGather))
    copy_bytes(call_.out.data() + group_->across.rank() * call_.in.num_bytes(), call_.in.data(), call_.in.num_bytes());
  first_ = 0;
  round_ = 0;
  stage_ = Stage::kBefore;
  if (!has_part()) next_part();
}

// To the next part that concerns this rank, or to the end.
void NodeCollective::next_part() {
  const bool by_rounds = is(CommOperation::kReduceScatter) || is(CommOperation::kAllGather);
  do {
    if (stage_ == Stage::kBefore) {
      stage_ = Stage::kAcross;
      round_ = 0;
    } else if (stage_ == Stage::kAcross) {
      if (!by_rounds || ++round_ >= group_->rounds) stage_ = Stage::kAfter;
    } else {
      first_ += chunk_;
      stage_ = is(CommOperation::kReduceScatter) && first_ < slice_ ? Stage::kBefore : Stage::kDone;
    }
  } while (stage_ != Stage::kDone && !has_part());
}

bool NodeCollective::has_part() const {
  const bool before = stage_ == Stage::kBefore, across = stage_ == Stage::kAcross;
  switch (whole_.operation) {
    case CommOperation::kAllReduce:
    case CommOperation::kBarrier: return !across || is_carrier();
    case CommOperation::kReduceScatter: return before || (across ? round_ < group_->rounds : !group_->is_even());
    case CommOperation::kAllGather: return across ? round_ < group_->rounds : !before || !group_->is_even();
    case CommOperation::kBroadcast: return across ? is_carrier() : before == is_on_roots_node();
    case CommOperation::kAllToAll: return before || across;
    case CommOperation::kSend: case CommOperation::kRecv: break;
  }
  return false;
}

int NodeCollective::lanes() const {
  const bool by_rounds = is(CommOperation::kReduceScatter) || is(CommOperation::kAllGather);
  return by_rounds || call_.in.num_bytes() > group_->across.endpoint().options.small_bytes ? group_->rails : 1;
}

bool NodeCollective::is_on_roots_node() const {
  const std::vector<int>& mine = group_->on_my_node();
  return std::find(mine.begin(), mine.end(), call_.root) != mine.end();
}

void NodeCollective::begin_part() {
  in_part_ = true;
  if (stage_ == Stage::kAcross) return begin_across();
  ConstTensorView operand = call_.in;
  if (stage_ == Stage::kAfter && is(CommOperation::kReduceScatter))
    operand = {group_->scratch, call_.in.dtype(), {group_->most_rounds * group_->num_nodes() * chunk_count()}};
  if (stage_ == Stage::kAfter && is(CommOperation::kAllGather)) operand = call_.out;
  // The current chunk of every slice; slices in one chunk each lie side by side, and go as one: of hundreds that are short many fit
  // into a piece.
  if (stage_ == Stage::kBefore && is(CommOperation::kReduceScatter) && chunk_count() < slice_)
    local_.prepare_part(whole_, operand, *this,
                        PeerStretches{first_ * element(), chunk_count() * element(), slice_ * element(), group_->size()});
  else
    local_.prepare_part(whole_, operand, *this);
  local_.issue_as(sequence_ + 1);
}

void NodeCollective::begin_across() {
  CollectiveCall part = call_;
  std::int64_t slice = 0;
  const int* positions = nullptr;
  switch (whole_.operation) {
    case CommOperation::kAllReduce: case CommOperation::kBroadcast: {
      const IndexRange mine = share(group_->my_index);
      part.out = call_.out.range(mine.begin, mine.size());
      part.in = part.out;
      if (call_.root >= 0) part.root = group_->node_of(call_.root);
      break;
    }
    case CommOperation::kReduceScatter: {
      const int carried = group_->slices_on_rail(round_)[group_->my_node];
      part.in = {sums(round_, 0), call_.in.dtype(), {group_->num_nodes() * chunk_count()}};
      part.out = {sums(round_, group_->my_node), call_.in.dtype(), {carried < 0 ? 0 : chunk_count()}};
      if (carried == group_->across.rank()) part.out = call_.out.range(first_, chunk_count());
      slice = chunk_count();
      positions = group_->nodes_on_rail(round_);
      break;
    }
    case CommOperation::kAllGather:
      slice = slice_;
      positions = group_->slices_on_rail(round_);
      break;
    case CommOperation::kAllToAll:
      across_.prepare_part(call_, whole_, slice_, group_->elsewhere.data());
      return across_.issue_as(sequence_ + 1);
    case CommOperation::kSend: case CommOperation::kRecv: case CommOperation::kBarrier: break;
  }
  rail_.prepare_part(part, whole_, slice, positions);
  rail_.issue_as(sequence_ + 1);
}

bool NodeCollective::poll_part() {
  if (stage_ != Stage::kAcross) return local_.poll();
  return is(CommOperation::kAllToAll) ? across_.poll() : rail_.poll();
}

std::int64_t NodeCollective::chunk_count() const { return std::min(chunk_, slice_ - first_); }

std::byte* NodeCollective::sums(int round, int node) const {
  return group_->scratch + (round * group_->num_nodes() + node) * chunk_count() * element();
}

void NodeCollective::work(const PeerOperands& operands) {
  const bool before = stage_ == Stage::kBefore;
  switch (whole_.operation) {
    case CommOperation::kAllReduce: return before ? add_share(operands) : take_shares(operands);
    case CommOperation::kReduceScatter: return before ? add_slices(operands) : take_sum(operands);
    case CommOperation::kAllGather: return before ? take_carried(operands) : take_gathered(operands);
    case CommOperation::kBroadcast: return before ? take_from_root(operands) : take_shares(operands);
    case CommOperation::kAllToAll: return take_slices(operands);
    case CommOperation::kSend: case CommOperation::kRecv: case CommOperation::kBarrier: return;
  }
}

void NodeCollective::add_share(const PeerOperands& operands) {
  if (is_carrier() && group_->num_local() > 1) {
    const IndexRange mine = share(group_->my_index);
    add(operands, mine.begin, mine.size(), call_.out.data() + mine.begin * element());
  }
}

// The sum of `count` elements from `first` of all operands goes to `out`.
void NodeCollective::add(const PeerOperands& operands, std::int64_t first, std::int64_t count, std::byte* out) {
  const IndexRange part = operands.within(first * element(), (first + count) * element());
  if (part.size() == 0) return;
  std::vector<const std::byte*>& sources = group_->sources;
  for (std::size_t i = 0; i < sources.size(); ++i) sources[i] = operands.at(i, part.begin);
  std::byte* const to = out + (part.begin - first * element());
  reduce_in_rank_order(call_.in.dtype(), whole_.reduce, {&to, 1}, sources, part.size() / element());
}

// `bytes` bytes from `from` of member `index`'s operand go to `out`.
void NodeCollective::take(const PeerOperands& operands, int index, std::int64_t from, std::int64_t bytes, std::byte* out) {
  const IndexRange part = operands.within(from, from + bytes);
  if (part.size() > 0) copy_bytes(out + (part.begin - from), operands.at(static_cast<std::size_t>(index), part.begin), part.size());
}

void NodeCollective::take_shares(const PeerOperands& operands) {
  for (int lane = 0; lane < lanes(); ++lane) {
    if (lane == group_->my_index) continue;
    const std::int64_t from = share(lane).begin * element();
    take(operands, lane, from, share(lane).size() * element(), call_.out.data() + from);
  }
}

void NodeCollective::take_from_root(const PeerOperands& operands) {
  const std::vector<int>& mine = group_->on_my_node();
  const auto root = static_cast<int>(std::find(mine.begin(), mine.end(), call_.root) - mine.begin());
  if (root != group_->my_index) take(operands, root, 0, call_.out.num_bytes(), call_.out.data());
}

void NodeCollective::add_slices(const PeerOperands& operands) {
  for (int round = 0; round < group_->rounds; ++round)
    for (int node = 0; node < group_->num_nodes(); ++node)
      if (const int slice = group_->slices_on_rail(round)[node]; slice >= 0)
        add(operands, slice * slice_ + first_, chunk_count(), sums(round, node));
}

// Takes what a carrier has summed for this rank, which is no carrier.
void NodeCollective::take_sum(const PeerOperands& operands) {
  if (group_->my_index < group_->rails) return;
  const std::int64_t from = sums(group_->my_index / group_->rails, group_->my_node) - group_->scratch;
  take(operands, group_->carrier(group_->my_index), from, chunk_count() * element(), call_.out.data() + first_ * element());
}

void NodeCollective::take_carried(const PeerOperands& operands) {
  if (group_->my_index >= group_->rails) return;
  const std::int64_t bytes = call_.in.num_bytes();
  for (int index = group_->my_index + group_->rails; index < group_->num_local(); index += group_->rails)
    take(operands, index, 0, bytes, call_.out.data() + at(group_->on_my_node(), index) * bytes);
}

void NodeCollective::take_gathered(const PeerOperands& operands) {
  const std::int64_t bytes = slice_ * element();
  for (const std::vector<int>& node : group_->members)
    for (std::size_t index = 0; index < node.size(); ++index) {
      const int carrier = group_->carrier(static_cast<int>(index));
      if (carrier != group_->my_index && node[index] != group_->across.rank())
        take(operands, carrier, node[index] * bytes, bytes, call_.out.data() + node[index] * bytes);
    }
}

void NodeCollective::take_slices(const PeerOperands& operands) {
  const std::int64_t bytes = slice_ * element();
  for (int i = 0; i < group_->num_local(); ++i)
    take(operands, i, group_->across.rank() * bytes, bytes, call_.out.data() + at(group_->on_my_node(), i) * bytes);
}

std::string NodeCollective::describe() const {
  const std::string call = fmt::format("{} #{} over {}", to_string(whole_.operation), sequence_ + 1, group_->across.name());
  if (stage_ == Stage::kPrepared) return call + ": not issued";
  if (stage_ == Stage::kIssued) return fmt::format("{}: an earlier operation of {} is not complete", call, group_->across.name());
  if (!in_part_) return call;
  if (stage_ == Stage::kBefore) return local_.describe();
  if (stage_ == Stage::kAfter) return local_.describe() + " (awaiting other nodes)";
  return is(CommOperation::kAllToAll) ? across_.describe() : rail_.describe() + " (on behalf of a node)";
}

}  // namespace trident
