#include "parallel/communicator/communicator.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "parallel/communicator/status_board.h"

namespace trident {

double CommCounters::total_bytes() const {
  return static_cast<double>(std::accumulate(bytes_times_n.begin(), bytes_times_n.end(), std::int64_t{0})) / group_size;
}

Communicator::Communicator(std::string name, int rank, int size, CallRules::Side side)
    : name_(std::move(name)), rank_(rank), size_(size), side_(side) {
  TRIDENT_CHECK(rank >= 0 && rank < size, "rank {} of {} in {}", rank, size, name_);
  reset_counters();
}

void Communicator::all_reduce(Stream& stream, TensorView inout, ReduceOp op) { call(stream, rules().all_reduce(inout, op)); }

void Communicator::reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) {
  call(stream, rules().reduce_scatter(out, in, op));
}

void Communicator::all_gather(Stream& stream, TensorView out, ConstTensorView in) { call(stream, rules().all_gather(out, in)); }

void Communicator::broadcast(Stream& stream, TensorView inout, int root) { call(stream, rules().broadcast(inout, root)); }

void Communicator::all_to_all(Stream& stream, TensorView out, ConstTensorView in) { call(stream, rules().all_to_all(out, in)); }

void Communicator::send(Stream& stream, ConstTensorView data, int peer) { call(stream, rules().send(data, peer)); }

void Communicator::recv(Stream& stream, TensorView data, int peer) { call(stream, rules().recv(data, peer)); }

void Communicator::group_end() {
  TRIDENT_CHECK(group_depth_ > 0, "{}: group_end() without group_begin()", name_);
  if (--group_depth_ > 0) return;
  if (std::exchange(called_in_group_, false)) ++counters_.groups;
  flush();
}

void Communicator::group_cancel() noexcept {
  drop();
  group_depth_ = 0;
  called_in_group_ = false;
}

void Communicator::barrier() {
  TRIDENT_CHECK(!in_group(), "{}: barrier inside a group of operations", name_);
  count(CommOperation::kBarrier, 0);
  meet();
}

std::unique_ptr<Communicator> Communicator::split(std::span<const int> members, std::string name) {
  TRIDENT_CHECK(!in_group(), "{}: split inside a group of operations", name_);
  const auto me = std::ranges::find(members, rank_);
  TRIDENT_CHECK(me != members.end(), "rank {} of {} is not among the members of the group that it asks for", rank_, name_);
  for (const int r : members) TRIDENT_CHECK(r >= 0 && r < size_, "rank {} of {} ranks in {}", r, size_, name_);
  std::unique_ptr<Communicator> part = make_part(members, static_cast<int>(me - members.begin()), std::move(name));
  part->set_checks(checks_);
  part->report_to(board_);
  return part;
}

void Communicator::set_checks(CollectiveChecks checks) {
  checks_ = checks;
  use_checks(checks);
}

void Communicator::reset_counters() {
  counters_ = {};
  counters_.group_size = size_;
}

void Communicator::call(Stream& stream, const CollectiveCall& call) {
  if (!call.is_message()) note(call);
  count(call.operation, bytes_sent_times_n(call, size_));
  enqueue(stream, call);
}

// FNV-1a over the words of the call.
void Communicator::note(const CollectiveCall& call) {
  const auto elements = static_cast<std::uint64_t>(call.in.num_elements());
  for (const auto word : {static_cast<std::uint32_t>(call.operation), static_cast<std::uint32_t>(call.reduce),
                          static_cast<std::uint32_t>(call.in.dtype()), static_cast<std::uint32_t>(call.root),
                          static_cast<std::uint32_t>(elements), static_cast<std::uint32_t>(elements >> 32)})
    history_ = (history_ ^ word) * 16777619u;
}

void Communicator::count(CommOperation operation, std::int64_t bytes_times_n) {
  const auto i = static_cast<std::size_t>(operation);
  called_in_group_ = in_group();
  ++counters_.calls[i];
  counters_.bytes_times_n[i] += bytes_times_n;
  if (board_ != nullptr) board_->set_operation(name_, to_string(operation), ++entered_[i]);
}

}  // namespace trident
