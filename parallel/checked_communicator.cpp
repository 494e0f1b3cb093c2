#include "parallel/checked_communicator.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace trident {

double CommCounters::total_bytes() const {
  return static_cast<double>(std::accumulate(bytes_times_n.begin(), bytes_times_n.end(), std::int64_t{0})) / group_size;
}

namespace {

class CheckedCommunicator final : public Communicator {
 public:
  CheckedCommunicator(std::unique_ptr<Communicator> inner, CollectiveChecks checks, StatusBoard* board)
      : inner_(std::move(inner)), checks_(checks), board_(board) {
    inner_->set_checks(checks);
    reset();
  }

  const CommCounters& counters() const { return counters_; }
  std::uint32_t history() const { return history_; }
  void reset() {
    counters_ = {};
    counters_.group_size = size();
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }

  void all_reduce(Stream& stream, TensorView inout, ReduceOp op) override {
    note({CommOperation::kAllReduce, op, inout.dtype(), -1, inout.num_elements()});
    count(CommOperation::kAllReduce, 2 * (size() - 1) * inout.num_bytes());
    inner_->all_reduce(stream, inout, op);
  }
  void reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) override {
    note({CommOperation::kReduceScatter, op, in.dtype(), -1, in.num_elements()});
    count(CommOperation::kReduceScatter, (size() - 1) * in.num_bytes());
    inner_->reduce_scatter(stream, out, in, op);
  }
  void all_gather(Stream& stream, TensorView out, ConstTensorView in) override {
    note({CommOperation::kAllGather, ReduceOp::kSum, in.dtype(), -1, in.num_elements()});
    count(CommOperation::kAllGather, (size() - 1) * out.num_bytes());
    inner_->all_gather(stream, out, in);
  }
  void broadcast(Stream& stream, TensorView inout, int root) override {
    note({CommOperation::kBroadcast, ReduceOp::kSum, inout.dtype(), root, inout.num_elements()});
    count(CommOperation::kBroadcast, (size() - 1) * inout.num_bytes());
    inner_->broadcast(stream, inout, root);
  }
  void all_to_all(Stream& stream, TensorView out, ConstTensorView in) override {
    note({CommOperation::kAllToAll, ReduceOp::kSum, in.dtype(), -1, in.num_elements()});
    count(CommOperation::kAllToAll, (size() - 1) * in.num_bytes());
    inner_->all_to_all(stream, out, in);
  }
  void send(Stream& stream, ConstTensorView data, int peer) override {
    count(CommOperation::kSend, size() * data.num_bytes());
    inner_->send(stream, data, peer);
  }
  void recv(Stream& stream, TensorView data, int peer) override {
    count(CommOperation::kRecv, 0);
    inner_->recv(stream, data, peer);
  }
  void group_begin() override { inner_->group_begin(); }
  void group_end() override { inner_->group_end(); }
  void group_cancel() noexcept override { inner_->group_cancel(); }
  void barrier() override {
    count(CommOperation::kBarrier, 0);
    inner_->barrier();
  }
  std::unique_ptr<Communicator> split(std::span<const int> members, std::string name) override {
    return make_checked(inner_->split(members, std::move(name)), checks_, board_);
  }
  void abort(std::string_view reason) override { inner_->abort(reason); }
  void set_checks(CollectiveChecks checks) override {
    checks_ = checks;
    inner_->set_checks(checks);
  }
  std::string register_memory(TensorView memory) override { return inner_->register_memory(memory); }

 private:
  // FNV-1a over the words of the call.
  void note(const CommFingerprint& call) {
    const auto count = static_cast<std::uint64_t>(call.count);
    for (const auto word : {static_cast<std::uint32_t>(call.operation), static_cast<std::uint32_t>(call.reduce),
                            static_cast<std::uint32_t>(call.dtype), static_cast<std::uint32_t>(call.root),
                            static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(count >> 32)})
      history_ = (history_ ^ word) * 16777619u;
  }
  void count(CommOperation operation, std::int64_t bytes_times_n) {
    const auto i = static_cast<std::size_t>(operation);
    ++counters_.calls[i];
    counters_.bytes_times_n[i] += bytes_times_n;
    counters_.bytes[i] = static_cast<double>(counters_.bytes_times_n[i]) / counters_.group_size;
    if (board_ != nullptr) board_->set_operation(inner_->name(), to_string(operation), ++entered_[i]);
  }

  std::unique_ptr<Communicator> inner_;
  CollectiveChecks checks_;
  StatusBoard* board_;
  CommCounters counters_;
  std::uint32_t history_ = 2166136261u;
  std::array<std::uint64_t, kNumCommOperations> entered_{};  // since construction
};

}  // namespace

std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner, CollectiveChecks checks, StatusBoard* board) {
  return std::make_unique<CheckedCommunicator>(std::move(inner), checks, board);
}

const CommCounters& counters_of(const Communicator& communicator) {
  const auto* checked = dynamic_cast<const CheckedCommunicator*>(&communicator);
  TRIDENT_CHECK(checked != nullptr, "communicator {} counts nothing", communicator.name());
  return checked->counters();
}

std::uint32_t history_of(const Communicator& communicator) {
  const auto* checked = dynamic_cast<const CheckedCommunicator*>(&communicator);
  TRIDENT_CHECK(checked != nullptr, "communicator {} counts nothing", communicator.name());
  return checked->history();
}

void reset_counters(Communicator& communicator) {
  auto* checked = dynamic_cast<CheckedCommunicator*>(&communicator);
  TRIDENT_CHECK(checked != nullptr, "communicator {} counts nothing", communicator.name());
  checked->reset();
}

}  // namespace trident
