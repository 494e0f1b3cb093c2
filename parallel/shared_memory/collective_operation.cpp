#include "parallel/shared_memory/collective_operation.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/at.h"
#include "core/int_math.h"
#include "core/tsan_announce.h"
#include "device/no_allocation.h"
#include "parallel/communicator/rank_order_sum.h"

namespace trident {

namespace {

void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

void CollectiveOperation::prepare(const CollectiveCall& call) {
  busy_ = true;
  phase_ = Phase::kPrepared;
  root_ = call.root;
  fingerprint_ = fingerprint_of(call, group_->global_ranks);
  out_ = call.out;
  in_ = call.in;
  work_ = nullptr;
  stretches_ = {.bytes = in_.num_bytes()};
  piece_ = 0;
}

void CollectiveOperation::prepare_part(const CommFingerprint& whole, ConstTensorView operand, PeerWork& work,
                                       const std::optional<PeerStretches>& stretches) {
  busy_ = true;
  phase_ = Phase::kPrepared;
  fingerprint_ = whole;
  in_ = operand;
  work_ = &work;
  stretches_ = stretches.value_or(PeerStretches{.bytes = operand.num_bytes()});
  piece_ = 0;
}

void CollectiveOperation::issue() { issue_as(*next_sequence_ + 1); }

void CollectiveOperation::issue_as(std::uint64_t number) {
  sequence_ = (*next_sequence_)++;
  number_ = number;
  phase_ = Phase::kIssued;
}

bool CollectiveOperation::poll() {
  group_->world->throw_if_failed(group_->local_rank());
  if (group_->size() == 1) {
    move_alone();
    return complete();
  }
  if (phase_ == Phase::kIssued) {
    if (!slot_is_free()) return false;
    post();
    phase_ = Phase::kPosted;
  }
  if (phase_ == Phase::kPosted) {
    if (!everyone_arrived()) return false;
    for (int r = 0; r < group_->size(); ++r) check_agreement_with(r);
    if (needs_stages()) {
      fill_stage();
      phase_ = Phase::kStaged;
    } else if (is_shared_out()) {
      reduce_shares();
      phase_ = Phase::kSharedOut;
    } else {
      const SharedWorld::Touching touching(*group_->world, group_->local_rank());
      move(whole_operands());
      finish();
      phase_ = Phase::kMoved;
      if (!is_inside_peers()) return complete();
    }
  }
  if (phase_ == Phase::kSharedOut && slot().filled.load(std::memory_order_acquire) < static_cast<std::uint64_t>(group_->size()))
    return false;
  if (phase_ == Phase::kStaged && !advance_stages()) return false;
  if (phase_ == Phase::kSharedOut || phase_ == Phase::kStaged) {
    finish();
    return complete();
  }
  return slot().finished.load(std::memory_order_acquire) >= complete_at() && complete();
}

bool CollectiveOperation::is_inside_peers() const {
  if (is_inline()) return false;
  if (work_ != nullptr) return true;
  return fingerprint_.operation != CommOperation::kBroadcast || group_->rank == root_;
}

std::uint64_t CollectiveOperation::complete_at() const {
  return (sequence_ / kSlots + 1) * static_cast<std::uint64_t>(group_->size());
}

// Waiting is announced before the second look, and the last rank to finish looks for an announcement after it has counted itself:
// one of the two sees the other.
bool CollectiveOperation::slot_is_free() const {
  const std::uint64_t free_at = complete_at() - static_cast<std::uint64_t>(group_->size());
  if (slot().finished.load(std::memory_order_acquire) == free_at) return true;
  slot().reuse_awaited.store(1);
  return slot().finished.load() == free_at;
}

void CollectiveOperation::post() {
  announce_read(in_);
  CollectivePost& mine = post_of(group_->rank);
  mine.fingerprint = fingerprint_;
  PeerMemory& memory = group_->world->memory();
  if (is_inline()) {
    copy(group_->block.stage(sequence_, group_->rank), in_.data(), in_.num_bytes());
  } else {
    mine.operand = memory.reaches(in_.data(), in_.num_bytes()) ? memory.post(in_.data()) : kUnreachable;
    // Nobody counts before all have arrived, and all that counted have finished.
    slot().filled.store(0, std::memory_order_relaxed);
    slot().taken.store(0, std::memory_order_relaxed);
  }
  mine.posted.store(sequence_ + 1, std::memory_order_release);
  if (slot().arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == complete_at()) {
    group_->ring_others();
    return;
  }
  // Two ranks that disagree are told at once, whether or not the others ever come.
  for (int r = 0; r < group_->size(); ++r)
    if (post_of(r).posted.load(std::memory_order_acquire) == sequence_ + 1) check_agreement_with(r);
}

bool CollectiveOperation::everyone_arrived() const { return slot().arrived.load(std::memory_order_acquire) >= complete_at(); }

void CollectiveOperation::check_agreement_with(int rank) const {
  const CommFingerprint& theirs = post_of(rank).fingerprint;
  if (group_->checks == CollectiveChecks::kOff || theirs == fingerprint_) [[likely]]
    return;
  const AllocationExemption message;
  const IssuedCall mine{fingerprint_, number_, group_->global_rank()}, other{theirs, number_, group_->global_rank_of(rank)};
  const bool mine_first = group_->rank > rank;
  group_->world->raise(group_->local_rank(), disagreement(group_->name, mine_first ? mine : other, mine_first ? other : mine));
}

// Whether ranks take shares of the work as they come.
bool CollectiveOperation::is_shared_out() const {
  return work_ == nullptr && fingerprint_.operation == CommOperation::kAllReduce && !is_inline();
}

bool CollectiveOperation::needs_stages() const {
  if (is_inline()) return false;
  if (work_ == nullptr && fingerprint_.operation == CommOperation::kBroadcast) return post_of(root_).operand == kUnreachable;
  for (int r = 0; r < group_->size(); ++r)
    if (post_of(r).operand == kUnreachable) return true;
  return false;
}

PeerOperands CollectiveOperation::whole_operands() const {
  std::vector<const std::byte*>& sources = group_->sources;
  for (int r = 0; r < group_->size(); ++r) {
    const bool is_read = work_ != nullptr || fingerprint_.operation != CommOperation::kBroadcast || r == root_;
    at(sources, r) = is_inline() ? group_->block.stage(sequence_, r)
                     : is_read   ? group_->world->memory().reach(post_of(r).operand)
                                 : nullptr;
  }
  return {sources, 0, in_.num_bytes()};
}

std::uint64_t CollectiveOperation::pieces_of_a_stretch() const {
  return static_cast<std::uint64_t>(ceil_div(stretches_.bytes, kPieceBytes));
}

PeerOperands CollectiveOperation::staged_piece() const {
  const std::int64_t stretch = stretches_.first + static_cast<std::int64_t>(piece_ / pieces_of_a_stretch()) * stretches_.stride;
  const std::int64_t begin = stretch + static_cast<std::int64_t>(piece_ % pieces_of_a_stretch()) * kPieceBytes;
  std::vector<const std::byte*>& sources = group_->sources;
  for (int r = 0; r < group_->size(); ++r) at(sources, r) = group_->block.stage(sequence_, r) + piece_ % 2 * kPieceBytes;
  return {sources, begin, std::min(begin + kPieceBytes, stretch + stretches_.bytes)};
}

// This half of the stage holds the piece before the last. Everybody has done its share of that: whoever counted itself for the last
// piece had, and all have.
void CollectiveOperation::fill_stage() {
  const PeerOperands piece = staged_piece();
  copy(group_->block.stage(sequence_, group_->rank) + piece_ % 2 * kPieceBytes, in_.data() + piece.begin, piece.end - piece.begin);
  const auto all = (piece_ + 1) * static_cast<std::uint64_t>(group_->size());
  if (slot().filled.fetch_add(1) + 1 == all) group_->ring_others();
}

bool CollectiveOperation::advance_stages() {
  while (slot().filled.load(std::memory_order_acquire) >= (piece_ + 1) * static_cast<std::uint64_t>(group_->size())) {
    move(staged_piece());
    group_->progress->note_advance();
    if (++piece_ == num_pieces()) return true;
    fill_stage();
  }
  return false;
}

void CollectiveOperation::move(const PeerOperands& operands) {
  if (work_ != nullptr) return work_->work(operands);
  switch (fingerprint_.operation) {
    case CommOperation::kAllReduce:
    case CommOperation::kReduceScatter: return reduce_and_spread(operands, group_->rank);
    case CommOperation::kAllGather: return copy_slices(operands, 0);
    case CommOperation::kAllToAll: return copy_slices(operands, in_.num_bytes() / group_->size() * group_->rank);
    case CommOperation::kBroadcast:
      if (group_->rank != root_)
        copy(out_.data() + operands.begin, operands.at(static_cast<std::size_t>(root_), operands.begin),
             operands.end - operands.begin);
      return;
    case CommOperation::kSend: case CommOperation::kRecv: case CommOperation::kBarrier: return;
  }
}

// A rank that comes late finds its share done, where ranks share cores, and need not sleep once more.
void CollectiveOperation::reduce_shares() {
  const SharedWorld::Touching touching(*group_->world, group_->local_rank());
  const auto size = static_cast<std::uint64_t>(group_->size());
  for (std::uint64_t share = slot().taken.fetch_add(1); share < size; share = slot().taken.fetch_add(1)) {
    reduce_and_spread(whole_operands(), static_cast<int>(share));
    if (slot().filled.fetch_add(1) + 1 == size) group_->ring_others();
  }
}

// An all_reduce of operands that were copied is done by every rank for itself. Otherwise this rank reduces a share of the elements,
// which nobody else touches in any buffer, and an all_reduce writes the result into every rank's buffer while it is in cache.
void CollectiveOperation::reduce_and_spread(const PeerOperands& operands, int share_number) {
  std::vector<std::byte*>& outs = group_->outs;
  const std::int64_t element = size_of(in_.dtype());
  const bool copied = is_inline() || phase_ == Phase::kStaged;
  outs.clear();
  IndexRange share{operands.begin, operands.end};
  if (fingerprint_.operation == CommOperation::kReduceScatter) {
    const std::int64_t slice = group_->rank * out_.num_bytes();
    share = operands.within(slice, slice + out_.num_bytes());
    outs.push_back(out_.data() + (share.begin - slice));
  } else if (copied) {
    outs.push_back(out_.data() + share.begin);
  } else {
    const IndexRange mine = share_of(in_.num_elements(), in_.dtype(), group_->size(), share_number);
    share = {mine.begin * element, mine.end * element};
    for (int i = 0; i < group_->size(); ++i) {
      const int r = (group_->rank + i) % group_->size();
      outs.push_back(group_->world->memory().reach(post_of(r).operand) + share.begin);
    }
  }
  if (share.size() == 0) return;
  for (std::size_t r = 0; r < operands.size(); ++r) group_->sources[r] = operands.at(r, share.begin);
  reduce_in_rank_order(in_.dtype(), fingerprint_.reduce, outs, group_->sources, share.size() / element);
}

// Slice r of `out` from rank r's operand.
void CollectiveOperation::copy_slices(const PeerOperands& operands, std::int64_t source_offset) {
  const std::int64_t bytes = out_.num_bytes() / group_->size();
  const IndexRange part = operands.within(source_offset, source_offset + bytes);
  for (int i = 0; i < group_->size(); ++i) {  // each begins with itself, so that ranks do not queue up at one peer's memory
    const int r = (group_->rank + i) % group_->size();
    copy(out_.data() + r * bytes + (part.begin - source_offset), operands.at(static_cast<std::size_t>(r), part.begin), part.size());
  }
}

void CollectiveOperation::finish() {
  post_of(group_->rank).finished.store(sequence_ + 1, std::memory_order_release);
  if (slot().finished.fetch_add(1) + 1 != complete_at()) return;
  const bool reuse_awaited = slot().reuse_awaited.exchange(0) != 0;
  if (reuse_awaited || (!is_inline() && phase_ != Phase::kSharedOut)) group_->ring_others();
}

void CollectiveOperation::move_alone() {
  if (work_ == nullptr) return copy(out_.data(), in_.data(), in_.num_bytes());
  group_->sources[0] = in_.data();
  work_->work({group_->sources, 0, in_.num_bytes()});
}

std::string CollectiveOperation::missing(bool finished, std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (int r = 0; r < group_->size(); ++r) {
    const CollectivePost& post = group_->block.post(sequence, r);
    if ((finished ? post.finished : post.posted).load(std::memory_order_acquire) <= sequence)
      ranks.push_back(group_->global_rank_of(r));
  }
  return ranks_have_not(ranks, finished ? "finished" : "arrived");
}

std::string CollectiveOperation::describe() const {
  const std::string call = fmt::format("{} #{} over {}", to_string(fingerprint_.operation), number_, group_->name);
  switch (phase_) {
    case Phase::kPrepared: return call + ": not issued";
    case Phase::kIssued:
      if (sequence_ < kSlots || slot_is_free()) return call + ": not started";
      return fmt::format("{}: {} {}", call, missing(true, sequence_ - kSlots),
                         work_ != nullptr ? "earlier operations" : fmt::format("operation {}", sequence_ - kSlots + 1));
    case Phase::kPosted: return fmt::format("{}: {}", call, missing(false, sequence_));
    case Phase::kStaged:
      return fmt::format("{}: piece {} of {} is not there from all ranks", call, piece_ + 1, num_pieces());
    case Phase::kSharedOut:
      return fmt::format("{}: {} of {} shares are not reduced", call,
                         static_cast<std::uint64_t>(group_->size()) - slot().filled.load(), group_->size());
    case Phase::kMoved: return fmt::format("{}: {}", call, missing(true, sequence_));
  }
  return call;
}

}  // namespace trident
