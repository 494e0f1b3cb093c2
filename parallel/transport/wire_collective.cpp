#include "parallel/transport/wire_collective.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/at.h"
#include "core/tsan_announce.h"
#include "device/no_allocation.h"

namespace trident {
namespace {

constexpr std::int64_t kWholeMessage = std::numeric_limits<std::int64_t>::max();

int log2_up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

// The ranks that double, and those below twice this number that join their upper neighbours first.
int doubling_ranks(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }
int folded_ranks(int n) { return n - doubling_ranks(n); }

}  // namespace

WireRounds::Kind WireRounds::kind_of(DType dtype, ReduceOp op) {
  const bool any_brackets = op == ReduceOp::kMax || dtype == DType::kI64 || dtype == DType::kI32;
  return any_brackets ? Kind::kCombine : Kind::kGather;
}

void WireRounds::begin(WireGroup& group, Kind kind, TensorView inout, ReduceOp op) {
  group_ = &group;
  kind_ = kind;
  inout_ = inout;
  op_ = op;
  round_ = 0;
  const int n = group.size();
  rounds_ = kind == Kind::kCombine ? log2_up(doubling_ranks(n)) + (folded_ranks(n) > 0 ? 2 : 0) : log2_up(n);
  if (kind == Kind::kGather && !inout.empty()) copy_bytes(group.staging(), inout.data(), inout.num_bytes());
  begin_round();
}

bool WireRounds::advance() {
  while (round_ < rounds_) {
    WireEndpoint& endpoint = group_->endpoint();
    if (to_ >= 0) out_.send(endpoint, group_->global_rank_of(to_), group_->channel(), kWholeMessage);
    if (from_ >= 0 && at(group_->peers, from_).header_received)
      in_.recv(endpoint, group_->global_rank_of(from_), group_->channel(), kWholeMessage);
    if ((to_ >= 0 && !out_.complete()) || (from_ >= 0 && !in_.complete())) return false;
    end_round();
    if (++round_ < rounds_) begin_round();
  }
  return true;
}

void WireRounds::begin_round() {
  to_ = from_ = -1;
  switch (kind_) {
    case Kind::kMeet: return begin_meeting();
    case Kind::kCombine: return begin_combining();
    case Kind::kGather: return begin_gathering();
  }
}

void WireRounds::end_round() {
  if (kind_ == Kind::kCombine && from_ >= 0) {
    const bool is_result = is_folded();
    if (is_result) copy_bytes(inout_.data(), group_->staging(), inout_.num_bytes());
    else if (from_ < group_->rank()) combine(group_->staging(), inout_.data());
    else combine(inout_.data(), group_->staging());
  }
  if (kind_ == Kind::kGather && round_ + 1 == rounds_) add_gathered();
}

void WireRounds::exchange(int to, std::byte* out, std::int64_t out_bytes, int from, std::byte* in, std::int64_t in_bytes) {
  const std::int64_t message = group_->endpoint().options.message_bytes;
  to_ = to;
  from_ = from;
  out_.begin_at_least_one(out, out_bytes, message);
  in_.begin_at_least_one(in, in_bytes, message);
}

void WireRounds::begin_meeting() {
  const int n = group_->size(), me = group_->rank(), step = 1 << round_;
  exchange((me + step) % n, nullptr, 0, (me - step + n) % n, nullptr, 0);
}

bool WireRounds::is_folded() const { return group_->rank() < 2 * folded_ranks(group_->size()) && group_->rank() % 2 == 0; }

int WireRounds::rank_in_doubling(int rank) const {
  const int folded = folded_ranks(group_->size());
  return rank < 2 * folded ? rank / 2 : rank - folded;
}

int WireRounds::rank_of_doubling(int doubling_rank) const {
  const int folded = folded_ranks(group_->size());
  return doubling_rank < folded ? 2 * doubling_rank + 1 : doubling_rank + folded;
}

// With folded ranks: they send to their neighbours, the others double, the neighbours send the result back.
void WireRounds::begin_combining() {
  const int me = group_->rank(), folded = folded_ranks(group_->size());
  const std::int64_t bytes = inout_.num_bytes();
  std::byte *const mine = inout_.data(), *const theirs = group_->staging();
  const bool first = folded > 0 && round_ == 0, last = folded > 0 && round_ + 1 == rounds_;
  if (first || last) {
    if (me >= 2 * folded) return;
    const bool sends = is_folded() == first;
    const int neighbour = is_folded() ? me + 1 : me - 1;
    return exchange(sends ? neighbour : -1, mine, bytes, sends ? -1 : neighbour, theirs, bytes);
  }
  if (is_folded()) return;
  const int bit = round_ - (folded > 0 ? 1 : 0);
  const int partner = rank_of_doubling(rank_in_doubling(me) ^ (1 << bit));
  exchange(partner, mine, bytes, partner, theirs, bytes);
}

// Operand j in staging is that of rank me + j: so many are there, and so many more come from as far up.
void WireRounds::begin_gathering() {
  const int n = group_->size(), me = group_->rank(), have = 1 << round_, more = std::min(have, n - have);
  const std::int64_t bytes = inout_.num_bytes();
  exchange((me - have + n) % n, group_->staging(), more * bytes, (me + have) % n, group_->staging() + have * bytes, more * bytes);
}

void WireRounds::combine(const std::byte* lower, const std::byte* upper) {
  const std::byte* const sources[] = {lower, upper};
  std::byte* const out = inout_.data();
  reduce_in_rank_order(inout_.dtype(), op_, {&out, 1}, sources, inout_.num_elements());
}

void WireRounds::add_gathered() {
  const int n = group_->size(), me = group_->rank();
  for (int r = 0; r < n; ++r) at(group_->sources, r) = group_->staging() + (r - me + n) % n * inout_.num_bytes();
  std::byte* const out = inout_.data();
  reduce_in_rank_order(inout_.dtype(), op_, {&out, 1}, group_->sources, inout_.num_elements());
}

namespace {

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

std::byte* writable(const std::byte* data) { return const_cast<std::byte*>(data); }  // the wire only reads what it sends

}  // namespace

void WireCollective::prepare(const CollectiveCall& call) {
  const bool is_gather = call.operation == CommOperation::kAllGather;
  const std::int64_t slice = call.in.num_elements() / (is_gather ? 1 : group_->size());
  prepare_part(call, fingerprint_of(call, group_->global_ranks()), slice, nullptr);
}

void WireCollective::prepare_part(const CollectiveCall& call, const CommFingerprint& whole, std::int64_t slice,
                                  const int* positions) {
  busy_ = true;
  phase_ = Phase::kPrepared;
  step_ = Step::kNone;
  fingerprint_ = whole;
  out_ = call.out;
  in_ = call.in;
  root_ = call.root;
  slice_ = slice;
  positions_ = positions;
}

void WireCollective::issue() { issue_as(group_->collectives.next + 1); }

void WireCollective::issue_as(std::uint64_t number) {
  sequence_ = group_->collectives.next++;
  header_ = {fingerprint_, number, group_->global_rank()};
  phase_ = Phase::kIssued;
}

IndexRange WireCollective::slice(int rank) const {
  if (fingerprint_.operation == CommOperation::kAllReduce) return share_of(in_.num_elements(), in_.dtype(), group_->size(), rank);
  const int position = positions_ != nullptr ? positions_[rank] : rank;
  return position < 0 ? IndexRange{} : IndexRange{position * slice_, (position + 1) * slice_};
}

std::byte* WireCollective::slice_of_in(int rank) const { return writable(in_.data()) + slice(rank).begin * size_of(in_.dtype()); }

WireCollective::Step WireCollective::first_step() const {
  switch (fingerprint_.operation) {
    case CommOperation::kAllReduce:
      return in_.num_bytes() <= std::min(group_->endpoint().options.small_bytes, group_->chunk_bytes()) ? Step::kRounds
                                                                                                        : Step::kSum;
    case CommOperation::kReduceScatter: return Step::kSum;
    case CommOperation::kAllGather: return Step::kSpread;
    case CommOperation::kAllToAll: return Step::kExchange;
    case CommOperation::kBroadcast: return Step::kTree;
    case CommOperation::kBarrier: return Step::kRounds;
    case CommOperation::kSend: case CommOperation::kRecv: break;
  }
  return Step::kNone;
}

bool WireCollective::poll() {
  group_->throw_if_failed();
  if (group_->size() == 1) {
    move_alone();
    ++group_->collectives.now;
    return complete();
  }
  if (phase_ == Phase::kIssued) {
    if (group_->collectives.now != sequence_) return false;
    group_->guarded([this] { begin(); });
    phase_ = Phase::kMoving;
  }
  return group_->guarded([this] { return advance(); }) && end();
}

void WireCollective::begin() {
  group_->endpoint().progress->expect_messages(1);
  announce_read(in_);
  for (int i = 1; i < group_->size(); ++i) {
    const int r = (group_->rank() + i) % group_->size();
    WireGroup::Peer& peer = at(group_->peers, r);
    peer.header_sent = peer.header_received = !is_greeting();
    if (!is_greeting()) continue;
    peer.header_out = group_->wire().send(reinterpret_cast<const std::byte*>(&header_), sizeof header_, group_->global_rank_of(r),
                                          group_->channel());
    peer.header_in = group_->wire().recv(reinterpret_cast<std::byte*>(&peer.theirs), sizeof peer.theirs, group_->global_rank_of(r),
                                         group_->channel());
  }
  const int me = group_->rank();
  if (fingerprint_.operation == CommOperation::kAllGather && positions_ == nullptr)
    copy_bytes(slice_of_out(me), in_.data(), in_.num_bytes());
  if (fingerprint_.operation == CommOperation::kAllToAll) copy_bytes(slice_of_out(me), slice_of_in(me), slice_bytes(me));
  begin_step(first_step());
}

void WireCollective::begin_step(Step step) {
  step_ = step;
  pieces_added_ = 0;
  for (int r = 0; r < group_->size(); ++r)
    if (r != group_->rank()) begin_with(r);
  rounds_done_ = step != Step::kRounds;
  if (!rounds_done_) begin_rounds();
}

void WireCollective::begin_rounds() {
  const bool meets = fingerprint_.operation == CommOperation::kBarrier;
  rounds_.begin(*group_, meets ? WireRounds::Kind::kMeet : WireRounds::kind_of(in_.dtype(), fingerprint_.reduce), out_,
                fingerprint_.reduce);
}

void WireCollective::begin_with(int r) {
  Transfer &out = at(group_->peers, r).out, &in = at(group_->peers, r).in;
  const std::int64_t message = group_->endpoint().options.message_bytes;
  const std::int64_t chunk = group_->piece_elements(in_.dtype()) * size_of(in_.dtype());
  const int me = group_->rank();
  switch (step_) {
    case Step::kSum:
      out.begin(slice_of_in(r), slice_bytes(r), chunk);
      in.begin(group_->staging_of(r), slice_bytes(me), chunk, Transfer::Target::kStaged);
      return;
    case Step::kSpread:
      out.begin(slice_of_out(me), slice_bytes(me), message);
      in.begin(slice_of_out(r), slice_bytes(r), message);
      return;
    case Step::kExchange:
      out.begin(slice_of_in(r), slice_bytes(r), message);
      in.begin(slice_of_out(r), slice_bytes(r), message);
      return;
    case Step::kTree:
      out.begin(out_.data(), is_child(r) ? out_.num_bytes() : 0, chunk);
      in.begin(out_.data(), r == parent() ? out_.num_bytes() : 0, chunk);
      return;
    case Step::kRounds: case Step::kNone:
      out.begin(nullptr, 0, 1);
      in.begin(nullptr, 0, 1);
  }
}

// The tree of a broadcast, in ranks relative to the root: the parent of v is v without its lowest bit.
int WireCollective::parent() const {
  const int n = group_->size(), v = (group_->rank() - root_ + n) % n;
  return v == 0 ? -1 : ((v & (v - 1)) + root_) % n;
}

bool WireCollective::is_child(int rank) const {
  const int n = group_->size(), me = (group_->rank() - root_ + n) % n, v = (rank - root_ + n) % n;
  return v != 0 && (v & (v - 1)) == me;
}

bool WireCollective::advance() {
  for (;;) {
    if (step_ != Step::kRounds || is_greeting())
      for (int i = 1; i < group_->size(); ++i) advance_with((group_->rank() + i) % group_->size());
    if (step_ == Step::kSum) add_pieces();
    if (!rounds_done_) rounds_done_ = rounds_.advance();
    if (!step_is_complete()) return false;
    if (step_ != Step::kSum || fingerprint_.operation != CommOperation::kAllReduce) return true;
    begin_step(Step::kSpread);
  }
}

void WireCollective::advance_with(int r) {
  WireGroup::Peer& peer = at(group_->peers, r);
  const int global_rank = group_->global_rank_of(r);
  greet(r);
  const bool forwards = step_ == Step::kTree && parent() >= 0;
  const std::int64_t may_leave = forwards ? at(group_->peers, parent()).in.done() : kAll;
  peer.out.send(group_->endpoint(), global_rank, group_->channel(), may_leave);
  if (!peer.header_received) return;  // what follows is not known to fit
  peer.in.recv(group_->endpoint(), global_rank, group_->channel(), step_ == Step::kSum ? pieces_added_ + Transfer::kWindow : kAll);
}

void WireCollective::greet(int r) {
  WireGroup::Peer& peer = at(group_->peers, r);
  if (!peer.header_sent) peer.header_sent = group_->test(peer.header_out);
  if (peer.header_received || !group_->test(peer.header_in)) return;
  peer.header_received = true;
  check_agreement_with(r);
}

void WireCollective::check_agreement_with(int r) const {
  const IssuedCall& theirs = at(group_->peers, r).theirs;
  if (group_->checks == CollectiveChecks::kOff || (theirs.fingerprint == fingerprint_ && theirs.number == header_.number))
      [[likely]]
    return;
  const AllocationExemption message;
  const bool mine_first = group_->rank() > r;
  group_->raise(disagreement(group_->name(), mine_first ? header_ : theirs, mine_first ? theirs : header_));
}

void WireCollective::add_pieces() {
  while (add_piece()) continue;
}

// Adds the next piece of this rank's slice if it is there from everybody.
bool WireCollective::add_piece() {
  const IndexRange mine = slice(group_->rank());
  const std::int64_t element = size_of(in_.dtype()), piece = group_->piece_elements(in_.dtype());
  const std::int64_t first = pieces_added_ * piece, count = std::min(piece, mine.size() - first);
  if (count <= 0) return false;
  for (int r = 0; r < group_->size(); ++r) {
    if (r == group_->rank()) continue;
    const WireGroup::Peer& peer = at(group_->peers, r);
    if (peer.in.done() <= pieces_added_) return false;
    at(group_->sources, r) = group_->staging_of(r) + pieces_added_ % Transfer::kWindow * piece * element;
  }
  at(group_->sources, group_->rank()) = in_.data() + (mine.begin + first) * element;
  const std::int64_t offset = fingerprint_.operation == CommOperation::kAllReduce ? mine.begin + first : first;
  std::byte* const out = out_.data() + offset * element;
  reduce_in_rank_order(in_.dtype(), fingerprint_.reduce, {&out, 1}, group_->sources, count);
  ++pieces_added_;
  return true;
}

bool WireCollective::is_greeted_by_all() const {
  for (int r = 0; r < group_->size(); ++r)
    if (r != group_->rank() && !is_greeted(at(group_->peers, r))) return false;
  return true;
}

bool WireCollective::step_is_complete() const {
  if (!rounds_done_) return false;
  if (step_ == Step::kRounds && !is_greeting()) return true;
  for (int r = 0; r < group_->size(); ++r) {
    if (r == group_->rank()) continue;
    const WireGroup::Peer& peer = at(group_->peers, r);
    if (!is_greeted(peer) || !peer.out.complete() || !peer.in.complete()) return false;
    if (step_ == Step::kSum && pieces_added_ != peer.in.pieces()) return false;
  }
  return true;
}

void WireCollective::move_alone() const {
  if (positions_ == nullptr) copy_bytes(out_.data(), in_.data(), in_.num_bytes());
}

bool WireCollective::end() {
  group_->endpoint().progress->expect_messages(-1);
  ++group_->collectives.now;
  return complete();
}

std::string WireCollective::describe() const {
  const std::string call = fmt::format("{} #{} over {}", to_string(fingerprint_.operation), header_.number, group_->name());
  if (phase_ == Phase::kPrepared) return call + ": not issued";
  if (phase_ == Phase::kIssued) return fmt::format("{}: an earlier operation of {} is not complete", call, group_->name());
  if (!rounds_done_ && is_greeted_by_all())
    return fmt::format("{}: rank {} has not {}", call, group_->global_rank_of(rounds_.awaited()),
                       rounds_.has_received() ? "received" : "sent");
  std::vector<int> absent, silent, deaf;
  for (int r = 0; r < group_->size(); ++r) {
    if (r == group_->rank()) continue;
    const WireGroup::Peer& peer = at(group_->peers, r);
    const int global_rank = group_->global_rank_of(r);
    if (!peer.header_received) absent.push_back(global_rank);
    else if (!peer.in.complete()) silent.push_back(global_rank);
    else if (!peer.out.complete() || !peer.header_sent) deaf.push_back(global_rank);
  }
  return fmt::format("{}: {}", call, !absent.empty()   ? ranks_have_not(absent, "arrived")
                                     : !silent.empty() ? ranks_have_not(silent, "sent")
                                                       : ranks_have_not(deaf, "received"));
}

}  // namespace trident
