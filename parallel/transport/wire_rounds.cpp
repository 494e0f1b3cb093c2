#include "parallel/transport/wire_rounds.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/at.h"
#include "parallel/communicator/rank_order_sum.h"

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

}  // namespace trident
